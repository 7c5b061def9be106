"""What the command says when something is not as it should be, or takes long."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from rich.cells import cell_len

import hansard
from hansard.cli.guesses import OTHERWISE
from hansard.cli.progress import Progress

READS = ["ls", "", "show a", "tail a", "export a", "locks", "doctor", "cleanup --keep-last 0 --dry-run"]
WRITES = ["append a x", "rename a x", "label a +x", "pin a", "fork a", "rm a --yes", "new", "vacuum a"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lst", "ls"),
        ("sho", "show"),
        ("apend", "append"),
        ("cleanp", "cleanup"),
        *list(OTHERWISE.items())[:3],
    ],
)
def test_a_command_that_is_not_there_is_guessed(run, typed, meant):
    done = run(typed)
    assert done.exit_code == 2
    assert f"Did you mean `hansard {meant}`?" in done.stderr


def test_what_is_like_nothing_is_not_guessed(run):
    assert "Did you mean" not in run("xyzzy").stderr


def test_every_guess_is_a_command(run):
    for meant in set(OTHERWISE.values()):
        assert run(meant, "--help").exit_code == 0


def test_sessions_that_may_have_been_meant_are_named(run, begin):
    begin("Migrate the database", id="sess_abcdefgh00000000")
    begin("Something else")
    for typed in ("abcdefhg", "sess_abcdxfgh", "migrate", "The Database"):
        done = run("show", typed)
        assert done.exit_code == 1
        assert "did you mean:" in done.stderr
        assert "  sess_abcdefgh00000000  Migrate the database\n" in done.stderr
        assert "Something else" not in done.stderr
    assert "did you mean" not in run("show", "xyzzy").stderr


def test_a_name_that_may_have_been_meant_is_named(run, store, begin):
    store.names.set("agent/coder", begin("one"))
    assert "did you mean `@agent/coder`?" in run("show", "@agent/codr").stderr
    assert "did you mean `@active`?" in run("show", "@activ").stderr


def test_a_mistake_of_ours_is_one_line(run, begin, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("by \x1bzero")

    begin("one")
    monkeypatch.setattr(hansard.Store, "list", broken)
    done = run("ls")
    assert done.exit_code == 1
    assert done.stderr.startswith("hansard: ZeroDivisionError: by ␛zero (")
    assert done.stderr.count("\n") == 1
    monkeypatch.setenv("HANSARD_TRACEBACK", "1")
    assert isinstance(run("ls").exception, ZeroDivisionError)


@pytest.fixture
def readonly(begin, tmp_path):
    """Runs the command as somebody who may only read the store `a` is in."""
    begin("one", {"role": "assistant", "content": "two"}, id="a")
    path = tmp_path / "store"
    for place in [path, *path.rglob("*")]:
        place.chmod(0o500 if place.is_dir() else 0o400)
    weaker: list[str] = []
    if os.geteuid() == 0:  # to whom permissions mean nothing, unless that is taken away
        if shutil.which("setpriv") is None:
            pytest.skip("the superuser may write everything")
        weaker = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]

    def readonly(*args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*weaker, sys.executable, "-m", "hansard", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    yield readonly
    for place in [path, *path.rglob("*")]:
        place.chmod(0o700 if place.is_dir() else 0o600)


@pytest.mark.parametrize("command", READS)
def test_a_store_that_cannot_be_written_is_read(readonly, command):
    child = readonly(*command.split())
    stdout, stderr = child.communicate(timeout=30)
    assert child.returncode == 0, stderr
    assert stdout or command == "locks"


@pytest.mark.parametrize("command", WRITES)
def test_a_store_that_cannot_be_written_says_so(readonly, command):
    child = readonly(*command.split())
    stdout, stderr = child.communicate(timeout=30)
    assert (child.returncode, stdout) == (1, "")
    assert stderr.count("\n") == 1
    assert "ermission" in stderr


def test_a_store_that_cannot_be_written_is_followed(readonly):
    child = readonly("tail", "a", "-f")
    assert child.stdout is not None
    while "two" not in child.stdout.readline():
        pass
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert (child.returncode, stderr) == (130, "")


@pytest.mark.parametrize(
    "command", [*READS, "show a --records", "fork a", "label a", "--help", "append --help"]
)
def test_everything_fits_a_narrow_terminal(begin, terminal, command):
    begin("Build a login page " * 5, agent="reviewer-of-everything", model="claude-opus-4-5", id="a")
    begin(
        "修复登录页面的错误，谢谢你帮我看看这个问题到底出在哪里", {"role": "assistant", "content": "x" * 200}
    )
    shown = terminal(*command.split(), columns=40, NO_COLOR="1", PAGER="cat")
    assert shown.code == 0
    copied = ("hansard ", "eval ", "_HANSARD", "/", "{")  # what is to be copied is not broken
    for line in shown.text.splitlines():
        if not line.strip().startswith(copied) and command != "export a":
            assert cell_len(line) <= 40 or " hansard " in line, line


# -- what takes long --------------------------------------------------------------------------------

SLOW = """
import sys, time, hansard
real = hansard.Store.list
def slow(*a, **k):
    time.sleep(1.2)
    return real(*a, **k)
hansard.Store.list = slow
from hansard.cli import main
main(sys.argv[1:])
"""


def test_what_takes_long_is_told_and_leaves_nothing(begin, terminal):
    begin("Fix CI")
    shown = terminal("ls", command=[sys.executable, "-c", SLOW], NO_COLOR="1").text
    told, _, rest = shown.rpartition("\r")
    assert "looking for sessions … 1 s" in told
    assert told.rpartition("\r")[2].isspace()
    assert rest.startswith("ID")


def test_what_takes_long_is_told_to_nobody_in_a_pipe(begin):
    begin("Fix CI")
    done = subprocess.run([sys.executable, "-c", SLOW, "ls"], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("progress", "done", "told"),
    [
        (Progress("looking"), 0, "looking … 3 s"),
        (Progress("looking", unit="session"), 1200, "looking … 1,200 sessions"),
        (Progress("exporting", unit="record", total=4), 1, "exporting [#####...............] 25%  1 record"),
        (
            Progress("exporting", unit="record", total=4),
            9,
            "exporting [####################] 100%  9 records",
        ),
    ],
)
def test_progress_says_how_far_it_is(progress, done, told):
    progress(done)
    assert progress.line(3.2) == told
