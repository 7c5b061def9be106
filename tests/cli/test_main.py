"""What holds for every command: help, exit codes, pipes, interrupts, colours, hostile text, completion."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

import hansard
from hansard.cli import COMMANDS, main, screen
from hansard.errors import SessionBusy, StoreUnavailable

HOSTILE = "\x1b[2J\x1b]0;owned\x07 a\x00b \x9b31m \u202egnp.exe\u2066 \rover\x08\x7f"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(run, command):
    done = run(command, "--help")
    assert done.exit_code == 0
    assert f"hansard {command}" in done.stdout.partition("Examples:")[2]
    assert "--json" in done.stdout
    assert "--store" in done.stdout


def test_help_lists_every_command_and_how_to_complete(run):
    text = run("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", text, re.MULTILINE)
    assert "_HANSARD_COMPLETE=bash_source" in text
    assert run("-h").stdout == text


@pytest.mark.parametrize(
    "args", [["lss"], ["ls", "--nope"], ["ls", "--limit", "-1"], ["show", "a", "b"], ["ls", "x"]]
)
def test_wrong_usage_ends_with_2(run, args):
    done = run(*args)
    assert done.exit_code == 2
    assert "Usage: hansard" in done.stderr


@pytest.mark.parametrize("url", ["file:/tmp?x=1", "file:", "  "])
def test_a_wrong_url_is_wrong_usage(run, url):
    done = run("ls", "--store", url)
    assert done.exit_code == 2
    assert "--store" in done.stderr


def test_an_error_is_one_line_without_a_traceback(process, tmp_path):
    (tmp_path / "thing.txt").write_text("x")
    done = process("ls", "--store", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"hansard: {tmp_path} has no hansard.json")


def test_a_damaged_store_ends_with_4(begin, run, tmp_path):
    begin("one")
    (tmp_path / "store" / "hansard.json").write_text("{")
    done = subprocess.run(
        [sys.executable, "-m", "hansard", "ls"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "hansard.json cannot be understood" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [(SessionBusy("s"), 3), (StoreUnavailable("the disk is gone"), 1), (hansard.Damaged("broken"), 4)],
    ids=["busy", "unavailable", "damaged"],
)
def test_exit_codes_tell_what_kind_of_error_it_was(begin, run, monkeypatch, error, code):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(hansard.Store, "list", refuse)
    begin("one")
    done = run("ls")
    assert done.exit_code == code
    assert str(error) in done.stderr


def test_python_dash_m_is_the_command(process):
    done = process("version")
    assert done.returncode == 0
    assert done.stdout.startswith("hansard ")


def test_a_closed_pipe_is_quiet(begin):
    begin(*[f"line {n} " * 100 for n in range(3000)])
    child = subprocess.Popen(
        [sys.executable, "-m", "hansard", "show"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline().startswith("line 0")
    child.stdout.close()
    assert child.wait(30) == 0
    assert child.stderr.read() == ""
    child.stderr.close()


def test_an_interrupt_is_quiet(tmp_path):
    program = (
        "import sys, time, hansard\n"
        "def list(*a, **k):\n    print('listing', flush=True); time.sleep(60)\n"
        "hansard.Store.list = list\n"
        "from hansard.cli import main\n"
        "main(['ls'])\n"
    )
    with hansard.open():
        pass
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "listing\n"
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert (child.returncode, stderr) == (130, "")


@pytest.mark.parametrize("command", [["ls"], ["show"], ["show", "--records"], ["doctor"], []])
def test_in_a_pipe_there_is_no_colour(begin, process, command):
    begin("one")
    assert "\x1b" not in process(*command).stdout


def test_in_a_terminal_there_is_colour(begin, terminal):
    begin("one")
    assert "\x1b[1m" in terminal("ls").text


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("command", [["ls"], ["show"], ["show", "nope"], ["doctor"]])
def test_colour_can_be_declined(begin, terminal, command, environment):
    begin("one")
    assert "\x1b" not in terminal(*command, PAGER="cat", **environment).text


@pytest.mark.parametrize(
    "command",
    [
        *(["ls"], ["show"], ["show", "--records"], ["show", "s"], [], ["ls", "--json"], ["show", "--json"]),
        ["show", "--live"],
        *(["tail", "s2"], ["tail", "s2", "--json"], ["export", "s2"], ["export", "s2", "--json"], ["locks"]),
        *(["fork", "s2", "--json"], ["label", "s2"], ["label", "s2", f"+{HOSTILE.replace(chr(0), '')}"]),
        *(["cleanup", "--keep-last", "0"], ["cleanup", "--keep-last", "0", "--dry-run"], ["rm", "owned"]),
        *(["rm", "s1", "s2"], ["rm", "s1", "s2", "--yes"], ["vacuum", "s2", "--drop-history"], ["doctor"]),
    ],
    ids=lambda command: ascii(" ".join(command))[:50],
)
def test_hostile_text_never_reaches_the_terminal(begin, store, terminal, command):
    begin(HOSTILE, {"role": HOSTILE, "content": HOSTILE}, {HOSTILE: HOSTILE}, agent="a\x1bb", id="s1")
    begin(HOSTILE, id="s2")
    with store.open("s2") as session:
        session.rename(HOSTILE * 100)
        session.update(model=HOSTILE, meta={HOSTILE: HOSTILE})
        session.set_summary(HOSTILE)
        session.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": HOSTILE, "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}
                ],
            },
            id=HOSTILE,
        )
        session.append({"role": "tool", "tool_call_id": HOSTILE, "content": HOSTILE})
        session.append({"x": 1}, kind="app.\x1b[31m")
        session.label(HOSTILE)
    with store.open("s1"):
        shown = terminal(*command, NO_COLOR="1", PAGER="cat", LESS="-R", typed="n\n").text
    assert not FORBIDDEN.search(shown), FORBIDDEN.search(shown)


def test_an_error_about_hostile_text_is_harmless(begin, terminal):
    begin("one")
    for ref in ("\x1b[31m", "\udcff", "@\x9b"):
        shown = terminal("show", os.fsencode(ref) if ref == "\udcff" else ref, NO_COLOR="1")
        assert shown.code == 1
        assert not FORBIDDEN.search(shown.text)


def test_a_long_session_goes_to_a_pager_in_a_terminal(begin, terminal, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\ncat\n")
    pager.chmod(0o755)
    begin(*[f"message {n}" for n in range(50)])
    assert "PAGED" in terminal("show", PAGER=str(pager)).text
    assert "PAGED" not in terminal("show", "--limit", "2", PAGER=str(pager)).text


def test_a_terminal_without_utf8_gets_escapes_not_errors(begin, process):
    begin("修复 …", {"role": "assistant", "content": "👍"})
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert process("show", env=env).returncode == 0
    assert process("ls", env=env).returncode == 0
    found = json.loads(process("show", "--live", "--json", env=env).stdout)
    assert found["messages"][1]["content"] == "👍"


def test_completion_gives_ids_with_titles(begin, process, tmp_path):
    begin("Fix\nCI", id="sess_aaaa")
    begin("Other", id="other")

    def complete(words, shell="zsh"):
        env = {
            **os.environ,
            "_HANSARD_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        done = process(env=env)
        assert done.stderr == ""
        return [line for line in done.stdout.splitlines() if line]

    assert complete("hansard show sess_") == ["plain", "sess_aaaa", "Fix CI"]
    assert complete("hansard show aa") == ["plain", "sess_aaaa", "Fix CI"]
    assert complete("hansard show @a") == ["plain", "@active", "the session opened last"]
    assert complete(f"hansard show --store {tmp_path}/none s") == []
    assert "plain,show" in complete("hansard sh", shell="bash")


@pytest.mark.parametrize(
    "command",
    [["ls"], ["show"], ["doctor"], [], ["tail"], ["locks"], ["append", "s", "x"], ["new"]],
    ids=" ".join,
)
def test_starting_loads_only_what_is_needed(begin, command):
    begin("Fix CI")
    program = (
        f"import sys; from hansard.cli import main\ntry: main({command!r})\nexcept SystemExit: pass\n"
        "heavy = {'rich', 'regex', 'asyncio', 'tempfile'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_every_command_is_where_the_list_says():
    with main.make_context("hansard", [], resilient_parsing=True) as ctx:
        for name in COMMANDS:
            command = main.get_command(ctx, name)
            assert command is not None
            assert command.name == name


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "just now"), (-3, "just now"), (42, "42 s ago"), (60, "1 min ago"), (3599, "59 min ago"),
        (3600, "1 h ago"), (86400, "1 day ago"), (5 * 86400, "5 days ago"), (15 * 86400, "2 weeks ago"),
        (61 * 86400, "2 months ago"), (731 * 86400, "2 years ago"), (-300, "in 5 min"),
    ],
)  # fmt: skip
def test_times_are_told_as_people_tell_them(seconds, told):
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert screen.ago(now - timedelta(seconds=seconds), now) == told


def test_a_text_of_any_length_is_folded_quickly():
    begun = time.perf_counter()
    assert len(screen.line("e" + "\u0301" * 10_000_000)) < 10
    assert screen.line("x " * 25_000_000, 80).endswith("…")
    assert time.perf_counter() - begun < 1
