"""`hansard search`."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from rich.cells import cell_len


def test_it_finds_what_was_said_and_where(begin, run):
    id = begin("Plan it", "Where is the\n needle in the hay?", agent="coder")
    begin("nothing of the kind")
    first, second = run("search", "needle", "hay").stdout.splitlines()
    assert first.startswith(f"{id}  Plan it  user #2, just now")
    assert second == "  Where is the needle in the hay?"


def test_json_has_every_field_of_a_hit(begin, printed):
    id = begin("a needle")
    found = printed("search", "NEEDLE")
    assert found["query"] == "NEEDLE"
    assert found["next"] is None
    (hit,) = found["hits"]
    assert list(hit) == ["session", "seq", "role", "at", "title", "snippet", "marks", "score", "live"]
    assert (hit["session"], hit["seq"], hit["snippet"], hit["marks"]) == (id, 1, "a needle", [[2, 8]])


def test_words_of_a_query_may_be_quoted_for_the_shell(begin, printed, run):
    begin("the red button", id="a")
    begin("the button is red", id="b")
    assert {hit["session"] for hit in printed("search", "red", "button")["hits"]} == {"a", "b"}
    assert [hit["session"] for hit in printed("search", '"red button"')["hits"]] == ["a"]
    assert [hit["session"] for hit in printed("search", "button -is")["hits"]] == ["a"]
    assert run("search", "--", "button", "-is").stdout.startswith("a ")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--agent", "coder"], ["a"]),
        (["--session", "b"], ["b", "b"]),
        (["--role", "assistant"], ["b"]),
        (["--since", "1h"], ["a", "b", "b"]),
        (["--until", "1h"], []),
        (["--no-tools"], ["a", "b"]),
        (["--order", "newest", "--limit", "1"], ["b"]),
    ],
)
def test_it_is_narrowed(begin, printed, options, found):
    begin("a needle", id="a", agent="coder")
    answer = {"role": "tool", "tool_call_id": "t", "content": "a needle"}
    begin("hay", {"role": "assistant", "content": "a needle"}, answer, id="b", agent="writer")
    assert sorted(hit["session"] for hit in printed("search", "needle", *options)["hits"]) == found


def test_what_is_not_live_any_more_says_so(begin, run, store):
    begin("a needle", id="a")
    with store.open("a") as session:
        session.clear()
    assert "user #1, just now, no longer live" in run("search", "needle").stdout


def test_nothing_found_is_said_beside_the_output(begin, run):
    done = run("search", "needle")
    assert (done.exit_code, done.stdout) == (0, "")
    begin("hay")
    done = run("search", "needle", "\x1b[2J")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "Nothing found for needle ␛[2J\n"


def test_a_page_names_the_next(begin, run):
    begin(*(f"needle {n}" for n in range(5)))
    done = run("search", "needle", "--order", "newest", "--limit", "2")
    seen = done.stdout.splitlines()[1::2]
    while "There is more:" in done.stderr:
        command = shlex.split(done.stderr.split("There is more:")[1])
        assert command[:2] == ["hansard", "search"]
        done = run(*command[1:])
        seen += done.stdout.splitlines()[1::2]
    assert seen == [f"  needle {n}" for n in (4, 3, 2, 1, 0)]


def test_a_cursor_of_another_search_is_refused(begin, run):
    begin("needle one", "needle two")
    cursor = json.loads(run("search", "needle", "--limit", "1", "--json").stdout)["next"]
    done = run("search", "one", "--after", cursor)
    assert done.exit_code == 2
    assert "no cursor of this search" in done.stderr


def test_a_query_is_needed(run):
    assert run("search").exit_code == 2
    assert run("search", "").exit_code == 0


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_it_fits_the_terminal_and_paints_what_matches_there_only(begin, terminal, run, columns):
    begin("Plan the migration", "x" * 30 + " the migration of 数据库 and all " + "and more " * 60)
    shown = terminal("search", "migration", columns=columns)
    assert shown.code == 0
    assert "\x1b[31m\x1b[1mmigration\x1b[0m" in shown.text or columns == 20
    for text in re.sub(r"\x1b\[\d+m", "", shown.text).splitlines():
        assert cell_len(text) <= columns
    assert "\x1b" not in run("search", "migration").stdout


def test_nothing_reaches_the_terminal_that_it_would_interpret(begin, terminal):
    begin("needle \x1b[2J\x1b]0;title\x07 \u202egnp.exe \x00 end", title="\x1b[31mred\r")
    shown = terminal("search", "needle")
    assert "\x1b[2J" not in shown.text
    assert "\x1b]0;" not in shown.text
    assert "\u202e" not in shown.text
    assert "␛[2J" in shown.text
