"""H1 to H4, H6 and H10: what the model sees, and the calls that change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from hansard import messages
from hansard.errors import Conflict, InvalidPayload, SessionNotFound
from hansard.session import Session
from hansard.store import Store
from hansard.testing.chat import (
    answer,
    assistant,
    call,
    count,
    item_answer,
    item_call,
    size,
    state,
    texts,
    use,
    used,
    user,
    users,
)
from hansard.testing.world import World


def _with(world: World, *said: Any, id: str = "s") -> Session:
    """A session in which these things were said, open. Texts are what a person says."""
    session = world.store().create(id)
    session.extend([user(one) if isinstance(one, str) else one for one in said])
    session.history()
    return session


def _long(world: World) -> Session:
    """A session whose history consists of parts of every kind, on several branches."""
    session = _with(world, *"abcdef")
    session.truncate(4)  # c d e f
    session.append(user("g"))
    session.checkpoint(
        [user("A"), user("B"), *session.history()[1:3], user("C")], summary="So far"
    )  # A B d e C
    session.rename("Title")
    session.extend(users("h", "i"))
    session.add_usage({"input_tokens": 1})
    session.pop()
    session.append({"x": 1}, kind="mine.own")
    session.append(user("j"))
    assert texts(session.history()) == ["A", "B", "d", "e", "C", "h", "j"]
    return session


def _say(store: Store, id: str, *said: str) -> None:
    for text in said:
        store.append(id, user(text))


# -- H1


@pytest.mark.rule("H1")
def test_the_history_is_what_was_said_and_the_records_are_everything(world: World) -> None:
    with _with(world, "a") as session:
        session.rename("Title")
        session.add_usage({"input_tokens": 1})
        session.append({"role": "user", "content": "not said"}, kind="mine.own")
        session.append(assistant("b"))
        session.set_summary("So far")
        assert session.history() == [user("a"), assistant("b")]
        assert session.history().seq == session.seq == 6
        assert [record.kind for record in session.records()] == [
            "session",
            "message",
            "meta",
            "usage",
            "mine.own",
            "message",
            "meta",
        ]


@pytest.mark.rule("H1")
def test_a_history_is_a_list_that_knows_its_place(world: World) -> None:
    with _with(world, "a", "b") as session:
        history = session.history()
        assert isinstance(history, list)
        assert (history.seq, history.token_count, history.summary) == (2, None, "")
        session.checkpoint([user("c")], token_count=12, summary="So far")
        session.append(user("d"))
        for view in (session, world.other().read("s")):
            history = view.history()
            assert (history.seq, history.token_count, history.summary) == (4, 12, "So far")
            limited = view.history(limit=1)
            assert (limited.seq, limited.token_count, limited.summary) == (4, 12, "So far")


@pytest.mark.rule("H1")
def test_a_limit_gives_the_newest_in_order(world: World) -> None:
    with _long(world) as session:
        whole = session.history()
        for view in (session, world.store().read("s"), world.other().read("s")):
            for limit in range(len(whole) + 3):
                assert view.history(limit=limit) == whole[max(0, len(whole) - limit) :]
                assert view.history(limit) == view.history(limit, repair=True)
            assert view.history(limit=None) == whole
            assert view.history(limit=10**9) == whole


@pytest.mark.rule("H1")
def test_a_limit_of_zero_gives_none_and_a_negative_one_is_an_error(world: World) -> None:
    with _long(world) as session, world.store().create("new") as new:
        for view in (session, world.other().read("s"), new):
            assert view.history(limit=0) == []
            assert list(view.records(limit=0)) == []
            for limit in (-1, -100):
                attempts: tuple[Callable[[], Any], ...] = (
                    partial(view.history, limit=limit),
                    partial(view.history, limit=limit, repair=True),
                    partial(view.records, limit=limit),
                )
                for attempt in attempts:
                    with pytest.raises(ValueError):
                        attempt()


@pytest.mark.rule("H1")
def test_the_history_of_a_session_that_is_not_there_is_an_error_and_creates_nothing(world: World) -> None:
    store = world.store()
    with pytest.raises(SessionNotFound):
        store.read("s")
    assert store.list(empty=True) == []


@pytest.mark.rule("H1")
def test_a_view_stays_at_its_moment_until_it_is_refreshed(world: World) -> None:
    with _with(world, "a", "b") as session:
        view = world.other().read("s")
        session.append(user("c"))
        session.truncate(1)
        session.rename("Title")
        assert texts(view.history()) == ["a", "b"]
        assert texts(view.history(limit=1)) == ["b"]
        assert [record.seq for record in view.records()] == [0, 1, 2]
        assert view.get(3) is None
        assert view.seq == 2
        view.refresh()
        assert texts(view.history()) == ["c"]
        assert view.seq == 5
        assert view.head.title == "Title"


@pytest.mark.rule("H1")
def test_records_are_read_from_either_end_and_page_by_page(world: World) -> None:
    with _long(world) as session:
        whole = list(session.records())
        last = whole[-1].seq
        for view in (session, world.other().read("s")):
            assert list(view.records()) == whole
            assert list(view.records(reverse=True)) == whole[::-1]
            for limit in (1, 2, 5, 100):
                assert list(view.records(limit=limit)) == whole[:limit]
                assert list(view.records(limit=limit, reverse=True)) == whole[::-1][:limit]
                paged = []
                after = -1
                while page := list(view.records(after=after, limit=limit)):
                    paged += page
                    after = page[-1].seq
                assert paged == whole
                paged = []
                before = last + 1
                while page := list(view.records(before=before, limit=limit, reverse=True)):
                    paged += page
                    before = page[-1].seq
                assert paged == whole[::-1]
            for after in (-5, -1, 0, 3, last - 1, last, last + 9):
                for before in (-5, 0, 1, 4, last, last + 1, last + 9):
                    wanted = [record for record in whole if after < record.seq < before]
                    assert list(view.records(after=after, before=before)) == wanted
                    assert list(view.records(after=after, before=before, reverse=True)) == wanted[::-1]


@pytest.mark.rule("H1")
def test_records_are_read_by_kind(world: World) -> None:
    with _long(world) as session:
        whole = list(session.records())
        for view in (session, world.other().read("s")):
            for kinds in ("message", ("history", "meta"), ["mine.own"], ("nothing",), ()):
                wanted = [r for r in whole if r.kind in ((kinds,) if isinstance(kinds, str) else kinds)]
                assert list(view.records(kinds=kinds)) == wanted
                assert list(view.records(kinds=kinds, reverse=True, limit=2)) == wanted[::-1][:2]
                assert list(view.records(kinds=kinds, after=4)) == [r for r in wanted if r.seq > 4]


@pytest.mark.rule("H1")
def test_records_are_read_by_the_time_at_which_they_happened(world: World) -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)
    with world.store().create("s") as session:
        for hours in (0, 5, 2, 9):
            session.append(user(f"{hours}"), time=start + timedelta(hours=hours))
        for view in (session, world.other().read("s")):
            kept = view.records(
                kinds="message", since=start + timedelta(hours=2), until=start + timedelta(hours=9)
            )
            assert texts(record.data for record in kept) == ["5", "2"]
            newest = view.records(kinds="message", until=start + timedelta(hours=6), reverse=True, limit=2)
            assert texts(record.data for record in newest) == ["2", "5"]
            assert list(view.records(since=start + timedelta(days=36500))) == []
            with pytest.raises(ValueError):
                view.records(since=datetime(2026, 5, 1))


# -- H2

APPLIED: dict[str, tuple[Callable[[Session], Any], list[str]]] = {
    "checkpoint": (lambda session: session.checkpoint(users("S")), ["S"]),
    "checkpoint that keeps some": (
        lambda session: session.checkpoint(users("S", "b", "c")),
        ["S", "b", "c"],
    ),
    "truncate": (lambda session: session.truncate(2), ["b", "c"]),
    "truncate to nothing": (lambda session: session.truncate(0), []),
    "set_history": (lambda session: session.set_history(users("a", "X", "c")), ["a", "X", "c"]),
    "set_history to another end": (
        lambda session: session.set_history(users("a", "X", "Y")),
        ["a", "X", "Y"],
    ),
    "set_history to less": (lambda session: session.set_history(users("a")), ["a"]),
    "set_history to nothing": (lambda session: session.set_history([]), []),
    "pop": (lambda session: session.pop(), ["a", "b"]),
    "pop of several": (lambda session: session.pop(2), ["a"]),
    "pop of all": (lambda session: session.pop(9), []),
    "clear": (lambda session: session.clear(), []),
    "rewind": (lambda session: session.rewind(2), ["a", "b"]),
}
"""Calls on a history of a, b, c, and what they make of it."""


@pytest.mark.rule("H2")
@pytest.mark.parametrize("name", APPLIED)
@pytest.mark.parametrize("exclusive", [True, False], ids=["leased", "shared"])
def test_messages_that_others_added_since_the_history_was_read_stay_after_the_result(
    world: World, name: str, exclusive: bool
) -> None:
    change, result = APPLIED[name]
    _with(world, "a", "b", "c").close()
    with world.store().open("s", exclusive=exclusive) as session:
        assert texts(session.history()) == ["a", "b", "c"]
        world.store().append("s", user("x"))
        world.other().extend("s", users("y", "z"))
        change(session)
        for view in (session, world.other().read("s")):
            assert texts(view.history()) == [*result, "x", "y", "z"]


@pytest.mark.rule("H2")
@pytest.mark.parametrize("name", APPLIED)
def test_messages_that_another_process_added_since_the_history_was_read_stay_after_the_result(
    world: World, name: str
) -> None:
    change, result = APPLIED[name]
    with _with(world, "a", "b", "c") as session:
        world.elsewhere(_say, "s", "x", "y")
        change(session)
        assert texts(session.history()) == [*result, "x", "y"]


@pytest.mark.rule("H2")
@pytest.mark.parametrize("name", APPLIED)
def test_what_the_handle_wrote_itself_belongs_to_what_it_knows(world: World, name: str) -> None:
    change, result = APPLIED[name]
    with world.store().create("s") as session:
        session.append(user("a"))
        session.append(user("b"))
        session.append(user("c"))  # and it never reads
        change(session)
        assert texts(session.history()) == result


@pytest.mark.rule("H2")
@pytest.mark.parametrize("name", [name for name in APPLIED if "checkpoint" not in name and name != "rewind"])
def test_what_others_said_between_what_the_handle_said_stays_after_the_result(
    world: World, name: str
) -> None:
    change, result = APPLIED[name]
    other = world.other()
    with _with(world, "a") as session:
        _say(other, "s", "x")
        session.append(user("b"))
        _say(other, "s", "y")
        session.extend(users("c"))
        _say(other, "s", "z")
        change(session)
        assert texts(session.history()) == [*result, "x", "y", "z"]


@pytest.mark.rule("H2")
@pytest.mark.parametrize("name", APPLIED)
def test_what_was_read_in_part_was_read(world: World, name: str) -> None:
    change, result = APPLIED[name]
    _with(world, "a").close()
    with world.store().open("s") as session:
        _say(world.other(), "s", "b", "c")
        assert texts(session.history(limit=1)) == ["c"]
        _say(world.other(), "s", "x")
        change(session)
        assert texts(session.history()) == [*result, "x"]


@pytest.mark.rule("H2")
def test_messages_that_stay_are_known_once_they_are_read(world: World) -> None:
    other = world.other()
    with _with(world, "a") as session:
        for i in range(5):
            _say(other, "s", f"x{i}")
            session.checkpoint(users(f"S{i}"))
            assert texts(other.read("s").history()) == [f"S{i}", *(f"x{j}" for j in range(i + 1))]
        session.history()
        session.checkpoint(users("end"))
        assert texts(session.history()) == ["end"]


@pytest.mark.rule("H2")
def test_a_change_that_takes_nothing_away_leaves_what_others_added(world: World) -> None:
    with _with(world, "a", "b") as session:
        _say(world.other(), "s", "x")
        before = count(world.other().read("s"))
        assert session.truncate(2) is None
        assert session.set_history(users("a", "b")) is None
        assert session.pop(0) == []
        assert count(session) == before
        assert texts(session.history()) == ["a", "b", "x"]


@pytest.mark.rule("H2", "H3")
def test_what_followed_upto_stays_after_a_checkpoint(world: World) -> None:
    for upto, rest in ((-1, "abcde"), (0, "abcde"), (1, "bcde"), (3, "de"), (4, "e"), (5, "e"), (6, "")):
        with _with(world, *"abcd", id=f"s{upto}") as session:
            session.rename("Title")
            _say(world.other(), f"s{upto}", "e")
            session.checkpoint(users("S"), upto=upto)
            assert texts(session.history()) == ["S", *rest]


@pytest.mark.rule("H2", "H3")
def test_an_upto_that_is_older_than_the_newest_change_is_a_conflict(world: World) -> None:
    with _with(world, *"abc") as session:
        session.truncate(2)
        session.append(user("d"))
        before = state(session)
        for upto in (-1, 0, 2, 3):
            with pytest.raises(Conflict) as caught:
                session.checkpoint(users("S"), upto=upto)
            assert caught.value.seq == 4
            assert state(session) == before
        session.checkpoint(users("S"), upto=4)
        assert texts(session.history()) == ["S", "d"]


@pytest.mark.rule("H2", "H3")
@pytest.mark.parametrize("upto", [4, 99, -2, "1", True], ids=repr)
def test_an_upto_that_is_no_record_is_an_error(world: World, upto: Any) -> None:
    with _with(world, *"abc") as session:
        before = state(session)
        with pytest.raises((ValueError, TypeError)) as caught:
            session.checkpoint(users("S"), upto=upto)
        assert not isinstance(caught.value, Conflict)
        assert state(session) == before


@pytest.mark.rule("H2", "H3")
def test_upto_moves_on_what_the_handle_knows_no_further_than_it_says(world: World) -> None:
    with _with(world, *"abcd") as session:
        session.checkpoint(users("S"), upto=2)
        assert texts(session.history()) == ["S", "c", "d"]
        session.truncate(2)
        assert texts(session.history()) == ["c", "d"]


# -- H3


@pytest.mark.rule("H3")
def test_a_checkpoint_replaces_what_the_model_sees_and_deletes_nothing(world: World) -> None:
    with _with(world, *"abc") as session:
        record = session.checkpoint([user("S"), user("c")], summary="So far", token_count=42)
        assert record is not None
        assert record.kind == "history"
        assert record.data["op"] == "checkpoint"
        session.append(user("d"))
    for view in (world.store().read("s"), world.other().read("s")):
        history = view.history()
        assert texts(history) == ["S", "c", "d"]
        assert (history.summary, history.token_count) == ("So far", 42)
        assert (view.head.summary, view.head.token_count) == ("So far", 42)
        assert texts(record.data for record in view.records(kinds="message")) == ["a", "b", "c", "d"]
        assert view.head.messages == 4


@pytest.mark.rule("H3")
def test_a_checkpoint_leaves_usage_title_and_counts_as_they_were(world: World) -> None:
    with world.store().create("s", model="gpt-5") as session:
        session.append(user("a"))
        session.append(assistant("b"), usage={"input_tokens": 10, "output_tokens": 5, "cost": 0.25})
        session.add_usage({"input_tokens": 3})
        before = session.head
        session.checkpoint(users("S"))
        session.clear()
        session.rewind(2)
        after = session.head
        for one in ("usage", "title", "preview", "messages", "has_user_input", "updated_at", "created_at"):
            assert getattr(after, one) == getattr(before, one), one
        assert session.usage(by="model")[0].usage.total_tokens == 18
        assert len(session.usage(by="record")) == 2


@pytest.mark.rule("H3")
def test_a_checkpoint_may_be_empty(world: World) -> None:
    with _with(world, *"abc") as session:
        session.checkpoint([])
        assert session.history() == []
        assert session.history(limit=2) == []
        session.append(user("d"))
        assert texts(session.history()) == ["d"]
    assert texts(world.reopened().read("s").history()) == ["d"]


@pytest.mark.rule("H3")
def test_the_last_of_several_checkpoints_counts(world: World) -> None:
    with _with(world, "a") as session:
        for i in range(5):
            session.checkpoint(users(f"S{i}", f"T{i}"), summary=f"{i}")
            session.append(user(f"a{i}"))
        assert texts(session.history()) == ["S4", "T4", "a4"]
        assert session.summary() == "4"


@pytest.mark.rule("H3")
def test_a_checkpoint_without_a_summary_keeps_the_one_that_is_there(world: World) -> None:
    with _with(world, "a") as session:
        session.checkpoint(users("S"), summary="One")
        session.checkpoint(users("T"))
        assert session.summary() == "One"
        session.checkpoint(users("U"), summary="")
        assert session.summary() == ""


@pytest.mark.rule("H3")
def test_a_checkpoint_names_what_is_there_already_instead_of_writing_it_again(world: World) -> None:
    long = "All work and no play makes a long message. " * 200
    with _with(world, *(f"{i} {long}" for i in range(20))) as session:
        before = size(session)
        session.checkpoint([user("S"), *session.history()[5:]])
        assert size(session) - before < 1_000
        assert len(session.history()) == 16


@pytest.mark.rule("H3")
@pytest.mark.parametrize("bad", ["7", 7.5, True, [7]], ids=repr)
def test_a_number_of_tokens_is_a_whole_number(world: World, bad: Any) -> None:
    with _with(world, "a") as session:
        before = state(session)
        with pytest.raises(TypeError):
            session.checkpoint(users("S"), token_count=bad)
        assert state(session) == before


# -- H4


@pytest.mark.rule("H4")
@pytest.mark.parametrize("pairs", [True, False])
def test_truncating_keeps_the_last_and_no_more_than_there_are(world: World, pairs: bool) -> None:
    for keep in (-5, -1, 0, 1, 2, 3, 4, 5, 99):
        with _with(world, *"abcd", id=f"s{keep}") as session:
            record = session.truncate(keep, pairs=pairs)
            wanted = list("abcd")[4 - max(0, min(keep, 4)) :]
            assert texts(session.history()) == wanted
            assert (record is None) == (keep >= 4)
            assert count(session) == (5 if keep >= 4 else 6)
            assert texts(r.data for r in session.records(kinds="message")) == list("abcd")


@pytest.mark.rule("H4")
def test_truncating_counts_only_what_the_model_sees(world: World) -> None:
    with _long(world) as session:
        session.truncate(3)
        assert texts(session.history()) == ["C", "h", "j"]
        session.append({"x": 1}, kind="mine.own")
        session.rename("Title")
        session.append(user("k"))
        session.truncate(3)
        assert texts(session.history()) == ["h", "j", "k"]
        session.truncate(2)
        assert texts(world.other().read("s").history()) == ["j", "k"]


@pytest.mark.rule("H4")
def test_truncating_again_writes_nothing(world: World) -> None:
    with _with(world, *"abcd") as session:
        assert session.truncate(2) is not None
        before = state(session)
        assert session.truncate(2) is None
        assert session.truncate(3) is None
        assert state(session) == before
        assert session.truncate(0) is not None
        before = state(session)
        assert session.truncate(0) is None
        assert session.truncate(-1) is None
        assert state(session) == before


@pytest.mark.rule("H4", "W10")
def test_truncating_a_session_that_is_not_there_is_an_error_and_creates_nothing(world: World) -> None:
    store = world.store()
    with _with(world, *"abc") as session:
        store.delete("s")
        with pytest.raises(SessionNotFound):
            session.truncate(1)
    assert store.list(empty=True) == []


@pytest.mark.rule("H4")
@pytest.mark.parametrize("keep", ["1", 1.0, None, True], ids=repr)
def test_how_many_to_keep_is_a_whole_number(world: World, keep: Any) -> None:
    with _with(world, "a", "b") as session:
        before = state(session)
        with pytest.raises(TypeError):
            session.truncate(keep)
        assert state(session) == before


TOOLS: dict[str, list[Any]] = {
    "chat": [
        user("a"),
        call("1"),
        answer("1"),
        assistant("b"),
        user("c"),
        call("2", "3"),
        answer("2"),
        answer("3"),
        assistant("d"),
    ],
    "chat, results the other way round": [
        user("a"),
        call("1", "2"),
        answer("2"),
        answer("1"),
        assistant("b"),
    ],
    "chat, ends with results": [user("a"), call("1", "2"), answer("1"), answer("2")],
    "chat, a call without a result": [
        user("a"),
        call("1"),
        user("b"),
        call("2"),
        answer("2"),
        assistant("c"),
    ],
    "chat, a result without a call": [
        user("a"),
        answer("0"),
        user("b"),
        call("1"),
        answer("1"),
        assistant("c"),
    ],
    "chat, a message between": [user("a"), call("1"), user("wait"), answer("1"), assistant("b")],
    "chat, ids that come again": [
        user("a"),
        call("1"),
        answer("1"),
        user("b"),
        call("1"),
        answer("1"),
        assistant("c"),
    ],
    "chat, call after call": [
        user("a"),
        call("1"),
        answer("1"),
        call("2"),
        answer("2"),
        call("3"),
        answer("3"),
        assistant("b"),
    ],
    "responses": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        item_call("1"),
        item_answer("1"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        item_call("2"),
        item_call("3"),
        item_answer("2"),
        item_answer("3"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
    ],
    "responses, results late": [
        item_call("1"),
        item_call("2"),
        item_answer("1"),
        item_call("3"),
        item_answer("3"),
        item_answer("2"),
        assistant("a"),
    ],
    "Anthropic": [
        user("a"),
        use("1"),
        used("1"),
        assistant("b"),
        user("c"),
        use("2", "3"),
        used("2", "3"),
        assistant("d"),
    ],
    "Anthropic, results in two messages": [user("a"), use("1", "2"), used("1"), used("2"), assistant("b")],
    "Anthropic, a result and text": [
        user("a"),
        use("1"),
        {"role": "user", "content": [*used("1")["content"], {"type": "text", "text": "And then?"}]},
        use("2"),
        used("2"),
        assistant("b"),
    ],
}
"""Histories in which tools are called."""


def _broken(whole: Sequence[Any], start: int) -> bool:
    """Whether what is kept from `start` on answers a call that is not kept, or begins with an answer."""
    made: set[str] = set()
    hidden = {id for payload in whole[:start] for id in messages.calls(payload)}
    for i in range(start, len(whole)):
        answered = set(messages.results(whole[i])) - made
        if answered and (i == start or answered & hidden):
            return True
        made |= set(messages.calls(whole[i]))
    return False


@pytest.mark.rule("H4")
@pytest.mark.parametrize("name", TOOLS)
def test_truncating_never_separates_a_call_from_its_results(world: World, name: str) -> None:
    whole = TOOLS[name]
    for keep in range(len(whole) + 1):
        with _with(world, user("begin"), *whole, id=f"s{keep}") as session:
            session.truncate(keep)
            kept = session.history()
            start = next(
                start
                for start in range(len(whole) - keep, len(whole) + 1)
                if start == len(whole) or not _broken(whole, start)
            )
            assert kept == whole[start:], f"truncate({keep})"


@pytest.mark.rule("H4")
def test_a_call_with_several_results_is_kept_whole_or_not_at_all(world: World) -> None:
    whole = TOOLS["chat"]
    for keep, left in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 5), (6, 6), (7, 6), (8, 8)):
        with _with(world, *whole, id=f"s{keep}") as session:
            session.truncate(keep)
            assert session.history() == whole[len(whole) - left :]


@pytest.mark.rule("H4")
@pytest.mark.parametrize("name", TOOLS)
def test_without_pairs_exactly_as_many_are_kept_as_asked(world: World, name: str) -> None:
    whole = TOOLS[name]
    for keep in range(len(whole) + 1):
        with _with(world, user("begin"), *whole, id=f"s{keep}") as session:
            session.truncate(keep, pairs=False)
            assert session.history() == whole[len(whole) - keep :]


@pytest.mark.rule("H4")
def test_a_call_that_was_hidden_before_leaves_no_orphan_either(world: World) -> None:
    with _with(world, user("a"), call("1"), answer("1"), assistant("b")) as session:
        session.truncate(2, pairs=False)
        assert session.history() == [answer("1"), assistant("b")]
        session.append(user("c"))
        session.truncate(3)
        assert session.history() == [answer("1"), assistant("b"), user("c")]  # nothing to hide
        session.truncate(2)
        assert session.history() == [assistant("b"), user("c")]


# -- H6


@pytest.mark.rule("H6")
def test_pop_takes_out_the_newest_and_returns_them_newest_last(world: World) -> None:
    with _with(world, *"abcde") as session:
        assert texts(session.pop()) == ["e"]
        assert texts(session.pop(2)) == ["c", "d"]
        assert texts(session.history()) == ["a", "b"]
        session.append(user("f"))
        assert texts(session.pop(2)) == ["b", "f"]
        assert texts(world.other().read("s").history()) == ["a"]
        assert texts(session.pop(9)) == ["a"]
        assert texts(r.data for r in session.records(kinds="message")) == list("abcdef")


@pytest.mark.rule("H6")
def test_pop_of_an_empty_history_returns_nothing_and_writes_nothing(world: World) -> None:
    with _with(world, "a") as session:
        session.clear()
        before = state(session)
        assert session.pop() == session.pop(3) == session.pop(0) == []
        assert state(session) == before
        with pytest.raises(ValueError):
            session.pop(-1)
        for bad in ("1", 1.5, True, None):
            with pytest.raises(TypeError):
                session.pop(bad)  # type: ignore[arg-type]
        assert state(session) == before


@pytest.mark.rule("H6")
def test_pop_returns_what_stood_in_a_checkpoint_too(world: World) -> None:
    with _long(world) as session:
        assert texts(session.pop(4)) == ["e", "C", "h", "j"]
        assert texts(session.history()) == ["A", "B", "d"]


@pytest.mark.rule("H6")
def test_pop_with_pairs_leaves_no_call_whose_result_is_gone(world: World) -> None:
    with _with(world, user("a"), call("1", "2"), answer("1"), answer("2"), assistant("b")) as session:
        assert session.pop(2, pairs=True) == [call("1", "2"), answer("1"), answer("2"), assistant("b")]
        assert session.history() == [user("a")]
    with _with(world, user("a"), use("1"), used("1"), id="t") as session:
        assert session.pop(1, pairs=False) == [used("1")]
        assert session.history() == [user("a"), use("1")]


@pytest.mark.rule("H6")
def test_clear_empties_the_history_and_the_summary(world: World) -> None:
    with _with(world, *"abc") as session:
        session.set_summary("So far")
        session.clear()
        for view in (session, world.other().read("s")):
            assert view.history() == view.history(limit=5) == []
            assert view.summary() == view.history().summary == view.head.summary == ""
        before = state(session)
        assert session.clear() is None
        assert state(session) == before
        session.append(user("d"))
        assert texts(session.history()) == ["d"]
        session.clear()
        session.set_summary("Only that")
        assert session.clear() is not None
        assert session.summary() == ""


@pytest.mark.rule("H6")
def test_rewind_gives_the_history_as_it_was_just_after_any_record(world: World) -> None:
    then: list[tuple[list[Any], str]] = []

    def note(session: Session) -> None:
        while len(then) <= session.seq:
            then.append((list(session.history()), session.summary()))

    with world.store().create("s", eager=True) as session:
        note(session)
        for step in (
            lambda: session.append(user("a")),
            lambda: session.append(user("b")),
            lambda: session.set_summary("One"),
            lambda: session.append(user("c")),
            lambda: session.truncate(2),
            lambda: session.append(user("d")),
            lambda: session.checkpoint([user("S"), user("d")], summary="Two"),
            lambda: session.append(user("e")),
            lambda: session.set_summary("Three"),
            lambda: session.pop(2),
            lambda: session.clear(),
            lambda: session.append(user("f")),
            lambda: session.rename("Title"),
            lambda: session.set_history(users("f", "g")),
            lambda: session.set_history(users("X", "g")),
            lambda: session.rewind(4),
            lambda: session.append(user("h")),
            lambda: session.rewind(8),
            lambda: session.append(user("i")),
            lambda: session.truncate(1),
        ):
            step()
            note(session)
        for seq, (history, summary) in enumerate(then):
            session.rewind(seq)
            for view in (session, world.other().read("s")):
                assert view.history() == history, seq
                assert view.summary() == view.history().summary == summary, seq
            session.append(user("on a new branch"))
            assert session.history() == [*history, user("on a new branch")]


@pytest.mark.rule("H6")
def test_rewind_leads_into_an_abandoned_branch_and_back(world: World) -> None:
    with _with(world, *"abc") as session:
        session.rewind(1)
        session.append(user("B"))
        here = session.seq
        assert texts(session.history()) == ["a", "B"]
        session.rewind(3)
        assert texts(session.history()) == ["a", "b", "c"]
        session.append(user("d"))
        session.rewind(here)
        session.append(user("C"))
        assert texts(world.other().read("s").history()) == ["a", "B", "C"]
        assert session.history(limit=2) == users("B", "C")


@pytest.mark.rule("H6")
def test_rewind_into_the_middle_of_a_write_of_several_keeps_its_beginning(world: World) -> None:
    with _with(world, *"abcd") as session:
        session.rewind(2)
        assert texts(session.history()) == ["a", "b"]
        session.rewind(0)
        assert session.history() == []


@pytest.mark.rule("H6")
@pytest.mark.parametrize("seq", [-1, 4, 99])
def test_rewind_to_a_record_that_is_not_there_is_an_error(world: World, seq: int) -> None:
    with _with(world, *"abc") as session:
        before = state(session)
        with pytest.raises(ValueError):
            session.rewind(seq)
        assert state(session) == before
        with pytest.raises(TypeError):
            session.rewind(True)


@pytest.mark.rule("H6", "W8")
def test_a_session_that_is_not_written_yet_cannot_be_rewound(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        with pytest.raises(ValueError):
            session.rewind(0)
        assert store.list(empty=True) == []


@pytest.mark.rule("H6")
def test_rewind_restores_the_number_of_tokens(world: World) -> None:
    with _with(world, "a") as session:
        session.checkpoint(users("S"), token_count=7)
        session.append(user("b"))
        session.checkpoint(users("T"), token_count=9)
        session.rewind(3)
        assert session.history().token_count == session.head.token_count == 7
        session.rewind(1)
        assert session.history().token_count is None


@pytest.mark.rule("H6", "H2")
def test_rewind_shows_no_message_twice(world: World) -> None:
    with _with(world, *"ab") as session:
        _say(world.other(), "s", "x", "y")
        session.rewind(3)  # a, b, x; y was not read yet
        assert texts(session.history()) == ["a", "b", "x", "y"]


@pytest.mark.rule("H6")
def test_the_summary_is_no_message(world: World) -> None:
    with _with(world, "a") as session:
        assert session.summary() == ""
        session.set_summary("So far: <b>é</b>\n👩‍💻")
        for view in (session, world.other().read("s")):
            assert view.summary() == view.history().summary == "So far: <b>é</b>\n👩‍💻"
            assert texts(view.history()) == ["a"]
            assert view.head.messages == 1
            assert view.head.title == "a"
        session.set_summary("")
        assert session.summary() == ""
        for bad in (None, 7, ["a"], b"a"):
            with pytest.raises(InvalidPayload):
                session.set_summary(bad)  # type: ignore[arg-type]


@pytest.mark.rule("H6")
def test_a_summary_stays_when_messages_go(world: World) -> None:
    with _with(world, *"abc") as session:
        session.set_summary("So far")
        session.truncate(1)
        session.pop()
        session.set_history(users("x"))
        session.append(user("d"))
        assert session.summary() == "So far"
    assert world.reopened().read("s").summary() == "So far"


# -- H10


def _accepted(history: Iterable[Any]) -> bool:
    """Whether every call has its result, and every result its call."""
    made: set[str] = set()
    answered: set[str] = set()
    for payload in history:
        results = set(messages.results(payload))
        if not results <= made - answered:
            return False
        answered |= results
        calls = messages.calls(payload)
        if len(set(calls)) != len(calls) or made & set(calls):
            return False
        made |= set(calls)
    return made == answered


MENDED: dict[str, list[Any]] = {
    "an orphan result": [user("a"), answer("1"), assistant("b")],
    "an orphan call": [user("a"), call("1"), user("b")],
    "a call whose second result is missing": [user("a"), call("1", "2"), answer("1"), user("b")],
    "doubled ids": [user("a"), call("1"), answer("1"), call("1"), answer("1"), assistant("b")],
    "an orphan result of Anthropic's": [user("a"), used("1"), assistant("b")],
    "an orphan call of Anthropic's": [user("a"), use("1"), user("b")],
    "orphans of OpenAI's responses": [user("a"), item_answer("0"), item_call("1"), user("b")],
}


@pytest.mark.rule("H10")
@pytest.mark.parametrize("name", MENDED)
def test_a_repaired_history_is_what_providers_accept_and_nothing_is_written(world: World, name: str) -> None:
    whole = MENDED[name]
    with _with(world, *whole) as session:
        before = state(session)
        for view in (session, world.other().read("s")):
            mended = view.history(repair=True)
            assert not _accepted(whole)
            assert _accepted(mended)
            assert mended.seq == view.seq
            for limit in range(len(mended) + 2):
                assert view.history(limit, repair=True) == mended[max(0, len(mended) - limit) :]
            assert view.history() == whole
        assert state(session) == before


@pytest.mark.rule("H10")
def test_empty_texts_are_left_out_of_a_repaired_history(world: World) -> None:
    blank = {"role": "assistant", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "b"}]}
    with _with(world, user("a"), blank, user("")) as session:
        mended = session.history(repair=True)
        assert mended[:2] == [
            user("a"),
            {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
        ]
        assert user("") not in mended
        assert session.history() == [user("a"), blank, user("")]


@pytest.mark.rule("H10")
@pytest.mark.parametrize("name", ["chat", "responses", "Anthropic"])
def test_a_history_that_is_in_order_is_not_changed_by_repair(world: World, name: str) -> None:
    with _with(world, *TOOLS[name]) as session:
        assert session.history(repair=True) == session.history() == TOOLS[name]


@pytest.mark.rule("H10", "H4")
@pytest.mark.parametrize("name", TOOLS)
def test_whatever_is_cut_away_repair_makes_it_whole(world: World, name: str) -> None:
    whole = TOOLS[name]
    with _with(world, *whole) as session:
        for keep in reversed(range(len(whole))):
            session.truncate(keep, pairs=False)
            assert session.history() == whole[len(whole) - keep :]
            assert _accepted(session.history(repair=True))
