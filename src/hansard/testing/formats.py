"""W14: what a newer version wrote is refused where it must be understood, and kept where it need not be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from hansard.errors import NewerFormat
from hansard.records import FORMAT, Draft, encode
from hansard.testing.chat import texts, user
from hansard.testing.world import World


def _draft(kind: str, **data: Any) -> Draft:
    return Draft(kind=kind, data=msgspec.Raw(encode(data)), at=datetime.now(UTC))


def _refused(write: Callable[[], Any]) -> bool:
    """An engine may refuse to write what it does not understand; else it must refuse to read it."""
    try:
        write()
    except NewerFormat:
        return True
    return False


@pytest.mark.rule("W14")
def test_a_session_of_a_newer_format_is_refused_for_reading_and_writing(world: World) -> None:
    newer = _draft("session", id="s", uid="u", format=FORMAT + 1)
    if _refused(lambda: world.engine.create("s", [newer])):
        return
    for store in (world.store(), world.other()):
        for attempt in (store.open, store.read, store.head, partial(store.append, payload=user("a"))):
            with pytest.raises(NewerFormat):
                attempt("s")


@pytest.mark.rule("W14")
def test_a_record_that_must_be_understood_and_is_not_is_refused(world: World) -> None:
    store = world.store()
    store.append("s", user("a"), create=True)
    if _refused(lambda: world.engine.append("s", [_draft("!future", x=1)])):
        return
    for place in (store, world.other()):
        for attempt in (
            lambda place=place: place.read("s").history(),
            lambda place=place: list(place.read("s").records()),
            lambda place=place: place.append("s", user("b")),
        ):
            with pytest.raises(NewerFormat):
                attempt()


@pytest.mark.rule("W14")
def test_a_kind_that_nobody_knows_is_kept_and_changes_nothing(world: World) -> None:
    store = world.store()
    store.append("s", user("a"), create=True)
    before = store.head("s")
    unknown = {"set": {"title": "No"}, "parts": [], "role": "user"}
    world.engine.append("s", [_draft("future", **unknown)])
    for place in (store, world.other()):
        assert texts(place.read("s").history()) == ["a"]
        assert [(r.kind, r.data) for r in place.read("s").records(after=1)] == [("future", unknown)]
        now = place.head("s")
        now.seq, now.written_at = before.seq, before.written_at
        assert now == before
    with store.open("s") as session:
        session.append(user("b"))
        session.truncate(1)
        assert [r.kind for r in session.records()] == ["session", "message", "future", "message", "history"]


@pytest.mark.rule("W14")
def test_fields_that_nobody_knows_are_kept(world: World) -> None:
    begin = _draft("session", id="s", uid="u", format=FORMAT, agent="coder", mood={"x": 1})
    world.engine.create("s", [begin])
    world.store().append("s", user("a"))
    for place in (world.store(), world.other()):
        head = place.head("s")
        assert head.agent == "coder"
        assert head.other == {"mood": {"x": 1}}
        assert next(place.read("s").records()).data["mood"] == {"x": 1}
