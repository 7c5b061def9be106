"""Turns: what was said, read back as requests and what followed them, the same wherever it is read."""

from __future__ import annotations

from typing import Any

import pytest

from hansard.errors import Closed, Conflict
from hansard.session import Session, View
from hansard.store import Store
from hansard.testing.chat import answer, assistant, call, item_answer, item_call, use, used, user, users
from hansard.testing.world import World
from hansard.views.turns import TurnItem, TurnView


def _said(item: TurnItem) -> Any:
    said = item.text if item.kind == "text" else f"{item.kind} {item.id or item.name}"
    return [said, *map(_said, item.items)] if item.items else said


def _outline(view: View, **which: Any) -> list[tuple[int | None, list[Any]]]:
    """The number of each turn, and what is in it, in short."""
    return [(turn.number, [_said(item) for item in turn.items]) for turn in view.turns(**which)]


def _lived(store: Store, id: str = "s") -> Session:
    """A session in which much has happened."""
    session = store.create(id, agent="coder", model="gpt-5")
    session.append({"role": "system", "content": "Be brief"})  # 1
    session.append(user("one"))  # 2
    session.append(call("a", "b"), usage={"input_tokens": 3})  # 3
    session.extend([answer("b"), answer("a"), assistant("1")])  # 4 5 6
    session.add_usage({"input_tokens": 4}, model="judge")  # 7
    session.event("x", event_id="e")  # 8
    session.append(user("two"))  # 9
    session.extend([use("c"), used("c"), item_call("d"), user("wait"), item_answer("d")])  # 10 to 14
    session.checkpoint([user("In short"), *session.history()[-1:]], summary="Much")  # 15
    session.append(user("three"))  # 16
    session.append(assistant("3"), usage={"input_tokens": 5}, model="mini")  # 17
    return session


_EVERYTHING = [
    (0, ["Be brief"]),
    (1, ["one", ["call a", "result a"], ["call b", "result b"], "1"]),
    (2, ["two", "Let me look.", ["call c", "result c"], "call d"]),
    (3, ["wait", "result d", ["change checkpoint", "In short"]]),
    (4, ["three", "3"]),
]


@pytest.mark.rule("H1", "H9")
def test_turns_are_everything_that_was_said_wherever_they_are_read(world: World) -> None:
    with _lived(world.store()) as session:
        assert _outline(session) == _EVERYTHING
        told = list(session.turns())
    for opened in (world.store, world.other, world.reopened):
        assert list(opened().read("s").turns()) == told


@pytest.mark.rule("H1", "H9")
def test_live_turns_are_what_the_model_sees(world: World) -> None:
    with _lived(world.store()) as session:
        assert _outline(session, live=True) == [(1, ["In short", "result d"]), (2, ["three", "3"])]
        first = next(session.turns(live=True))
        assert [(item.seq, item.inner) for item in first.items] == [(15, 0), (14, -1)]
    assert _outline(world.reopened().read("s"), live=True)[-1] == (2, ["three", "3"])


@pytest.mark.rule("H1")
def test_what_the_model_does_not_see_any_more_stays_in_the_turns(world: World) -> None:
    with world.store().create("s") as session:
        session.extend([user("one"), assistant("1"), user("two")])
        session.pop()
        session.truncate(1)
        session.rewind(1)
        session.clear()
        changes = ["change pop", "change truncate", "change rewind", "change clear"]
        assert _outline(session) == [(1, ["one", "1"]), (2, ["two", *changes])]
        assert _outline(session, live=True) == []


@pytest.mark.rule("H1")
def test_a_limit_takes_the_newest_turns_in_order(world: World) -> None:
    with _lived(world.store()) as session:
        whole = list(session.turns())
        for limit in (0, 1, 3, 4, 5, 10**30):
            found = list(session.turns(limit=limit))
            assert [turn.first for turn in found] == [turn.first for turn in whole][-limit or 5 :]
            assert [turn.usage for turn in found] == [turn.usage for turn in whole][-limit or 5 :]
        assert [turn.number for turn in session.turns(limit=2)] == [None, None]
        assert list(session.turns(limit=5)) == whole
        assert [turn.number for turn in session.turns(live=True, limit=1)] == [2]
        assert list(session.turns(live=True, limit=0)) == []
        for live in (True, False):
            with pytest.raises(ValueError, match="limit"):
                session.turns(live=live, limit=-1)


@pytest.mark.rule("H1")
def test_turns_know_their_records_and_times(world: World) -> None:
    with _lived(world.store()) as session:
        for turn in session.turns():
            records = list(session.records(after=turn.first - 1, before=turn.last + 1))
            spoken = [record for record in records if record.kind == "message"]
            assert (turn.began, turn.ended) == (spoken[0].when, spoken[-1].when)
            places = {one.seq for item in turn.items for one in (item, *item.items)}
            assert places == {record.seq for record in records if record.kind in ("message", "history")}


@pytest.mark.rule("E6", "H3")
def test_the_usage_of_all_turns_is_that_of_the_session(world: World) -> None:
    with _lived(world.store()) as session:
        turns = list(session.turns())
        assert [turn.usage.input_tokens for turn in turns] == [0, 7, 0, 0, 5]
        assert [turn.models for turn in turns] == [(), ("gpt-5",), ("gpt-5",), (), ("mini",)]
        assert sum(turn.usage.calls for turn in turns) == session.usage().calls == 3
        assert set(turns[1].usage.models) == {"gpt-5", "judge"}


@pytest.mark.rule("W8")
def test_what_makes_a_session_worth_listing_opens_a_turn(world: World) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    inputs = [user("text"), {"role": "user", "content": [image]}, {"weird": 1}]
    others = [user(" "), used("a"), assistant("hi"), {"role": "system", "content": "Be brief"}]
    store = world.store()
    for n, payload in enumerate([*inputs, *others]):
        with store.create(f"s{n}", eager=True) as session:
            session.append(payload)
            [turn] = session.turns()
            assert session.head.has_user_input == bool(turn.number) == bool(turn.request) == (n < len(inputs))


@pytest.mark.rule("H7")
def test_a_fork_has_the_turns_that_the_model_saw_and_costs_nothing(world: World) -> None:
    store = world.store()
    with _lived(store) as session, store.fork("s", id="f") as fork:
        assert _outline(fork) == _outline(session, live=True)
        assert [turn.usage.calls for turn in fork.turns()] == [0, 0]
        last = list(session.turns())[-1]
        assert (last.began, last.models) == (list(fork.turns())[-1].began, list(fork.turns())[-1].models)


@pytest.mark.rule("H8")
def test_turns_tell_what_vacuum_took_out_and_still_cost_the_same(world: World) -> None:
    store = world.store()
    with _lived(store) as session:
        usage, seen = session.usage(), _outline(session, live=True)
    store.vacuum("s", drop_history=True)
    view = world.reopened().read("s")
    turns = list(view.turns())
    taken = [item.data for turn in turns for item in turn.items if item.kind == "gone"]
    assert sum(kinds.get("message", 0) for kinds in taken) == 11
    assert sum(turn.usage.input_tokens for turn in turns) == usage.input_tokens
    assert _outline(view, live=True) == seen


@pytest.mark.rule("H8")
def test_live_turns_that_are_vacuumed_meanwhile_never_pass_for_whole(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(users(*"abcd"))
        view = store.read("s")
        session.clear()
    store.vacuum("s", drop_history=True)
    with pytest.raises(Conflict):
        list(view.turns(live=True))


@pytest.mark.rule("H1")
def test_a_session_of_which_nothing_is_written_has_no_turns(world: World) -> None:
    session = world.store().create("s")
    assert list(session.turns()) == list(session.turns(live=True)) == list(session.turns(limit=3)) == []
    session.close()
    with pytest.raises(Closed):
        session.turns()


@pytest.mark.rule("H1")
def test_turns_come_one_by_one_as_of_the_call(world: World) -> None:
    with world.store().create("s") as session:
        session.extend(users(*map(str, range(100))))
        turns = session.turns()
        first: TurnView = next(turns)
        session.append(user("later"))
        assert first.number == 1
        assert sum(1 for _ in turns) == 99
