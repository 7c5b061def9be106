"""`hansard rename`, `label`, `pin`, `fork` and `locks`."""

from __future__ import annotations

import os

import pytest
from rich.cells import cell_len


def test_rename_gives_a_title_that_stays(run, store, begin):
    id = begin("Fix CI")
    assert run("rename", id, "The", "pipeline").stdout == "The pipeline\n"
    store.append(id, {"role": "user", "content": "Something else"})
    assert store.head(id).title == "The pipeline"


@pytest.mark.parametrize("args", [[], ["x"], ["x", " "], ["--id=x"], ["", "title"], ["x", "y", "--id=x"]])
def test_rename_needs_a_session_and_a_title(run, begin, args):
    begin("one", id="x")
    code = run("rename", *args).exit_code
    assert code == (2 if args != ["x", "y", "--id=x"] else 0)  # with an id, all else is the title


def test_labels_are_put_on_and_taken_off(run, store, begin):
    id = begin("one", labels=["draft", "old"])
    done = run("label", id, "+review", "-draft", "plain", "--add=+1", "--remove", "old")
    assert (done.exit_code, done.stdout) == (0, "+1\nplain\nreview\n")
    assert store.head(id).labels == ["+1", "plain", "review"]


def test_label_alone_shows_them_and_changes_nothing(run, store, begin):
    id = begin("one", labels=["a"])
    seq = store.head(id).seq
    assert run("label", id).stdout == "a\n"
    assert store.head(id).seq == seq


def test_a_label_may_begin_like_an_option(run, store, begin):
    id = begin("one", labels=["hot", "yes", "f"])
    assert run("label", id, "-hot", "-yes", "-f").exit_code == 0
    assert store.head(id).labels == []
    assert "Examples:" in run("label", "-h").stdout
    assert run("label", "--id", id, "--add", "-x", "--", "-y").exit_code == 0
    assert store.head(id).labels == ["-x", "-y"]
    assert run("label", id, "+").exit_code == 2


def test_pin_and_unpin(run, store, begin):
    id = begin("one")
    assert run("pin", id).stdout == "pinned\n"
    assert store.head(id).pinned
    assert run("pin", id, "--off").stdout == "not pinned\n"
    assert not store.head(id).pinned
    assert run("pin").exit_code == 2


def test_they_work_beside_whoever_has_the_session_open(process, store):
    with store.create("work") as session:
        session.append({"role": "user", "content": "one"})
        for command in (["rename", "work", "Title"], ["label", "work", "+x"], ["pin", "work"]):
            assert process(*command).returncode == 0
        session.refresh()
        head = session.head
    assert (head.title, head.labels, head.pinned) == ("Title", ["x"], True)


def test_fork_prints_the_id_of_a_session_with_that_history(run, store, begin):
    id = begin("one", "two", "three", agent="coder")
    fork = run("fork", id, "--at", "2", "--title", "Otherwise", "--label", "x").stdout.strip()
    head = store.head(fork)
    assert (head.parent, head.forked_at, head.title, head.agent) == (id, 2, "Otherwise", "coder")
    assert head.labels == ["x"]
    assert [message["content"] for message in store.read(fork).history()] == ["one", "two"]
    assert store.active() == fork
    assert not store.locks()
    assert run("fork", id, "--as", "mine").stdout == "mine\n"


def test_a_fork_at_no_record_is_refused(run, begin):
    id = begin("one")
    done = run("fork", id, "--at", "99")
    assert done.exit_code == 1
    assert f"session {id!r} has no record 99; its last is 1" in done.stderr
    assert run("fork", id, "--at", "x").exit_code == 2
    assert run("fork").exit_code == 2
    assert run("fork", id, "--as", id).exit_code == 1


def test_locks_say_who_is_at_work(run, store, printed, begin):
    begin("one")
    assert run("locks").output == "No session is open.\n"
    with store.create("work", title="Fix CI") as session:
        session.append({"role": "user", "content": "one"})
        head, row = run("locks").stdout.splitlines()
        assert head.split()[:4] == ["ID", "TITLE", "PID", "COMMAND"]
        assert row.split()[:4] == ["work", "Fix", "CI", str(os.getpid())]
        (found,) = printed("locks")["locks"]
        assert (found["session"], found["title"], found["pid"]) == ("work", "Fix CI", os.getpid())
    assert printed("locks")["locks"] == []


def test_locks_of_a_store_that_nobody_has_begun(run, tmp_path):
    assert run("locks").exit_code == 0
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_the_table_of_locks_fits(run, store, columns):
    with store.create("telegram:4711/" + "ü" * 40, title="修复登录页面的错误" * 4, eager=True):
        lines = run("locks", env={"COLUMNS": str(columns)}).stdout.splitlines()
    assert len(lines) == 2
    assert max(map(cell_len, lines)) <= columns
