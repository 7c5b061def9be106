"""`hansard ls`, and `hansard` alone."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.cells import cell_len

import hansard


def titles(found):
    return [head["title"] for head in found["sessions"]]


def test_it_lists_what_is_there_the_newest_first(begin, run):
    begin("Fix CI", agent="coder", model="gpt-5")
    begin("Write docs", agent="writer")
    head, first, second = run("ls").stdout.splitlines()
    assert head.split() == ["ID", "TITLE", "AGENT", "MODEL", "MSGS", "ACTIVE"]
    assert "Write docs" in first
    assert "writer" in first
    assert second.split()[1:] == ["Fix", "CI", "coder", "gpt-5", "1", "just", "now"]


def test_a_column_in_which_nothing_stands_is_left_out(begin, run):
    begin("Fix CI")
    assert run("ls").stdout.splitlines()[0].split() == ["ID", "TITLE", "MSGS", "ACTIVE"]


def test_json_has_every_field_of_a_head_and_exact_times(begin, printed, tmp_path):
    id = begin("Fix CI", agent="coder", meta={"n": 2**70})
    found = printed("ls")
    assert found["store"] == f"file:{(tmp_path / 'store').resolve()}"
    assert found["next"] is None
    (head,) = found["sessions"]
    assert (
        list(head)
        == (
            "id seq title preview agent model vendor endpoint workspace status labels meta parent path "
            "pinned archived created_at updated_at ended_at messages turns usage token_count summary "
            "has_user_input"
        ).split()
    )
    assert head["id"] == id
    assert head["meta"] == {"n": 2**70}
    assert head["parent"] is None
    assert head["usage"]["input_tokens"] == 0
    assert datetime.fromisoformat(head["updated_at"]).tzinfo is not None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--agent", "coder"], ["one"]),
        (["--model", "gpt-5"], ["two"]),
        (["--workspace", "here"], ["three"]),
        (["--status", "done"], ["four"]),
        (["--label", "a", "--label", "b"], ["five"]),
        (["--agent", "nobody"], []),
    ],
    ids=lambda value: " ".join(value),
)
def test_filters_choose(begin, store, printed, options, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begin("one", agent="coder")
    begin("two", model="gpt-5")
    begin("three", workspace=tmp_path / "here")
    with store.open(begin("four")) as session:
        session.update(status="done")
    begin("five", labels=["a", "b", "c"])
    begin("six", labels=["a"])
    assert titles(printed("ls", *options)) == expected


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("30m", ["now"]),
        ("2h", ["now", "hour"]),
        ("3d", ["now", "hour", "day"]),
        ("2w", ["now", "hour", "day", "week"]),
        ("today", ["now"]),
        ("2026-05-01T12:00:00Z", ["now", "hour", "day", "week", "spring"]),
        ("2026-05-01T14:00:00+02:00", ["now", "hour", "day", "week", "spring"]),
    ],
)
def test_since_takes_spans_and_dates(printed, since, expected):
    noon = datetime.now().astimezone().replace(hour=12, minute=0, second=0, microsecond=0)
    now = datetime.now(UTC)
    ages = {
        "week": timedelta(days=8),
        "day": timedelta(days=2),
        "hour": timedelta(hours=1),
        "now": timedelta(0),
    }
    moments = {"year": datetime(2026, 4, 30, tzinfo=UTC), "spring": datetime(2026, 5, 1, 12, tzinfo=UTC)}
    moments |= {name: now - age for name, age in ages.items()}
    if since == "today":
        moments["hour"] = noon - timedelta(days=1)
    for name, moment in moments.items():
        with hansard.open(clock=lambda moment=moment: moment) as store, store.create() as session:
            session.append({"role": "user", "content": name})
    assert titles(printed("ls", "--since", since)) == expected


def test_all_shows_also_those_in_which_nobody_spoke(store, begin, printed):
    begin("Hello")
    store.append("quiet", {"role": "assistant", "content": "Anybody there?"}, create=True)
    assert len(titles(printed("ls"))) == 1
    assert len(titles(printed("ls", "--all"))) == 2


def test_order_created_goes_by_the_beginning(begin, store, printed):
    begin("first", id="first")
    begin("second")
    store.append("first", {"role": "assistant", "content": "more"})
    assert titles(printed("ls")) == ["first", "second"]
    assert titles(printed("ls", "--order", "created")) == ["second", "first"]


def test_a_page_says_how_to_see_the_next_one(begin, run):
    for n in range(5):
        begin(f"number {n}", agent="coder")
    seen, args = [], ["ls", "--agent", "coder", "--limit", "2"]
    for _ in range(3):
        done = run(*args)
        seen += [line.split()[2] for line in done.stdout.splitlines()[1:]]
        hint = done.stderr.partition("There are more:")[2]
        args = shlex.split(hint)[1:]
    assert seen == ["4", "3", "2", "1", "0"]
    assert not args


def test_the_next_page_is_of_the_same_store(begin, run, tmp_path):
    begin("one")
    begin("two")
    store = str(tmp_path / "store")
    for command in (["--store", store, "ls", "--limit", "1"], ["ls", "--store", store, "--limit", "1"]):
        assert f"--store={store}" in run(*command).stderr


def test_a_cursor_in_json_leads_on(begin, printed):
    begin("one")
    begin("two")
    page = printed("ls", "--limit", "1")
    assert titles(page) == ["two"]
    assert titles(printed("ls", "--after", page["next"])) == ["one"]


def test_a_limit_beyond_all_numbers_is_none(begin, printed):
    begin("one")
    assert titles(printed("ls", "--limit", "9" * 30)) == ["one"]


def test_the_next_page_is_named_without_what_a_terminal_would_interpret(begin, run):
    begin("one", agent="a\u202eb")
    begin("two", agent="a\u202eb")
    assert "$'--agent=a\\u202eb'" in run("ls", "--agent", "a\u202eb", "--limit", "1").stderr


@pytest.mark.parametrize("cursor", ["nonsense", "-", "\udcff", "W1tb" * 25_000], ids=range(4))
def test_a_wrong_cursor_is_wrong_usage(begin, run, cursor):
    begin("one")
    done = run("ls", f"--after={cursor}")
    assert done.exit_code == 2
    assert f"--after: {cursor!r} is no cursor" in done.stderr


@pytest.mark.parametrize("since", ["soon", "", "99999999999w", "2026-13-01"])
def test_a_wrong_time_is_wrong_usage(run, since):
    done = run("ls", "--since", since)
    assert done.exit_code == 2
    assert "is no time" in done.stderr


def test_nothing_found_is_said_and_is_no_failure(begin, run):
    begin("one")
    done = run("ls", "--agent", "nobody")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "No session matches.\n")


def test_before_the_first_session_it_says_so_and_makes_nothing(run, printed, tmp_path):
    done = run("ls")
    assert done.exit_code == 0
    assert "No sessions yet in" in done.stderr
    assert printed("ls")["sessions"] == []
    assert not (tmp_path / "store").exists()


def test_a_store_that_was_named_must_be_there(run, tmp_path):
    for command in ([], ["ls"]):
        done = run(*command, "--store", tmp_path / "elsewhere")
        assert done.exit_code == 1
        assert f"there is no store at {tmp_path / 'elsewhere'}" in done.stderr


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120, 200])
def test_a_table_fits_the_terminal(begin, run, columns):
    begin("Build a login page " * 3, agent="reviewer-of-everything", model="claude-opus-4-5-20260101")
    begin("修复登录页面的错误，谢谢你帮我看看这个问题到底出在哪里", id="telegram:4711/" + "ü" * 40)
    begin("👩‍👩‍👧‍👦 family", agent="coder")
    lines = run("ls", env={"COLUMNS": str(columns)}).stdout.splitlines()
    assert len(lines) == 4
    assert max(map(cell_len, lines)) <= columns
    assert "TITLE" in lines[0]
    assert "Build a" in "".join(lines)


def test_the_short_id_of_a_narrow_table_names_the_session(begin, run):
    id = begin("Fix CI")
    short = run("ls", env={"COLUMNS": "40"}).stdout.splitlines()[1].split()[0]
    assert len(short) < len(id)
    assert run("show", short).exit_code == 0


def test_in_a_pipe_nothing_is_cut(begin, run):
    id = begin("word " * 12, agent="reviewer-of-everything-there-is", id="x" * 36)
    (row,) = run("ls").stdout.splitlines()[1:]
    assert id in row
    assert "reviewer-of-everything-there-is" in row


def test_alone_it_shows_the_newest_and_what_to_do_next(begin, run):
    ids = [begin(f"number {n}") for n in range(12)]
    text = run().stdout
    assert "number 11" in text
    assert "number 0" not in text
    assert re.search(f"hansard show {ids[-1]} +read the newest", text)
    assert "hansard ls" in text


@pytest.mark.parametrize("id", ["-rf", "@home", "@active", "two words", "a\u202eb", "it's \u200b\\"])
def test_alone_it_names_the_newest_in_a_form_that_works(begin, run, id):
    begin("Fix CI", id=id)
    (hint,) = [line for line in run().stdout.splitlines() if "read the newest" in line]
    command = hint.partition("  read the newest")[0].replace("hansard", "printf '%s\\0'", 1)
    typed = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    assert "\u202e" not in hint
    done = run(*typed.split("\0")[:-1], "--json")
    assert json.loads(done.stdout)["head"]["id"] == id


def test_alone_in_little_room_it_names_the_newest_by_a_prefix_of_just_one(begin, run):
    for n in range(10):
        begin(f"number {n}", id=f"sess_{n:016}")
    (hint,) = [line for line in run(env={"COLUMNS": "40"}).stdout.splitlines() if "hansard show" in line]
    assert run("show", hint.split()[2]).stdout.startswith("number 9\n")


def test_alone_it_welcomes_on_the_very_first_run(run, tmp_path, monkeypatch):
    monkeypatch.delenv("HANSARD_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    done = run()
    assert done.exit_code == 0
    assert str(Path(hansard.default_path())) in done.stdout
    assert "hansard demo" in done.stdout
    assert not (tmp_path / "data").exists()


def test_alone_it_has_json_too(begin, printed):
    begin("one")
    found = printed()
    assert titles(found) == ["one"]
    assert found["store"].startswith("file:")


def test_options_before_the_command_count(begin, run, printed, tmp_path):
    begin("one")
    assert titles(printed("--store", tmp_path / "store", "ls")) == ["one"]
    assert run("--json", "ls").stdout.startswith("{")
