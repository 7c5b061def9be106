"""E1 and E2: events of a live stream, and the raw output of an agent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count as numbers
from typing import Any

import pytest

from hansard.errors import Conflict, InvalidPayload
from hansard.session import Session
from hansard.store import Store
from hansard.testing.chat import assistant, count, state, texts, user, users
from hansard.testing.world import World


def _send(store: Store, id: str, event: str) -> list[Any]:
    with store.open(id, exclusive=False) as session:
        told = session.event("delta", {"text": "Hi"}, event_id=event, stream_id="s1")
        session.output(f"line of {event}\n")
        return [told.seq, told.id]


# -- E1


@pytest.mark.rule("E1")
def test_an_event_is_kept_with_its_type_its_stream_and_what_it_says(world: World) -> None:
    with world.store().create("s") as session:
        told = session.event("delta", {"text": "Hi", "n": 2**70}, event_id="e1", stream_id="run 1")
        bare = session.event("ping", event_id="e2")
        null = session.event("", [None], event_id="e3", stream_id="")
        assert told.data == {"stream_id": "run 1", "type": "delta", "data": {"text": "Hi", "n": 2**70}}
        assert bare.data == {"type": "ping"}
        assert null.data == {"stream_id": "", "type": "", "data": [None]}
    view = world.reopened().read("s")
    assert [(record.kind, record.id) for record in view.records(after=0)] == [
        ("event", "e1"),
        ("event", "e2"),
        ("event", "e3"),
    ]
    found = view.get("e1")
    assert found is not None
    assert (found.data, found.at, found.seq) == (told.data, told.at, told.seq)


@pytest.mark.rule("E1", "W5")
def test_the_same_event_is_stored_once(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        first = session.event("delta", {"a": 1, "b": 2}, event_id="e", stream_id="s1")
        assert session.event("delta", {"b": 2, "a": 1}, event_id="e", stream_id="s1") == first
        with world.other().open("s", exclusive=False) as shared:
            assert shared.event("delta", {"a": 1, "b": 2}, event_id="e", stream_id="s1") == first
        assert count(session) == 2
    with world.reopened().open("s") as session:
        assert session.event("delta", {"a": 1, "b": 2}, event_id="e", stream_id="s1") == first
        assert count(session) == 2


@pytest.mark.rule("E1", "W5")
@pytest.mark.parametrize(
    "other",
    [("end", {"a": 1}, "s1"), ("delta", {"a": 2}, "s1"), ("delta", {"a": 1}, "s2"), ("delta", None, None)],
    ids=["type", "data", "stream", "nothing"],
)
def test_another_event_under_the_same_id_is_a_conflict(world: World, other: Any) -> None:
    with world.store().create("s") as session:
        first = session.event("delta", {"a": 1}, event_id="e", stream_id="s1")
        before = state(session)
        with pytest.raises(Conflict) as caught:
            session.event(other[0], other[1], event_id="e", stream_id=other[2])
        assert caught.value.first == first
        with pytest.raises(Conflict):
            session.append(user("x"), id="e")
        assert state(session) == before


@pytest.mark.rule("E1", "W4")
@pytest.mark.parametrize("id", [None, "", 7, "\ud800"], ids=ascii)
def test_an_event_has_an_id(world: World, id: Any) -> None:
    with world.store().create("s") as session:
        session.append(user("a"))
        before = state(session)
        with pytest.raises(InvalidPayload):
            session.event("delta", event_id=id)
        assert state(session) == before


@pytest.mark.rule("E1", "W1", "W4")
def test_an_event_that_json_cannot_carry_is_refused(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"))
        before = state(session)
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: session.event("delta", b"bytes", event_id="e"),
            lambda: session.event("delta", {"x": float("nan")}, event_id="e"),
            lambda: session.event("\ud800", event_id="e"),
            lambda: session.event(7, event_id="e"),  # type: ignore[arg-type]
            lambda: session.event("delta", event_id="e", stream_id=7),  # type: ignore[arg-type]
        )
        for attempt in attempts:
            with pytest.raises(InvalidPayload):
                attempt()
        assert state(session) == before


@pytest.mark.rule("E1", "E2", "L1", "L2", "L3")
def test_events_and_output_are_in_no_history_and_no_title_and_are_no_activity(world: World) -> None:
    hours = numbers()
    store = world.store(clock=lambda: datetime(2026, 5, 1, tzinfo=UTC) + timedelta(hours=next(hours)))
    with store.create("s") as session:
        session.append(user("Hello"))
        session.append(assistant("Hi"))
        before, history = session.head, list(session.history())
        session.event("user", user("a title?"), event_id="e")
        session.output('{"role": "user", "content": "a title?"}')
        head = world.other().head("s")
        assert list(session.history()) == history
        assert (head.title, head.preview, head.messages) == ("Hello", "Hello", 2)
        assert head.updated_at == before.updated_at
        assert (head.usage, head.has_user_input) == (before.usage, True)
        assert (head.seq, head.extras) == (before.seq + 2, 2)


@pytest.mark.rule("E1")
def test_that_the_events_are_complete_is_a_flag_of_the_application(world: World) -> None:
    with world.store().create("s") as session:
        session.event("delta", event_id="e")
        assert "events_complete" not in session.head.meta
        session.update(meta={"events_complete": True})
    assert world.reopened().head("s").meta["events_complete"] is True


@pytest.mark.rule("E1", "E2", "W11")
def test_events_and_output_are_written_beside_the_holder_who_sees_them(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"))
        seen = session.seq
        with world.other().open("s", exclusive=False) as shared:
            shared.event("delta", event_id="e")
            shared.output("line")
        assert [record.kind for record in session.records(after=1)] == ["event", "output"]
        assert texts(session.history()) == ["a"]
        with pytest.raises(Conflict):
            session.append(user("b"), expect=seen)


@pytest.mark.rule("E1", "E2", "W11")
def test_another_process_sends_events_beside_the_holder(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"))
        assert world.elsewhere(_send, "s", "e") == [2, "e"]
        assert world.elsewhere(_send, "s", "e")[0] == 2
        assert [record.kind for record in session.records(after=1)] == ["event", "output", "output"]


# -- E2

LINES: dict[str, tuple[Any, Any]] = {
    "a line": ("Hello", "Hello"),
    "its newline": ("Hello\n", "Hello"),
    "only one newline": ("Hello\n\n", "Hello\n"),
    "a newline within": ("a\nb", "a\nb"),
    "a carriage return": ("10%\r20%\r\n", "10%\r20%\r"),
    "NUL and escapes": ("\x00\x1b[31m", "\x00\x1b[31m"),
    "separators": ("a\u2028b\x85c\x0b", "a\u2028b\x85c\x0b"),
    "blanks": ("  \t", "  \t"),
    "json": ('{"kind":"message"}', '{"kind":"message"}'),
    "bytes": (b"Hello\n", "Hello"),
    "bytes that are text": ("Grüezi 🦊".encode(), "Grüezi 🦊"),
    "a mark of the byte order": (b"\xef\xbb\xbfa", "\ufeffa"),
    "bytes that are no text": (b"\xff\x00\n", {"base64": "/wA="}),
    "half a character": ("é".encode()[:1], {"base64": "ww=="}),
    "a buffer": (bytearray(b"a"), "a"),
    "a view": (memoryview(b"abc")[::2], "ac"),
    "a long line": ("x" * 200_000 + "\n", "x" * 200_000),
}


@pytest.mark.rule("E2")
@pytest.mark.parametrize("name", LINES)
def test_a_line_of_output_is_kept_as_it_is_but_for_its_last_newline(world: World, name: str) -> None:
    given, kept = LINES[name]
    with world.store().create("s") as session:
        record = session.output(given)
        assert record is not None
        assert (record.kind, record.data) == ("output", kept)
        assert session.history() == []
    assert [record.data for record in world.reopened().read("s").records(kinds="output")] == [kept]


@pytest.mark.rule("E2")
def test_every_call_is_a_record(world: World) -> None:
    with world.store().create("s") as session:
        for line in ("a", "a", "a\nb"):
            session.output(line)
        assert [record.data for record in session.records(kinds="output")] == ["a", "a", "a\nb"]
        first = session.output("once", id="k")
        assert session.output("once\n", id="k") == first
        with pytest.raises(Conflict):
            session.output("twice", id="k")
        assert count(session) == 5


@pytest.mark.rule("E2", "W8")
@pytest.mark.parametrize("line", ["", "\n", b"", b"\n"], ids=repr)
def test_of_an_empty_line_nothing_is_written(world: World, line: Any) -> None:
    store = world.store()
    with store.create("s") as session:
        assert session.output(line) is None
        assert store.list(empty=True) == []


@pytest.mark.rule("E2", "W4")
def test_what_is_neither_text_nor_bytes_is_no_output(world: World) -> None:
    with world.store().create("s") as session:
        for line in (7, None, ["a"]):
            with pytest.raises(TypeError):
                session.output(line)  # type: ignore[arg-type]
        with pytest.raises(InvalidPayload):
            session.output("\ud800")
        assert session.seq == -1


@pytest.mark.rule("E1", "E2", "W3")
def test_events_and_output_that_are_not_durable_yet_are_seen_by_all(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"))
        session.event("delta", event_id="e", durable=False)
        session.output("line", durable=False)
        assert [record.kind for record in world.other().read("s").records(after=1)] == ["event", "output"]
        session.flush()
    assert world.reopened().head("s").extras == 2


KEPT: dict[str, Callable[[Session], Any]] = {
    "an event": lambda session: session.event("delta", event_id="e"),
    "output": lambda session: session.output("line"),
    "a kind of its own": lambda session: session.append({"x": 1}, kind="mine.own"),
    "a document": lambda session: session.documents.put("screen", b"x"),
    "a child": lambda session: session.sub("research").close(),
}
"""What an application puts in that no user has said."""


@pytest.mark.rule("W8")
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("how", ["close", "close the store"])
def test_a_session_that_an_application_has_put_something_in_stays(world: World, name: str, how: str) -> None:
    store = world.store()
    session = store.create("s")
    KEPT[name](session)
    if how == "close":
        session.close()
    store = world.reopened()
    assert [head.id for head in store.list(empty=True)] == ["s"]
    assert store.list() == []
    assert texts(store.read("s").history()) == []


@pytest.mark.rule("W8")
def test_a_session_whose_only_document_was_taken_away_is_removed(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.documents.put("screen", b"x")
        session.documents.delete("screen")
    assert store.list(empty=True) == []


@pytest.mark.rule("E1", "E2", "H1")
def test_events_between_messages_do_not_come_between_them_in_the_history(world: World) -> None:
    with world.store().create("s") as session:
        for i in range(4):
            session.append(user(f"{i}"))
            session.event("delta", {"i": i}, event_id=f"e{i}")
            session.output(f"line {i}")
        assert texts(session.history()) == ["0", "1", "2", "3"]
        session.truncate(2)
        session.extend(users("4"))
        assert texts(session.history(limit=2)) == ["3", "4"]
        assert [record.data for record in session.records(kinds="output", limit=2)] == ["line 0", "line 1"]
