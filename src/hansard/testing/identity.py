"""I1 to I5: what an id is, and what a reference, a prefix, a name and `active` mean."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from hansard.engines import NAMES
from hansard.errors import (
    AlreadyExists,
    AmbiguousSession,
    Conflict,
    HansardError,
    InvalidId,
    NoSessions,
    SessionNotFound,
)
from hansard.store import Store
from hansard.testing.chat import assistant, texts, user
from hansard.testing.world import World

ODD = [
    "telegram:4711/übung",
    "a:b",
    "a/b",
    "a\\b",
    "a_b",
    "a b",
    "a%2fb",
    "a=2fb",
    "a=~b",
    "Task",
    "task",
    "TASK",
    "task.",
    "task ",
    " task",
    "task..",
    "é",  # one character
    "e\u0301",  # the same to the eye
    "ﬁ",
    "fi",
    "ß",
    "ss",
    "İ",
    "i",
    "0",
    "00",
    "task\u200b",
    "\ufefftask",
    "a\u2028b",
    "👩‍💻",
    "‮evil",
    ".",
    "..",
    "...",
    "../x",
    "../../etc/passwd",
    "/abs",
    "~",
    "-",
    "--help",
    "C:\\x",
    "CON",
    "nul",
    "@active",
    "active",
    ".root",
    "x.jsonl",
    "x.lock",
    "sess_",
    "%",
    "*",
    "?",
    "[a]",
    "'; drop table heads; --",
    '"',
    "<b>",
    "null",
    "\uffff",
    "\U0010ffff",
    "x" * 512,
    "X" * 512,
    "x" * 511 + "y",
    "ü" * 512,
    "👩" * 512,
]
"""Ids that are valid, each a session of its own."""

INVALID: list[Any] = [
    "",
    " ",
    "\t",
    "\n",
    "\u00a0 ",
    "a\x00b",
    "a\nb",
    "a\x1b[31m",
    "a\x7f",
    "a\u0085b",
    "\ud800",
    "a\udfffb",
    "x" * 513,
    "x" * 10_000,
    b"task",
    17,
    1.5,
    ("a",),
    ["a"],
]


def _begin(store: Store, *ids: str) -> None:
    for id in ids:
        store.append(id, user(f"I am {id}"), create=True)


def _everything(store: Store) -> dict[str, Any]:
    return {head.id: texts(store.read(head.id).history()) for head in store.list(limit=None)}


def _active(store: Store) -> Any:
    return store.active()


def _set_active(store: Store, id: str) -> None:
    store.activate(id)


def _remove(store: Store, id: str) -> bool:
    return store.delete(id)


# -- I1


@pytest.mark.rule("I1")
def test_a_generated_id_is_sess_and_16_characters_of_crockford_base_32_in_lower_case(world: World) -> None:
    store = world.store()
    for _ in range(50):
        with store.create() as session:
            assert re.fullmatch("sess_[0-9a-hjkmnp-tv-z]{16}", session.id)


@pytest.mark.rule("I1")
def test_generated_ids_do_not_repeat(world: World) -> None:
    stores = [world.store(), world.other()]
    ids = []
    for i in range(500):
        with stores[i % 2].create() as session:
            ids.append(session.id)
    assert len(set(ids)) == len(ids)


@pytest.mark.rule("I1", "W9")
def test_a_generated_id_that_is_taken_is_generated_again(world: World) -> None:
    _begin(world.store(), "sess_taken")
    ids = iter(["sess_taken", "sess_taken", "sess_free"])
    store = world.store(new_id=lambda: next(ids))
    with store.create() as session:
        session.append(user("Hello"))
    assert session.id == "sess_free"
    assert texts(store.read("sess_taken").history()) == ["I am sess_taken"]


@pytest.mark.rule("I1", "W9")
def test_a_generated_id_that_somebody_else_is_about_to_use_is_generated_again(world: World) -> None:
    with world.store().create("sess_taken"):  # nothing is written yet
        ids = iter(["sess_taken", "sess_free"])
        with world.other(new_id=lambda: next(ids)).create() as session:
            assert session.id == "sess_free"


@pytest.mark.rule("I1", "W9")
def test_a_source_of_ids_that_has_only_one_does_not_take_over_the_session_that_has_it(world: World) -> None:
    store = world.store(new_id=lambda: "sess_taken")
    _begin(store, "sess_taken")
    with pytest.raises(AlreadyExists):
        store.create()
    assert texts(store.read("sess_taken").history()) == ["I am sess_taken"]


# -- I2


@pytest.mark.rule("I2")
def test_any_valid_id_comes_back_exactly(world: World) -> None:
    store = world.store()
    _begin(store, *ODD)
    assert {head.id for head in store.list(limit=None)} == set(ODD)
    for id in ODD:
        assert store.head(id).id == store.read(id).id == id
        assert next(store.read(id).records()).data["id"] == id
        with store.open(id) as session:
            assert session.id == id
            assert store.active() == id
            assert [holder.session for holder in store.locks()] == [id]


@pytest.mark.rule("I2")
def test_ids_that_are_nearly_the_same_are_different_sessions(world: World) -> None:
    _begin(world.store(), *ODD)
    assert _everything(world.reopened()) == {id: [f"I am {id}"] for id in ODD}


@pytest.mark.rule("I2")
def test_ids_that_are_nearly_the_same_are_different_sessions_for_another_process(world: World) -> None:
    _begin(world.store(), *ODD)
    assert world.elsewhere(_everything) == {id: [f"I am {id}"] for id in ODD}


@pytest.mark.rule("I2")
def test_deleting_a_session_leaves_those_whose_ids_are_nearly_the_same(world: World) -> None:
    store = world.store()
    _begin(store, *ODD)
    left = list(ODD)
    for id in ODD[::3]:
        assert store.delete(id)
        left.remove(id)
        assert {head.id for head in store.list(limit=None)} == set(left)
    assert _everything(world.reopened()) == {id: [f"I am {id}"] for id in left}


@pytest.mark.rule("I2")
def test_sessions_whose_ids_are_nearly_the_same_are_open_at_the_same_time(world: World) -> None:
    store = world.store()
    sessions = [store.create(id) for id in ODD]
    for session in sessions:
        session.append(user(session.id))
    assert sorted(holder.session for holder in store.locks()) == sorted(ODD)
    for session in sessions:
        session.close()
    assert _everything(store) == {id: [id] for id in ODD}


@pytest.mark.rule("I2")
@pytest.mark.parametrize("id", INVALID, ids=lambda id: repr(id)[:20])
def test_an_invalid_id_is_refused_by_every_call_before_anything_is_written(world: World, id: Any) -> None:
    store = world.store()
    for attempt in (
        lambda: store.create(id),
        lambda: store.create(id, eager=True),
        lambda: store.open(id),
        lambda: store.open(id, create=True),
        lambda: store.open(id, create=True, exclusive=False),
        lambda: store.append(id, user("Hello"), create=True),
        lambda: store.extend(id, [user("Hello")], create=True),
        lambda: store.read(id),
        lambda: store.head(id),
        lambda: store.delete(id),
        lambda: store.activate(id),
    ):
        with pytest.raises(InvalidId) as caught:
            attempt()
        assert caught.value.id == id
        assert isinstance(caught.value, ValueError)
    assert store.list(empty=True, limit=None) == []
    assert store.locks() == []


@pytest.mark.rule("I2")
def test_an_invalid_id_that_was_generated_is_refused(world: World) -> None:
    with pytest.raises(InvalidId):
        world.store(new_id=lambda: "a\nb").create()


@pytest.mark.rule("I2")
def test_no_id_leads_out_of_the_place_of_the_store(world: World) -> None:
    world.needs("files")
    place = Path(world.place)
    stranger = place.parent / "x"
    stranger.write_text("not ours")
    before = sorted(os.listdir(place.parent))
    store = world.store()
    for id in ODD:
        with store.create(id) as session:
            session.append(user("Hello"))
        store.delete(id)
    assert sorted(os.listdir(place.parent)) == before
    assert stranger.read_text() == "not ours"


@pytest.mark.rule("I2", "W9")
def test_an_id_that_only_looks_like_one_that_is_taken_is_free(world: World) -> None:
    store = world.store()
    _begin(store, "Task")
    with store.create("task") as session:
        session.append(user("Hello"))
    with pytest.raises(AlreadyExists):
        store.create("Task")


# -- I3: references


@pytest.mark.rule("I3")
def test_a_head_names_its_session(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    store.append(store.head("a"), user("again"))
    store.extend(store.head("a"), [user("and again")])
    assert store.read(store.head("a")).head == store.head(store.head("a"))
    with store.open(store.head("a")) as session:
        assert texts(session.history()) == ["I am a", "again", "and again"]
    store.activate(store.head("a"))
    assert store.delete(store.head("a"))
    assert store.list() == []


@pytest.mark.rule("I3", "W10")
def test_a_head_does_not_name_another_session_that_has_its_id_now(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    old = store.head("a")
    store.delete("a")
    store.append("a", user("new"), create=True)
    for attempt in (
        lambda: store.read(old),
        lambda: store.head(old),
        lambda: store.open(old),
        lambda: store.open(old, exclusive=False),
        lambda: store.append(old, user("lost")),
        lambda: store.extend(old, [user("lost")]),
        lambda: store.activate(old),
    ):
        with pytest.raises(SessionNotFound):
            attempt()
    assert store.delete(old) is False
    assert texts(store.read("a").history()) == ["new"]


@pytest.mark.rule("I3")
@pytest.mark.parametrize("text", ["sess_a", "abc", "@active", "@agent/coder", "sess_abcdefx", "SESS_ABCDEF"])
def test_a_reference_takes_neither_prefixes_nor_names(world: World, text: str) -> None:
    store = world.store()
    _begin(store, "sess_abcdef")
    store.activate("sess_abcdef")
    store.names.set("agent/coder", "sess_abcdef")
    for attempt in (
        lambda: store.read(text),
        lambda: store.head(text),
        lambda: store.open(text),
        lambda: store.append(text, user("lost")),
        lambda: store.extend(text, [user("lost")]),
        lambda: store.activate(text),
    ):
        with pytest.raises(SessionNotFound) as caught:
            attempt()
        assert caught.value.ref == text
        assert isinstance(caught.value, LookupError)
    assert store.delete(text) is False


@pytest.mark.rule("I3")
def test_an_exact_id_may_begin_with_an_at_sign(world: World) -> None:
    store = world.store()
    _begin(store, "@active", "plain")
    store.activate("plain")
    assert texts(store.read("@active").history()) == ["I am @active"]
    assert store.resolve("@active") == "plain"


# -- I3: what a text means


@pytest.mark.rule("I3")
@pytest.mark.parametrize("text", ["sess_abcdef", "sess_abc", "sess_a", "abc", "a", "abcdef", "sess_"])
def test_a_prefix_of_just_one_id_means_it_with_or_without_sess(world: World, text: str) -> None:
    store = world.store()
    _begin(store, "sess_abcdef", "other")
    assert store.resolve(text) == "sess_abcdef"


@pytest.mark.rule("I3")
@pytest.mark.parametrize("text", ["s", "se", "ses", "sess"])
def test_a_prefix_that_fits_one_id_with_sess_and_without_means_that_one(world: World, text: str) -> None:
    store = world.store()
    _begin(store, "sess_sess7", "other")
    assert store.resolve(text) == "sess_sess7"


@pytest.mark.rule("I3")
def test_a_session_that_fits_in_two_ways_counts_once(world: World) -> None:
    store = world.store()
    _begin(store, "sess_s1", "sess_s2", "sess_t3")
    with pytest.raises(AmbiguousSession) as caught:
        store.resolve("s")
    assert caught.value.total == 3
    assert sorted(id for id, _ in caught.value.candidates) == ["sess_s1", "sess_s2", "sess_t3"]


@pytest.mark.rule("I3")
@pytest.mark.parametrize("id", ODD, ids=lambda id: repr(id)[:20])
def test_an_exact_id_means_itself_although_others_begin_with_it(world: World, id: str) -> None:
    store = world.store()
    _begin(store, id, *([f"{id}1", f"{id}2"] if len(id) < 500 else []))
    if not id.startswith("@"):
        assert store.resolve(id) == id
        with store.resume(id) as session:
            assert session.id == id


@pytest.mark.rule("I3")
def test_the_part_after_sess_is_exact_before_it_is_a_prefix(world: World) -> None:
    store = world.store()
    _begin(store, "sess_abc", "abcd", "abce")
    assert store.resolve("abc") == "sess_abc"


@pytest.mark.rule("I3")
@pytest.mark.parametrize(
    "text",
    [
        "a_",
        "a%",
        "%",
        "_",
        "a*",
        "*",
        "a?",
        "[a]",
        "A",
        "aß",
        "ab\U0010ffff",
        "\\",
        "'",
        '"',
        "a\x00",
        "\ud800",
        "z" * 600,
    ],
    ids=lambda text: repr(text)[:20],
)
def test_a_text_that_begins_no_id_is_not_found_whatever_is_in_it(world: World, text: str) -> None:
    store = world.store()
    _begin(store, "abc", "abd", "ass", "a")
    for attempt in (store.resolve, store.resume):
        with pytest.raises(SessionNotFound) as caught:
            attempt(text)
        assert caught.value.ref == text
    assert len(store.list()) == 4


@pytest.mark.rule("I3")
@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("a_", "a_b"),
        ("a%", "a%b"),
        ("ü", "übung"),
        ("👩‍💻", "👩‍💻 task"),
        ("\U0010ffff", "\U0010ffffx"),
        ("T", "Task"),
    ],
)
def test_every_character_of_a_prefix_is_literal(world: World, text: str, id: str) -> None:
    store = world.store()
    _begin(store, id, "axb", "task", "u\u0308bung", "\uffff")
    assert store.resolve(text) == id


@pytest.mark.rule("I3")
def test_a_prefix_of_several_ids_is_ambiguous_with_the_total_and_ten_candidates_with_titles(
    world: World,
) -> None:
    store = world.store()
    ids = [f"sess_a{i:02}" for i in range(70)]
    _begin(store, *ids, "b")
    for attempt in (store.resolve, store.resume):
        with pytest.raises(AmbiguousSession) as caught:
            attempt("a")
        assert caught.value.text == "a"
        assert caught.value.total == 70
        assert len(caught.value.candidates) == 10
        assert all(id in ids and title == f"I am {id}" for id, title in caught.value.candidates)
        assert isinstance(caught.value, LookupError)


@pytest.mark.rule("I3")
def test_a_text_that_begins_one_id_with_sess_and_one_without_is_ambiguous(world: World) -> None:
    store = world.store()
    _begin(store, "abc1", "sess_abc2")
    with pytest.raises(AmbiguousSession) as caught:
        store.resolve("abc")
    assert caught.value.total == 2
    assert sorted(id for id, _ in caught.value.candidates) == ["abc1", "sess_abc2"]


@pytest.mark.rule("I3", "W8")
def test_a_prefix_finds_sessions_that_lists_leave_out(world: World) -> None:
    store = world.store()
    store.append("sess_quiet", assistant("Nobody asked"), create=True)
    assert store.list() == []
    assert store.resolve("qui") == "sess_quiet"


@pytest.mark.rule("I3")
def test_a_prefix_is_looked_for_among_all_sessions(world: World) -> None:
    store = world.store()
    _begin(store, "sess_old", *(f"t{i}" for i in range(120)))
    assert store.resolve("ol") == "sess_old"


@pytest.mark.rule("I3")
@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_a_blank_text_counts_as_absent(world: World, text: str) -> None:
    store = world.store()
    for attempt in (store.resolve, store.resume):
        with pytest.raises(NoSessions):
            attempt(text)
    _begin(store, "a", "b")
    store.activate("a")
    assert store.resolve(text) == "a"
    with store.resume(text) as session:
        assert session.id == "a"


@pytest.mark.rule("I3")
def test_a_prefix_of_a_deleted_session_is_not_found(world: World) -> None:
    store = world.store()
    _begin(store, "sess_abc")
    store.delete("sess_abc")
    with pytest.raises(SessionNotFound):
        store.resolve("abc")


@pytest.mark.rule("I3")
@pytest.mark.parametrize(
    "text", ["@", "@nobody", "@agent/coder", "@agent/nobody/current", "@ active", "@a\x00", "@/", "@../x"]
)
def test_a_name_that_is_not_there_is_not_found_and_is_never_a_prefix(world: World, text: str) -> None:
    store = world.store()
    _begin(store, "@nobody else", "@agent/coder/7", "nobody", "agent/coder")
    with pytest.raises(SessionNotFound) as caught:
        store.resolve(text)
    assert caught.value.ref == text


@pytest.mark.rule("I3", "I5")
def test_a_name_means_the_session_that_it_points_at(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.names.move({"agent/coder/current": "a", "agent/x": "b"})
    assert store.resolve("@agent/coder/current") == "a"
    with store.resume("@agent/x") as session:
        assert session.id == "b"


@pytest.mark.rule("I4", "I5")
def test_a_name_never_means_a_session_that_is_gone(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    store.names.set("agent/coder", "a")
    store.delete("a")
    for attempt in (store.resolve, store.resume):
        with pytest.raises(SessionNotFound):
            attempt("@agent/coder")
    assert store.names.get("agent/coder") is None
    assert store.names.list() == {}
    _begin(store, "a")  # another session, that nobody has named
    assert store.names.get("agent/coder") is None
    with pytest.raises(SessionNotFound):
        store.resolve("@agent/coder")


# -- I4


@pytest.mark.rule("I4")
def test_nothing_is_active_in_a_new_store(world: World) -> None:
    store = world.store()
    assert store.active() is None
    _begin(store, "a")  # appended to, and not opened
    store.read("a")
    assert store.active() is None


@pytest.mark.rule("I4")
def test_what_was_last_created_opened_or_resumed_is_active(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    with store.open("a"):
        assert store.active() == "a"
    with store.create("c", eager=True) as session:
        assert store.active() == "c"
        session.append(user("Hello"))
    with store.resume("b"):
        assert store.active() == "b"
    with store.create("d") as session:
        session.append(user("Hello"))
        assert store.active() == "d"
    assert store.active() == "d"


@pytest.mark.rule("I4")
def test_a_session_that_is_opened_without_being_activated_is_not_active(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.activate("a")
    with store.open("b", activate=False), store.create("c", activate=False, eager=True):
        with store.create("d", activate=False) as session:
            session.append(user("Hello"))
            assert store.active() == "a"


@pytest.mark.rule("I4", "W12")
def test_a_shared_handle_activates_only_when_asked_to(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.activate("a")
    with store.open("b", exclusive=False):
        assert store.active() == "a"
    with store.open("b", exclusive=False, activate=True):
        assert store.active() == "b"


@pytest.mark.rule("I4")
def test_active_can_be_set_and_cleared(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    store.activate("a")
    assert store.active() == "a"
    store.activate(None)
    assert store.active() is None
    store.activate(None)
    assert store.active() is None


@pytest.mark.rule("I4")
def test_a_session_that_is_not_there_cannot_be_made_the_active_one(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    store.activate("a")
    with pytest.raises(SessionNotFound):
        store.activate("b")
    assert store.active() == "a"


@pytest.mark.rule("I4")
def test_deleting_the_active_session_leaves_none_active(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.activate("a")
    store.delete("b")
    assert store.active() == "a"
    store.delete("a")
    assert store.active() is None
    _begin(store, "a")
    assert store.active() is None


@pytest.mark.rule("I4")
def test_a_session_that_another_engine_deleted_is_not_active(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.activate("a")
    world.other().delete("a")
    assert store.active() is None
    with store.resume() as session:
        assert session.id == "b"


@pytest.mark.rule("I4")
def test_a_session_that_another_process_deleted_is_not_active(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.activate("a")
    assert world.elsewhere(_remove, "a")
    assert store.active() is None
    assert store.resolve("") == "b"


@pytest.mark.rule("I4", "W8")
def test_a_session_that_was_removed_at_close_is_not_active(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    with store.create(eager=True) as session:
        assert store.active() == session.id
    assert store.active() is None
    with store.resume() as session:
        assert session.id == "a"


@pytest.mark.rule("I4")
def test_the_active_session_stays_active_after_reopening(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.activate("a")
    assert world.reopened().active() == "a"


@pytest.mark.rule("I4")
def test_the_active_session_is_active_for_every_process(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.activate("a")
    assert world.elsewhere(_active) == "a"
    world.elsewhere(_set_active, "b")
    assert store.active() == "b"


@pytest.mark.rule("I4")
def test_resume_takes_the_active_session_rather_than_a_newer_one(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.activate("a")
    store.append("b", user("later"))
    with store.resume() as session:
        assert session.id == "a"


@pytest.mark.rule("I4")
def test_resume_takes_the_newest_session_where_none_is_active(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.append("a", user("later"))
    with store.resume() as session:
        assert session.id == "a"


@pytest.mark.rule("I4")
def test_resume_for_an_agent_or_a_workspace_passes_over_an_active_session_of_another(
    world: World, tmp_path: Path
) -> None:
    store = world.store()
    for id, agent, folder in (("a", "coder", "x"), ("b", "coder", "y"), ("c", "critic", "x")):
        with store.create(id, agent=agent, workspace=tmp_path / folder) as session:
            session.append(user("Hello"))
    assert store.active() == "c"
    with store.resume(agent="coder") as session:
        assert session.id == "b"
    store.activate("c")
    with store.resume(workspace=tmp_path / "y" / ".." / "x/") as session:
        assert session.id == "c"
    with store.resume(agent="coder", workspace=tmp_path / "x") as session:
        assert session.id == "a"
    assert store.active() == "a"


@pytest.mark.rule("I4")
def test_there_is_nothing_to_resume_where_nothing_matches(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    store.activate("a")
    with pytest.raises(NoSessions):
        store.resume(agent="nobody")
    with pytest.raises(NoSessions):
        store.resume(workspace=world.place + "/nowhere")


@pytest.mark.rule("I4")
def test_resume_in_an_empty_store_is_refused_and_creates_nothing(world: World) -> None:
    store = world.store()
    with pytest.raises(NoSessions) as caught:
        store.resume()
    assert isinstance(caught.value, LookupError)
    assert store.list(empty=True) == []
    assert store.latest() is None


@pytest.mark.rule("I4", "W8")
def test_resume_begins_a_session_where_it_may(world: World, tmp_path: Path) -> None:
    store = world.store()
    with store.resume(create=True, agent="coder", workspace=tmp_path) as session:
        assert store.list(empty=True) == []
        session.append(user("Hello"))
        assert session.head.agent == "coder"
        assert session.head.workspace == store.workspace(tmp_path)
    with store.resume(create=True, agent="coder") as again:
        assert again.id == session.id


@pytest.mark.rule("I4")
def test_resume_begins_nothing_for_a_text_that_means_nothing(world: World) -> None:
    store = world.store()
    with pytest.raises(SessionNotFound):
        store.resume("nobody", create=True)
    assert store.list(empty=True) == []


# -- I5


@pytest.mark.rule("I5")
def test_a_name_that_nobody_gave_points_at_nothing(world: World) -> None:
    store = world.store()
    assert store.names.get("agent/coder") is None
    assert store.names.list() == {}
    assert store.names.delete("agent/coder") is False


@pytest.mark.rule("I5")
def test_names_of_one_group_are_moved_in_one_write(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b", "c")
    store.names.move({"agent/current": "a", "agent/before": "b"})
    _, version = world.engine.document(NAMES, "agent") or (b"", "")
    store.names.move({"agent/current": "c", "agent/before": "a"})
    assert store.names.list("agent/") == {"agent/before": "a", "agent/current": "c"}
    assert (world.engine.document(NAMES, "agent") or (b"", ""))[1] != version
    store.names.move({"agent/current": None, "agent/x": "b"})
    assert store.names.list("agent/") == {"agent/before": "a", "agent/x": "b"}


@pytest.mark.rule("I5")
def test_names_of_several_groups_do_not_move_together(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    with pytest.raises(ValueError, match="group"):
        store.names.move({"agent/current": "a", "other/current": "a"})
    assert store.names.list("agent/") == store.names.list("other/") == {}


@pytest.mark.rule("I5")
def test_a_name_of_a_session_that_is_not_there_is_not_given(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    with pytest.raises(SessionNotFound):
        store.names.move({"agent/current": "a", "agent/before": "nobody"})
    assert store.names.get("agent/current") is None


@pytest.mark.rule("I5")
@pytest.mark.parametrize("name", ["", " ", "a\n", "\ud800", "x" * 513])
def test_a_name_follows_the_rules_of_ids(world: World, name: str) -> None:
    store = world.store()
    _begin(store, "a")
    with pytest.raises(InvalidId):
        store.names.set(name, "a")
    with pytest.raises(InvalidId):
        store.names.get(name)


@pytest.mark.rule("I5")
def test_a_name_that_somebody_else_moved_meanwhile_is_not_moved(world: World) -> None:
    store, other = world.store(), world.other()
    _begin(store, "a", "b", "c")
    store.names.set("agent/x", "a", expect=None)
    other.names.set("agent/x", "b", expect="a")
    for wrong in ("a", None):
        with pytest.raises(Conflict, match="'b'"):
            store.names.set("agent/x", "c", expect=wrong)
    assert store.names.get("agent/x") == "b"


@pytest.mark.rule("I5")
def test_a_document_that_somebody_else_replaced_meanwhile_is_not_replaced(world: World) -> None:
    engine = world.engine
    old = engine.put_document(NAMES, "agent", b"1", expect="")
    assert old
    new = engine.put_document(NAMES, "agent", b"2", expect=old)
    assert new
    assert new != old
    for wrong in (old, ""):
        assert engine.put_document(NAMES, "agent", b"3", expect=wrong) is None
        assert not engine.drop_document(NAMES, "agent", expect=wrong)
    assert engine.put_document(NAMES, "other", b"3", expect=old) is None
    assert engine.documents(NAMES) == ["agent"]


@pytest.mark.rule("I5", "I2")
def test_names_that_are_nearly_the_same_do_not_mix(world: World) -> None:
    store = world.store()
    for id in ODD:
        _begin(store, id)
        store.names.set(id, id)
        store.names.set(f"{id}/{id}"[:512], id)
    for id in ODD:
        assert store.names.get(id) == id
        assert store.names.get(f"{id}/{id}"[:512]) == id
    assert set(ODD) <= set(world.reopened().names.list())


@pytest.mark.rule("I5")
def test_names_stay_after_reopening(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    store.names.set("agent/ü", "a")
    assert world.reopened().names.list("agent/") == {"agent/ü": "a"}


@pytest.mark.rule("I5")
def test_of_several_who_give_names_at_once_none_undoes_what_another_did(world: World) -> None:
    stores = [world.store(), world.store(), world.other(), world.other()]
    _begin(stores[0], "a")
    failed: list[BaseException] = []

    def give(place: int) -> None:
        try:
            for n in range(20):
                stores[place].names.set(f"agent/{place}/{n}", "a")
        except HansardError as error:
            failed.append(error)

    threads = [threading.Thread(target=give, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(stores[0].names.list("agent/")) == 80
