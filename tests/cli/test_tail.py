"""`hansard tail`: the newest records, and those that come, from another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

Following = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def following() -> Iterator[Following]:
    """Runs `hansard tail` as a process of its own that goes on."""
    children = []

    def following(*args: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "hansard", "tail", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield following
    for child in children:
        child.kill()
        child.communicate()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Ends what waits for ever."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_it_shows_the_newest_records(run, begin):
    id = begin(*[f"message {n}" for n in range(20)])
    text = run("tail", id, "-n", "2").stdout
    assert "message 19" in text
    assert "message 18" in text
    assert "message 17" not in text
    assert text.startswith("user  #19 · ")
    assert run("tail", id).stdout.count("message ") == 10
    assert run("tail", id, "-n", "0").stdout == ""


def test_without_a_session_it_is_the_one_opened_last(run, begin, store):
    begin("one", id="a")
    begin("two", id="b")
    store.activate("a")
    assert "one" in run("tail").stdout


def test_json_is_a_line_for_each_record(run, begin):
    begin("one", {"role": "assistant", "content": "two"}, id="a")
    lines = [json.loads(line) for line in run("tail", "a", "--json", "-n", "2").stdout.splitlines()]
    assert [line["session"] for line in lines] == ["a", "a"]
    assert [line["record"]["data"]["content"] for line in lines] == ["one", "two"]


def test_it_follows_from_another_process_within_100_ms(following, begin, store):
    begin("one", id="a")
    child = following("a", "-f", "--json", "-n", "1")
    assert child.stdout is not None
    with at_most(60):
        assert json.loads(child.stdout.readline())["record"]["data"]["content"] == "one"
        taken = []
        for n in range(20):
            store.append("a", {"role": "user", "content": f"number {n}"})
            begun = time.perf_counter()
            assert json.loads(child.stdout.readline())["record"]["data"]["content"] == f"number {n}"
            taken.append(time.perf_counter() - begun)
    assert sorted(taken)[10] < 0.1, taken


def test_a_person_sees_what_is_said_as_it_is_said(following, begin, store):
    begin("one", id="a")
    child = following("a", "-f", "-n", "0")
    assert child.stdout is not None
    with at_most(60):
        time.sleep(0.5)
        while True:  # until it listens
            store.append("a", {"role": "assistant", "content": "Done."})
            if "assistant" in child.stdout.readline():
                break
        assert child.stdout.readline() == "  Done.\n"


def test_ctrl_c_ends_it_quietly(following, begin):
    begin("one", id="a")
    child = following("a", "-f")
    assert child.stdout is not None
    with at_most(60):
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate()
    assert (child.returncode, stderr) == (130, "")


def test_it_ends_when_the_session_is_deleted(following, begin, store):
    begin("one", id="a")
    child = following("a", "-f")
    assert child.stdout is not None
    with at_most(60):
        child.stdout.readline()
        store.delete("a")
        _, stderr = child.communicate()
    assert (child.returncode, stderr) == (0, "hansard: a was deleted\n")


def test_a_reader_that_leaves_ends_it_quietly(following, begin, store):
    begin("one", id="a")
    child = following("a", "-f", "--json")
    assert child.stdout is not None
    assert child.stderr is not None
    with at_most(60):
        child.stdout.readline()
        child.stdout.close()
        while child.poll() is None:
            store.append("a", {"role": "user", "content": "more"})
            time.sleep(0.02)
        assert (child.returncode, child.stderr.read()) == (0, "")


def test_all_follows_every_session(following, begin, store):
    begin("one", id="a")
    child = following("--all", "-f", "--json")
    assert child.stdout is not None
    with at_most(60):
        seen = set()
        os.set_blocking(child.stdout.fileno(), False)
        while seen < {"a", "b"}:
            store.append("a", {"role": "user", "content": "more"})
            store.append("b", {"role": "user", "content": "more"}, create=True)
            time.sleep(0.05)
            while line := child.stdout.readline():
                seen.add(json.loads(line)["session"])


@pytest.mark.parametrize(
    "args", [["--all"], ["--all", "-f", "a"], ["a", "--id=a"], ["-n", "x"]], ids=" ".join
)
def test_wrong_usage(run, begin, args):
    begin("one", id="a")
    assert run("tail", *args).exit_code == 2


def test_of_no_session_it_says_so(run, begin):
    assert run("tail").exit_code == 1
    begin("one")
    assert run("tail", "nope").exit_code == 1


def test_damage_ends_with_4(run, begin, store, tmp_path):
    id = begin("one", "two", id="a")
    store.append(id, {"role": "user", "content": "three"})
    path = tmp_path / "store" / "sessions" / "a.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[2] = b"\x1b[2Jgarbage"
    path.write_bytes(b"\n".join(lines))
    done = run("tail", "a")
    assert done.exit_code == 4
    assert "three" in done.stdout
    assert "hansard doctor" in done.stderr
