"""What a shell is offered: commands, options, and sessions with their titles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHELLS = ["bash", "zsh", "fish"]


@pytest.fixture
def offered(process):
    """The words that a shell is offered for a line, each with what is told of it."""

    def offered(line: str, shell: str = "zsh", **environment: str) -> dict[str, str]:
        words = line.split(" ")
        incomplete = words[-1]
        env = {
            **os.environ,
            "_HANSARD_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": incomplete if shell == "fish" else str(len(words) - 1),
            **environment,
        }
        done = process(env=env)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        if shell == "zsh":
            return dict(zip(lines[1::3], lines[2::3], strict=True))
        told = [line.partition(",")[2].partition("\t") for line in lines]
        return {word: help for word, _, help in told}

    return offered


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_offered_ids_and_commands(begin, offered, shell):
    begin("Fix CI", id="sess_aaaa")
    assert "sess_aaaa" in offered("hansard show sess_a", shell)
    assert "rename" in offered("hansard re", shell)
    assert "--dry-run" in offered("hansard cleanup --d", shell)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_an_id_comes_with_its_title(begin, offered, shell):
    begin("Fix\nCI", id="sess_aaaa")
    assert offered("hansard show aa", shell) == {"sess_aaaa": "Fix CI"}


@pytest.mark.parametrize(
    "command",
    [
        "show",
        "tail",
        "append",
        "rename",
        "label",
        "pin",
        "fork",
        "rm",
        "rm other",
        "export",
        "vacuum",
        "ls --parent",
    ],
)
def test_wherever_a_session_is_named(begin, offered, command):
    begin("Fix CI", id="abc")
    assert offered(f"hansard {command} a") == {"abc": "Fix CI"}


def test_behind_the_session_there_is_a_text(begin, offered):
    begin("Fix CI", id="abc")
    assert offered("hansard append abc a") == {}
    assert offered("hansard rename abc a") == {}


def test_one_that_is_not_among_the_newest_is_offered_too(store, begin, offered):
    store.append("old", {"role": "user", "content": "Long ago"}, create=True)
    for n in range(110):
        store.append(f"new-{n}", {"role": "user", "content": "Today"}, create=True)
    assert offered("hansard show ol") == {"old": "Long ago"}


def test_names_are_offered(store, begin, offered):
    store.names.set("agent/coder", begin("Fix CI", id="abc"))
    assert offered("hansard show @") == {"@active": "the session opened last", "@agent/coder": "abc"}
    assert offered("hansard show @ag") == {"@agent/coder": "abc"}


def test_formats_are_offered(begin, offered):
    assert "markdown" in offered("hansard export --format m")


@pytest.mark.parametrize("id", ["$(touch owned)", "a;b", "a b", "a'b", "`x`", "a\u202eb", "a&b"])
def test_what_a_shell_would_read_otherwise_is_not_offered(begin, offered, id):
    begin("Fix CI", id=id)
    begin("Fix CI", id="fine")
    assert list(offered("hansard show ")) == ["fine"]


def test_titles_are_harmless(begin, offered):
    begin("\x1b[2J\x07 \u202ex", id="abc")
    assert offered("hansard show a") == {"abc": "␛[2J␇ <U+202E>x"}


@pytest.mark.parametrize("state", ["missing", "file", "illegible", "bad url", "no home", "newer"])
def test_where_nothing_can_be_offered_nothing_is_said(begin, offered, tmp_path, state):
    environment = {}
    if state == "missing":
        environment = {"HANSARD_STORE": str(tmp_path / "none")}
    elif state == "file":
        (tmp_path / "file").write_text("")
        environment = {"HANSARD_STORE": str(tmp_path / "file")}
    elif state == "bad url":
        environment = {"HANSARD_STORE": "file:/x?y=1"}
    elif state == "no home":
        environment = {"HANSARD_STORE": "~nobody/x", "HOME": ""}
    else:
        begin("one", id="abc")
        text = "{" if state == "illegible" else '{"format":99}'
        (tmp_path / "store" / "hansard.json").write_text(text)
    assert offered("hansard show a", **environment) == {}
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(process, shell):
    done = process(env={**os.environ, "_HANSARD_COMPLETE": f"{shell}_source"})
    assert done.returncode == 0
    assert "_HANSARD_COMPLETE" in done.stdout


def test_bash_completes(begin, tmp_path):
    begin("Fix CI", id="sess_aaaa")
    command = tmp_path / "bin" / "hansard"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hansard "$@"\n')
    command.chmod(0o755)
    script = """
        eval "$(_HANSARD_COMPLETE=bash_source hansard)"
        COMP_WORDS=(hansard show sess_) COMP_CWORD=2
        _hansard_completion hansard
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = os.pathsep.join([str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path}, check=True
    )
    assert (done.stdout, done.stderr) == ("sess_aaaa\n", "")
