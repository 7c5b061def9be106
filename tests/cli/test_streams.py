"""Every command with an output that is closed or full, without a terminal's comforts, without a home."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import hansard

EVERY = ["ls", "ls --json", "show", "show --json", "show --records", "doctor", "doctor --json", "version"]
EVERY += [
    "tail",
    "tail --json",
    "new",
    "new --json",
    "append @active x",
    "append @active x --json",
    "locks --json",
]
EVERY += ["rename @active x", "label @active +x", "pin @active", "fork @active", "export", "export --json"]
EVERY += ["rm @active --yes", "rm @active --yes --json", "cleanup --keep-last 0 --yes --json"]
EVERY += ["cleanup --keep-last 0 --dry-run", "vacuum @active", "vacuum @active --json"]
EVERY += ["version --json", "demo", "demo --json", "", "--json", "--help", "show --help", "--version"]

full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has an output that is full")

HOMELESS = """
import os, pwd, sys
def nobody(uid): raise KeyError(uid)
pwd.getpwuid = nobody
for name in ("HOME", "XDG_DATA_HOME"): os.environ.pop(name, None)
from hansard.cli import main
main(sys.argv[1:])
"""
"""The command as it runs in a container under a user that is in no list."""


@pytest.fixture
def shell(begin, store):
    """Runs the command in a shell, with whatever is done to its streams there."""
    store.activate(begin("one", {"role": "assistant", "content": "修复 …"}))

    def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", f'"{sys.executable}" -m hansard {command}'],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **environment},
        )

    return shell


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """The current folder is one that is there no more."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()


@full
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("command", EVERY)
def test_a_full_output_is_one_line(shell, command, unbuffered):
    done = shell(f"{command} >/dev/full", PYTHONUNBUFFERED=unbuffered)
    said = "hansard: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("command", EVERY)
def test_a_closed_output_is_one_line(shell, command):
    done = shell(f"{command} >&-")
    assert (done.returncode, done.stderr) == (1, "hansard: the output cannot be written: it is closed\n")


@pytest.mark.parametrize("command", EVERY)
def test_whoever_reads_may_leave(shell, command):
    done = shell(f"{command} | exec true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", EVERY)
def test_nothing_but_the_output_is_needed(shell, command):
    done = shell(f"{command} <&- 2>&-", COLUMNS="1", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0
    assert done.stdout


@pytest.mark.parametrize("to", ["&-", pytest.param("/dev/full", marks=full)])
@pytest.mark.parametrize(
    ("command", "code"), [("show nope", 1), ("lss", 2), ("ls --limit x", 2), ("ls --store /nowhere", 1)]
)
def test_an_error_that_nobody_can_read_keeps_its_exit_code(shell, command, code, to):
    done = shell(f"{command} 2>{to}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@full
def test_completion_into_a_full_output_is_one_line(shell):
    done = shell(">/dev/full", _HANSARD_COMPLETE="zsh_complete", COMP_WORDS="hansard s", COMP_CWORD="1")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("pager", ["'", "/nowhere/less", "false", ""])
def test_a_pager_that_does_not_work_is_no_failure(begin, terminal, pager):
    begin(*[f"message {n}" for n in range(50)])
    shown = terminal("show", PAGER=pager, TERM="dumb")
    assert shown.code == 0
    assert "Traceback" not in shown.text
    assert ("message 49" in shown.text) is (pager != "false")


@pytest.mark.parametrize("command", ["ls --store relative", "ls --workspace .", "demo --store relative"])
def test_without_a_current_folder_a_relative_path_leads_nowhere(begin, process, nowhere, command):
    begin("one")
    done = process(*command.split())
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the current folder cannot be told" in done.stderr


def test_without_a_current_folder_all_else_works(begin, process, nowhere):
    begin("one")
    for command in (["ls"], ["show"], ["doctor"], ["demo"], ["version"], []):
        assert process(*command).returncode == 0


def test_the_library_says_that_there_is_no_current_folder(nowhere):
    for call in (lambda: hansard.open("relative"), hansard.workspace, lambda: hansard.workspace("x")):
        with pytest.raises(hansard.StoreUnavailable, match="give an absolute path"):
            call()


@pytest.mark.parametrize("store", [None, "~/agents", "~"])
@pytest.mark.parametrize(
    "command", ["ls", "show", "doctor", "", "tail", "new", "append a b", "cleanup --keep-last 1"]
)
def test_without_a_home_it_says_what_to_set(command, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HANSARD_STORE")
    if store is not None:
        monkeypatch.setenv("HANSARD_STORE", store)
    done = subprocess.run(
        [sys.executable, "-c", HOMELESS, *command.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert ("$HOME is not set" if store else "set $HANSARD_STORE") in done.stderr
    assert not (tmp_path / "~").exists()


def test_without_a_home_it_tells_its_version(monkeypatch):
    monkeypatch.delenv("HANSARD_STORE")
    for option, told in (("--", "not known; set $HANSARD_STORE"), ("--json", '"store": null')):
        done = subprocess.run(
            [sys.executable, "-c", HOMELESS, "version", option], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0
        assert told in done.stdout
