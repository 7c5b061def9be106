"""`hansard demo`: a process is killed, half of a line is on disk, and nothing acknowledged is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import hansard
from hansard.cli import recorder


def test_a_killed_writer_loses_nothing_that_was_acknowledged(printed, store):
    found = printed("demo")
    assert found["ok"]
    assert found["killed"]["signal"] == "SIGKILL"
    assert 0 < found["write"]["written"] < found["write"]["bytes"]
    assert found["acknowledged"] == found["found"] == len(recorder.SAID)
    history = store.read(found["session"]).history()
    assert history[:-1] == recorder.SAID
    assert Path(found["aside"]).stat().st_size == found["write"]["written"]


def test_it_tells_what_happens_and_where_the_files_are(run, tmp_path):
    done = run("demo")
    assert done.exit_code == 0
    text = done.stdout
    assert text.startswith(f"The store is {tmp_path / 'store'}\n")
    assert "killed (SIGKILL" in text
    assert "5 messages had been acknowledged, 5 in the history: all there, none half." in text
    (log,) = [line.split()[-1] for line in text.splitlines() if line.startswith("  tail ")]
    assert Path(log).exists()


def test_it_can_be_run_again_in_the_same_store(run, printed):
    assert [run("demo").exit_code for _ in range(2)] == [0, 0]
    assert printed("demo")["ok"]
    assert len(printed("ls")["sessions"]) == 3
    assert run("doctor").exit_code == 0


def test_it_does_not_become_the_active_session(begin, store, run):
    id = begin("mine")
    store.activate(id)
    run("demo")
    assert store.active() == id


def test_without_a_store_it_makes_a_folder_and_names_it(run, monkeypatch, tmp_path):
    monkeypatch.delenv("HANSARD_STORE")
    text = run("demo").stdout
    folder = text.splitlines()[0].removeprefix("The store is ")
    assert f"  rm -r {folder}" in text
    assert f"--store {folder}" in text
    with hansard.open(folder, create=False) as store:
        assert len(store.list()) == 1
    assert not Path(hansard.default_path()).exists()


def test_it_needs_a_folder(run):
    done = run("demo", "--store", "memory:")
    assert done.exit_code == 2
    assert "a folder" in done.stderr


def test_a_recorder_that_nobody_kills_ends_with_whoever_started_it(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-m", "hansard.cli.recorder", str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    told = islice(child.stdout, len(recorder.SAID) + 2)
    events = [json.loads(line)["event"] for line in told]
    assert events[-1] == "halfway"
    child.communicate(timeout=30)
    assert child.returncode == 1


def test_nobody_has_to_watch_to_the_end():
    command = [sys.executable, "-m", "hansard", "demo"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline().startswith("The store is")
    child.stdout.close()
    assert child.wait(30) == 0
    assert child.stderr.read() == ""
    child.stderr.close()
