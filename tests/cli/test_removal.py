"""`hansard rm`, `cleanup` and `vacuum`: what goes for good, and who is asked before."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

import hansard
from hansard.errors import StoreUnavailable


def left(store):
    return {head.id for head in store.list(limit=None, empty=True)}


@pytest.fixture
def aged(tmp_path):
    """Sessions that were written so many days ago."""

    def aged(*days: int) -> None:
        for age in days:
            moment = datetime.now(UTC) - timedelta(days=age)
            with hansard.open(clock=lambda moment=moment: moment) as store:
                store.append(f"day-{age}", {"role": "user", "content": f"{age} days ago"}, create=True)

    return aged


def test_rm_deletes_with_yes(run, store, begin):
    begin("one", id="a")
    begin("two", id="b")
    done = run("rm", "a", "--yes")
    assert (done.exit_code, done.stdout) == (0, "Deleted a  one\n")
    assert left(store) == {"b"}


@pytest.mark.parametrize(
    ("typed", "gone"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("\x04", False)]
)
def test_rm_asks_at_a_terminal(terminal, store, begin, typed, gone):
    begin("Fix CI", id="a")
    shown = terminal("rm", "a", typed=typed, NO_COLOR="1")
    assert re.search("^a +Fix CI +1  just now$", shown.text, re.MULTILINE)
    assert "Delete it for good? [y/N]" in shown.text
    assert shown.code == (0 if gone else 1)
    assert left(store) == (set() if gone else {"a"})


def test_rm_says_who_has_it_open(terminal, store):
    with store.create("a") as session:
        session.append({"role": "user", "content": "one"})
        shown = terminal("rm", "a", typed="y\n", NO_COLOR="1", columns=200)
        assert "a is open by process" in shown.text
        assert shown.code == 0
        with pytest.raises(hansard.SessionNotFound):
            session.append({"role": "user", "content": "two"})


def test_an_interrupt_deletes_nothing(terminal, store, begin):
    begin("one", id="a")
    assert terminal("rm", "a", typed="\x03").code == 130
    assert left(store) == {"a"}


@pytest.mark.parametrize(
    "command",
    [["rm", "a"], ["cleanup", "--older-than", "0s"], ["vacuum", "a", "--drop-history"]],
    ids=" ".join,
)
def test_where_nobody_can_be_asked_nothing_is_done(process, store, begin, command):
    begin("one", id="a")
    done = process(*command, stdin=-3)
    assert done.returncode == 1
    assert "there is no terminal to ask at; add --yes" in done.stderr
    assert done.stdout == ""
    assert left(store) == {"a"}


def test_rm_of_several_deletes_all_or_none(run, store, begin):
    for id in ("a", "b", "sess_1", "sess_2"):
        begin("one", id=id)
    assert run("rm", "a", "nope", "b", "--yes").exit_code == 1
    assert run("rm", "a", "sess_", "--yes").exit_code == 1
    assert run("rm", "a", "", "--yes").exit_code == 2
    assert run("rm", "--yes").exit_code == 2
    assert len(left(store)) == 4
    assert run("rm", "a", "a", "b", "--yes").exit_code == 0
    assert left(store) == {"sess_1", "sess_2"}


def test_rm_takes_ids_that_look_like_something_else(run, store, begin):
    for id in ("@active", "-rf"):
        begin("one", id=id)
    assert run("rm", "--id=@active", "--id=-rf", "--yes").exit_code == 0
    assert left(store) == set()
    assert run("rm", "--id=@active", "--yes").exit_code == 1


def test_rm_takes_what_cannot_be_read(run, store, begin, tmp_path):
    begin("one", id="a")
    path = tmp_path / "store" / "sessions" / "a.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":9'))
    assert run("show", "a").exit_code != 0
    assert run("rm", "a", "--yes").exit_code == 0
    assert not path.exists()


def test_cleanup_says_what_would_go(run, store, aged, printed):
    aged(100, 50, 1)
    done = run("cleanup", "--older-than", "30d", "--dry-run")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == ["day-100", "day-50"]
    assert "2 sessions would go (" in done.stdout
    assert len(left(store)) == 3
    assert printed("cleanup", "--older-than", "30d", "--dry-run")["ids"] == ["day-100", "day-50"]


@pytest.mark.parametrize(
    ("criteria", "kept"),
    [
        (["--older-than", "30d"], {"day-1"}),
        (["--older-than", "30d", "--keep-last", "2"], {"day-1", "day-50"}),
        (["--keep-last", "0"], set()),
        (["--max-bytes", "0"], set()),
        (["--max-bytes", "5GB"], {"day-1", "day-50", "day-100"}),
        (["--older-than", (datetime.now(UTC) - timedelta(days=70)).date().isoformat()], {"day-1", "day-50"}),
    ],
    ids=lambda value: " ".join(sorted(value) if isinstance(value, set) else value),
)
def test_cleanup_deletes_by_age_number_and_size(run, store, aged, criteria, kept):
    aged(100, 50, 1)
    done = run("cleanup", *criteria, "--yes")
    assert done.exit_code == 0
    assert left(store) == kept


def test_cleanup_asks_at_a_terminal(terminal, store, aged):
    aged(*range(1, 31))
    shown = terminal("cleanup", "--older-than", "2d", typed="n\n", lines=60)
    assert "and 9 more" in shown.text
    assert "Delete 29 sessions for good (" in shown.text
    assert shown.code == 1
    assert len(left(store)) == 30
    assert terminal("cleanup", "--older-than", "2d", typed="y\n").code == 0
    assert left(store) == {"day-1"}


def test_cleanup_that_finds_nothing_asks_nothing(process, aged):
    aged(1)
    done = process("cleanup", "--older-than", "30d")
    assert (done.returncode, done.stdout) == (0, "No session is to go.\n")


@pytest.mark.parametrize(
    "args",
    [[], ["--keep-last", "-1"], ["--max-bytes", "much"], ["--max-bytes", "5iB"], ["--older-than", "soon"]],
)
def test_cleanup_needs_to_know_what(run, begin, args):
    begin("one")
    assert run("cleanup", *args, "--yes").exit_code == 2


def test_what_could_not_be_deleted_is_told(run, store, aged, monkeypatch):
    def refuse(*_, **__):
        raise StoreUnavailable("the disk is g\x1bone")

    aged(3)
    monkeypatch.setattr("hansard.retention._take", refuse)
    done = run("cleanup", "--keep-last", "0", "--yes")
    assert done.exit_code == 1
    assert "day-3 stays: the disk is g␛one" in done.stderr


def test_vacuum_drops_what_nobody_sees_any_more(run, store, printed):
    with store.create("a") as session:
        session.extend([{"role": "user", "content": f"message {n} " * 50} for n in range(20)])
        session.checkpoint([{"role": "user", "content": "So far."}])
    assert run("vacuum", "a").stdout == "There is nothing to take out.\n"
    done = run("vacuum", "a", "--drop-history", "--yes")
    assert done.exit_code == 0
    assert done.stdout.startswith("20 records taken out (")
    assert printed("vacuum", "a", "--drop-history", "--yes")["count"] == 0
    assert run("vacuum").exit_code == 2


def test_vacuum_of_a_session_that_is_open_is_busy(process, store):
    with store.create("a", eager=True):
        done = process("vacuum", "a")
        assert done.returncode == 3
        assert "is open by process" in done.stderr
        assert "try again when it is closed" in done.stderr
