"""H5: saving a whole list writes only what differs."""

from __future__ import annotations

from typing import Any

import pytest

from hansard.session import Session
from hansard.testing.chat import answer, assistant, call, count, size, state, texts, user, users
from hansard.testing.world import World


def _long(n: int) -> list[Any]:
    return [user(f"{i}: " + "All work and no play. " * 20) for i in range(n)]


def _saved(session: Session, wanted: list[Any]) -> int:
    """Saves a list in one write, looks at it, and says how many bytes of JSON that took."""
    before, last = size(session), session.seq
    session.set_history(wanted)
    assert session.history() == wanted
    new = list(session.records(after=last))
    assert len(new) == 1 or {record.batch for record in new} == {(last + 1, len(new))}
    return size(session) - before


@pytest.mark.rule("H5")
def test_saving_what_is_there_writes_nothing(world: World) -> None:
    wanted = [*users("a", "b"), call("1"), answer("1"), {"role": "user", "content": [{"x": 1.0, "y": None}]}]
    with world.store().create("s") as session:
        session.set_history(wanted)
        for saved in (wanted, session.history(), tuple(wanted), iter(wanted)):
            before = state(session)
            assert session.set_history(saved) is None
            assert state(session) == before
        session.checkpoint([user("S"), *wanted[1:]])
        before = state(session)
        assert session.set_history([user("S"), *wanted[1:]]) is None
        assert state(session) == before
    with world.reopened().open("s") as session:
        assert session.set_history([user("S"), *wanted[1:]]) is None
        assert state(session) == before


@pytest.mark.rule("H5")
def test_the_order_of_members_makes_no_difference_and_everything_else_does(world: World) -> None:
    with world.store().create("s") as session:
        session.set_history([{"role": "user", "content": "a", "n": 1}])
        assert session.set_history([{"n": 1, "content": "a", "role": "user"}]) is None
        for other in (1.5, True, "1", None, [1], 2**64):
            assert session.set_history([{"role": "user", "content": "a", "n": other}]) is not None
            assert repr(session.history()[0]["n"]) == repr(other)


@pytest.mark.rule("H5")
def test_saving_a_longer_list_writes_the_new_messages(world: World) -> None:
    with world.store().create("s") as session:
        session.set_history(users("a", "b"))
        session.set_history(users("a", "b", "c"))
        session.set_history(users("a", "b", "c", "d", "e"))
        assert texts(session.history()) == ["a", "b", "c", "d", "e"]
        records = list(session.records())
        assert [record.kind for record in records] == ["session", *["message"] * 5]
        assert [record.batch for record in records[1:]] == [(1, 2), (1, 2), None, (4, 2), (4, 2)]
        assert session.head.messages == 5


@pytest.mark.rule("H5")
def test_saving_into_a_session_that_is_not_written_yet_begins_it(world: World) -> None:
    store = world.store()
    with store.create("s", agent="coder") as session:
        assert session.set_history([]) is None
        assert store.list(empty=True) == []
        session.set_history(users("a", "b"))
        assert [record.kind for record in session.records()] == ["session", "message", "message"]
        assert store.head("s").agent == "coder"


@pytest.mark.rule("H5")
def test_saving_the_whole_list_after_every_turn_costs_no_more_than_appending(world: World) -> None:
    messages = _long(120)
    with world.store().create("s") as session:
        for i in range(0, len(messages), 2):
            session.set_history(messages[: i + 2])
        assert session.history() == messages
        assert count(session) == 1 + len(messages)
        saved = size(session)
    with world.store().create("t") as session:
        for i in range(0, len(messages), 2):
            session.extend(messages[i : i + 2])
        assert abs(saved - size(session)) < 100


@pytest.mark.rule("H5")
@pytest.mark.parametrize("at", [0, 1, 100, 198, 199])
def test_one_message_that_differs_costs_one_message(world: World, at: int) -> None:
    messages = _long(200)
    with world.store().create("s") as session:
        session.extend(messages)
        edited = [*messages[:at], user("edited"), *messages[at + 1 :]]
        assert _saved(session, edited) < 1_000
        again = [*edited[: at // 2], user("and again"), *edited[at // 2 :]]
        assert _saved(session, again) < 1_000
        assert _saved(session, messages) < 1_000  # back again: hidden messages may be written anew, once
    assert world.reopened().read("s").history() == messages


@pytest.mark.rule("H5")
@pytest.mark.parametrize(
    "pick",
    [
        lambda m: m[:-1],
        lambda m: m[1:],
        lambda m: m[:80] + m[120:],
        lambda m: m[150:] + m[:150],
        lambda m: [user("S"), *m[-10:]],
        lambda m: [m[0], user("S"), *m[-10:], user("end")],
        lambda m: m[::100],
        lambda m: [],
        lambda m: m[:1],
        lambda m: [*m[100:], user("x"), *m[:10]],
    ],
    ids=[
        "no last",
        "no first",
        "no middle",
        "turned",
        "compacted",
        "first and last",
        "few",
        "none",
        "one",
        "mixed",
    ],
)
def test_what_stays_is_named_and_not_written_again(world: World, pick: Any) -> None:
    messages = _long(200)
    with world.store().create("s") as session:
        session.extend(messages)
        assert _saved(session, pick(messages)) < 1_000
        session.append(user("later"))
        assert session.history() == [*pick(messages), user("later")]
    assert world.reopened().read("s").history() == [*pick(messages), user("later")]


@pytest.mark.rule("H5")
def test_a_list_that_was_compacted_grows_by_what_is_new(world: World) -> None:
    messages = _long(100)
    with world.store().create("s") as session:
        session.extend(messages)
        kept = [user("So far"), *messages[-4:]]
        session.set_history(kept)
        for i in range(20):
            kept = [*kept, user(f"new {i}")]
            assert _saved(session, kept) < 400
        assert [r.kind for r in session.records(kinds="history")] == ["history"]


@pytest.mark.rule("H5")
def test_equal_messages_are_as_many_as_they_were(world: World) -> None:
    with world.store().create("s") as session:
        for n in (1, 2, 3, 5, 4, 1, 3):
            wanted = users(*["continue"] * n)
            session.set_history(wanted)
            assert session.history() == wanted
        session.set_history([*wanted, assistant("x"), *wanted])
        assert texts(session.history()) == ["continue"] * 3 + ["x"] + ["continue"] * 3
        session.set_history([assistant("x"), *wanted, assistant("x")])
        assert texts(session.history()) == ["x", *["continue"] * 3, "x"]
    assert texts(world.reopened().read("s").history()) == ["x", *["continue"] * 3, "x"]


@pytest.mark.rule("H5")
def test_saving_an_empty_list_leaves_an_empty_history_and_the_summary(world: World) -> None:
    with world.store().create("s") as session:
        session.extend(users("a", "b"))
        session.set_summary("So far")
        assert session.set_history([]) is not None
        assert session.history() == []
        assert session.summary() == "So far"
        before = state(session)
        assert session.set_history([]) is None
        assert state(session) == before
        assert texts(r.data for r in session.records(kinds="message")) == ["a", "b"]


@pytest.mark.rule("H5", "H2")
def test_saving_a_longer_list_loses_nothing_that_others_added(world: World) -> None:
    with world.store().create("s") as session:
        session.extend(users("a", "b"))
        session.history()
        world.other().append("s", user("x"))
        session.set_history(users("a", "b", "c", "d"))
        found = texts(session.history())
        assert sorted(found) == ["a", "b", "c", "d", "x"]
        assert [text for text in found if text != "x"] == ["a", "b", "c", "d"]
        assert found == texts(world.other().read("s").history())


@pytest.mark.rule("H5", "H4")
def test_a_list_that_was_truncated_and_saved_again_comes_back(world: World) -> None:
    messages = _long(20)
    with world.store().create("s") as session:
        session.set_history(messages)
        session.truncate(5)
        assert session.history() == messages[15:]
        session.set_history(messages[15:])
        assert count(session) == 22
        session.set_history(messages)
        assert session.history() == messages
