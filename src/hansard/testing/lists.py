"""L1 to L3: in what order sessions are listed, what they are called, and how many messages they have."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hansard.store import Store, iterate
from hansard.testing.chat import answer, assistant, used, user, users
from hansard.testing.world import World, hear, say

NOON = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)

FAMILY = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
"""Five code points that a person counts as one character."""


class Clock:
    """A clock that a test sets; it goes on by a second at each look."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def _session(store: Store, id: str, text: str = "Hello", **head: Any) -> None:
    """A session that somebody has said something in."""
    with store.create(id, activate=False, **head) as session:
        session.append(user(text))


def _ids(store: Store, **which: Any) -> list[str]:
    return [head.id for head in store.list(**which)]


# -- order


@pytest.mark.rule("L1")
def test_a_list_begins_with_the_newest_activity(world: World) -> None:
    store = world.store(clock=Clock())
    for id in ("first", "second", "third"):
        _session(store, id)
    assert _ids(store) == ["third", "second", "first"]
    store.append("first", user("again"))
    assert _ids(store) == ["first", "third", "second"]


@pytest.mark.rule("L1")
def test_activity_is_a_message_and_nothing_else(world: World) -> None:
    store = world.store(clock=Clock())
    for id in ("older", "newer"):
        _session(store, id)
    before = store.head("older").updated_at
    with store.open("older") as session:
        session.rename("Another title")
        session.pin()
        session.label("urgent")
        session.update(status="done", meta={"k": 1})
        session.set_summary("It was said.")
        session.add_usage({"input_tokens": 5})
        session.append({"n": 1}, kind="app.note")
        session.checkpoint([user("Hello")])
        session.clear()
    assert _ids(store) == ["newer", "older"]
    assert store.head("older").updated_at == before


@pytest.mark.rule("L1")
def test_activity_is_when_a_message_was_said_where_that_is_known(world: World) -> None:
    store = world.store(clock=Clock())
    _session(store, "now")
    store.append("imported", user("long ago"), create=True, time=NOON - timedelta(days=700))
    assert _ids(store) == ["now", "imported"]
    assert store.head("imported").updated_at == NOON - timedelta(days=700)


@pytest.mark.rule("L1")
def test_times_are_compared_as_instants_whatever_their_zone(world: World) -> None:
    store = world.store(clock=Clock())
    east, west = timezone(timedelta(hours=9)), timezone(timedelta(hours=-8))
    store.append("earlier", user("x"), create=True, time=datetime(2026, 4, 1, 20, tzinfo=east))
    store.append("later", user("x"), create=True, time=datetime(2026, 4, 1, 4, tzinfo=west))
    assert _ids(store) == ["later", "earlier"]


@pytest.mark.rule("L1")
def test_a_stated_time_more_than_a_day_ahead_is_ignored(world: World) -> None:
    store = world.store(clock=Clock())
    store.append("far ahead", user("x"), create=True, time=NOON + timedelta(days=400))
    _session(store, "now")
    store.append("a little ahead", user("x"), create=True, time=NOON + timedelta(hours=20))
    assert _ids(store) == ["a little ahead", "now", "far ahead"]


@pytest.mark.rule("L1")
def test_a_session_written_by_a_clock_that_was_ahead_is_not_the_newest_for_ever(world: World) -> None:
    clock = Clock()
    store = world.store(clock=clock)
    _session(store, "touched")
    clock.now = NOON + timedelta(days=30)
    store.append("touched", user("from a clock that is wrong"))
    _session(store, "born", "from a clock that is wrong")
    clock.now = NOON + timedelta(hours=1)
    _session(store, "now")
    assert _ids(store) == ["now", "touched", "born"]
    clock.now = NOON + timedelta(days=31)  # by now it was right
    assert _ids(store) == ["born", "touched", "now"]


@pytest.mark.rule("L1")
def test_a_clock_that_jumps_back_loses_no_session_and_no_record(world: World) -> None:
    clock = Clock()
    store = world.store(clock=clock)
    _session(store, "jumped", "one")
    clock.now = NOON - timedelta(days=2)
    store.append("jumped", user("two"))
    _session(store, "other")
    clock.now = NOON + timedelta(minutes=5)
    assert sorted(_ids(store)) == ["jumped", "other"]
    assert [message["content"] for message in store.read("jumped").history()] == ["one", "two"]


@pytest.mark.rule("L1")
def test_sessions_of_the_same_instant_stand_in_the_order_of_their_ids(world: World) -> None:
    store = world.store(clock=lambda: NOON)
    for id in ("b", "Z", "a", "é", "aa"):
        _session(store, id)
    assert _ids(store) == sorted(["b", "Z", "a", "é", "aa"])


@pytest.mark.rule("L1")
def test_a_list_can_be_in_the_order_of_creation(world: World) -> None:
    store = world.store(clock=Clock())
    for id in ("first", "second"):
        _session(store, id)
    store.append("first", user("again"))
    assert _ids(store) == ["first", "second"]
    assert _ids(store, order="created") == ["second", "first"]


@pytest.mark.rule("L1")
def test_an_order_that_there_is_not_is_refused(world: World) -> None:
    with pytest.raises(ValueError):
        world.store().list(order="size")


# -- limits and pages


@pytest.mark.rule("L1")
def test_a_list_without_a_limit_has_everything(world: World) -> None:
    store = world.store(clock=Clock())
    for n in range(60):
        store.append(f"s{n:02}", user("x"), create=True, durable=False)
    assert _ids(store, limit=None) == [f"s{n:02}" for n in reversed(range(60))]
    assert len(store.list()) == 50


@pytest.mark.rule("L1")
def test_a_limit_of_zero_is_an_empty_page(world: World) -> None:
    store = world.store()
    _session(store, "a")
    assert list(store.list(limit=0)) == []


@pytest.mark.rule("L1")
def test_a_negative_limit_is_refused(world: World) -> None:
    with pytest.raises(ValueError):
        world.store().list(limit=-1)


@pytest.mark.rule("L1")
def test_the_last_page_says_that_it_is_the_last(world: World) -> None:
    store = world.store(clock=Clock())
    for n in range(4):
        _session(store, f"s{n}")
    page = store.list(limit=2)
    assert page.next is not None
    page = store.list(limit=2, after=page.next)
    assert [head.id for head in page] == ["s1", "s0"]
    assert page.next is None
    assert store.list(limit=None).next is None


@pytest.mark.rule("L1")
@pytest.mark.parametrize("order", ["activity", "created"])
def test_pages_neither_repeat_nor_skip_while_sessions_are_added(world: World, order: str) -> None:
    clock = Clock()
    store = world.store(clock=clock)
    for n in range(20):
        if n % 3:  # some share an instant
            clock.now -= timedelta(seconds=1)
        _session(store, f"s{n:02}")
    expected = _ids(store, order=order, limit=None)
    found: list[str] = []
    page = store.list(order=order, limit=3)
    while True:
        found += [head.id for head in page]
        _session(store, f"new {len(found)}")
        if page.next is None:
            break
        page = store.list(order=order, limit=3, after=page.next)
    assert found == expected


@pytest.mark.rule("L1")
@pytest.mark.parametrize("passes", [timedelta(hours=2), timedelta(days=3)])
def test_a_session_that_was_ahead_of_now_stays_where_the_first_page_has_it(
    world: World, passes: timedelta
) -> None:
    """Its activity lies more than a day ahead when the first page is read, and less at the second."""
    clock = Clock()
    store = world.store(clock=clock)
    for id in ("oldest", "ahead", "newer", "newest"):
        _session(store, id)
    clock.now = NOON + timedelta(days=1, hours=1)
    store.append("ahead", user("by a clock that is ahead"))
    clock.now = NOON + timedelta(minutes=1)
    page = store.list(limit=2)
    assert [head.id for head in page] == ["newest", "newer"]
    clock.now += min(passes, timedelta(hours=23))
    page = store.list(limit=1, after=page.next)
    assert [head.id for head in page] == ["ahead"]
    clock.now = NOON + timedelta(minutes=1) + passes
    store.append("newer", user("of another day"))  # which is no place further down
    assert _ids(store, after=page.next) == ["oldest"]


@pytest.mark.rule("L1")
def test_pages_go_on_where_the_last_session_of_a_page_was_deleted(world: World) -> None:
    store = world.store(clock=Clock())
    for n in range(6):
        _session(store, f"s{n}")
    page = store.list(limit=2)
    store.delete(page[-1].id)
    assert [head.id for head in store.list(limit=2, after=page.next)] == ["s3", "s2"]


@pytest.mark.rule("L1")
@pytest.mark.parametrize("cursor", ["", "x", "????", "W10", "\0", "é", "WyJhY3Rpdml0eSIsMSwiYSJd"])
def test_a_cursor_that_is_none_is_refused(world: World, cursor: str) -> None:
    with pytest.raises(ValueError):
        world.store().list(after=cursor)


@pytest.mark.rule("L1")
def test_a_cursor_of_another_order_is_refused(world: World) -> None:
    store = world.store()
    _session(store, "a")
    _session(store, "b")
    cursor = store.list(limit=1).next
    with pytest.raises(ValueError):
        store.list(limit=1, order="created", after=cursor)


# -- which


@pytest.mark.rule("L1")
def test_every_filter_keeps_what_matches_and_all_of_them_are_anded(world: World, tmp_path: Path) -> None:
    """The same random sessions, asked for in many ways, against a plain list of them."""
    clock = Clock()
    store = world.store(clock=clock)
    chance = random.Random(7)
    known: list[dict[str, Any]] = []
    folders = [str(tmp_path / name) for name in ("one", "two")]
    for n in range(40):
        one: dict[str, Any] = {
            "agent": chance.choice(["coder", "writer"]),
            "model": chance.choice(["m1", "m2", "m3"]),
            "workspace": chance.choice(folders),
            "labels": chance.sample(["red", "green", "blue"], chance.randrange(3)),
            "meta": {"user": chance.choice([1, True, "1", None]), "deep": {"a": [chance.randrange(2)]}},
        }
        pinned, status = chance.random() < 0.3, chance.choice(["active", "done"])
        with store.create(f"s{n:02}", activate=False, **one) as session:
            if chance.random() < 0.9:
                session.append(user("x"), durable=False)
            else:
                session.append(assistant("nobody asked"), durable=False)
            session.pin(pinned)
            session.update(status=status)
            head = session.head
            heard = head.has_user_input
            if not heard:
                session.append({"n": 1}, kind="app.note")
        if heard:  # else it went when it was closed
            known.append({**one, "id": head.id, "pinned": pinned, "status": status, "at": head.updated_at})
    known.reverse()
    middle = known[len(known) // 2]["at"]

    def expected(**which: Any) -> list[str]:
        found = []
        for one in known:
            fields = all(
                one[f] == which[f] for f in ("agent", "model", "workspace", "status", "pinned") if f in which
            )
            labels = set(which.get("labels", ())) <= set(one["labels"])
            meta = all(repr(one["meta"].get(k, ...)) == repr(v) for k, v in which.get("meta", {}).items())
            since = "since" not in which or one["at"] >= which["since"]
            until = "until" not in which or one["at"] < which["until"]
            if fields and labels and meta and since and until:
                found.append(one["id"])
        return found

    asked: list[dict[str, Any]] = [
        {},
        {"agent": "coder"},
        {"model": "m2"},
        {"workspace": folders[0]},
        {"status": "done"},
        {"pinned": True},
        {"pinned": False},
        {"labels": ["red"]},
        {"labels": ["red", "blue"]},
        {"meta": {"user": 1}},
        {"meta": {"user": True}},
        {"meta": {"user": "1"}},
        {"meta": {"user": None}},
        {"meta": {"deep": {"a": [1]}}},
        {"since": middle},
        {"until": middle},
        {"since": middle, "agent": "writer", "labels": ["green"]},
        {"model": "m1", "status": "active", "pinned": False, "meta": {"deep": {"a": [0]}}},
        {"agent": "nobody"},
        {"meta": {"none": 1}},
    ]
    for which in asked:
        assert _ids(store, limit=None, **which) == expected(**which), which
        assert [head.id for head in iterate(store, limit=3, **which)] == expected(**which), which


@pytest.mark.rule("L1")
def test_a_time_without_a_zone_is_no_filter(world: World) -> None:
    with pytest.raises(ValueError):
        world.store().list(since=datetime(2026, 5, 1))


def _listed(store: Store, **which: Any) -> list[list[Any]]:
    return [[head.id, head.title, head.messages] for head in store.list(**which)]


@pytest.mark.rule("L1", "L3")
def test_another_process_lists_what_is_being_written(world: World) -> None:
    store = world.store()
    with store.create("open") as session:
        session.append(user("One"))
        with world.beside(_lister) as lister:
            assert lister.hear() == [["open", "One", 1]]
            session.append(user("Two"), durable=False)
            lister.tell()
            assert lister.hear() == [["open", "One", 2]]
            session.rename("Three")
            lister.tell()
            assert lister.hear() == [["open", "Three", 2]]


def _lister(store: Store) -> None:
    while True:
        say(_listed(store))
        hear()


# -- titles


@pytest.mark.rule("L2")
def test_a_title_is_the_first_user_text_and_a_preview_the_last(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        session.extend(
            [
                {"role": "system", "content": "You are a coder."},
                assistant("What shall I do?"),
                user("Build a login page"),
                assistant("Done."),
                user("Now a logout page"),
                answer("c"),
                used("c"),
            ]
        )
        assert (session.head.title, session.head.preview) == ("Build a login page", "Now a logout page")
    (head,) = store.list()
    assert (head.title, head.preview) == ("Build a login page", "Now a logout page")


@pytest.mark.rule("L2")
def test_a_title_is_looked_for_in_all_user_messages(world: World) -> None:
    store = world.store()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    store.append("a", {"role": "user", "content": [image]}, create=True)
    assert store.head("a").title == ""
    store.append("a", user("  \n "))
    assert store.head("a").title == ""
    store.append("a", {"role": "user", "content": [image, {"type": "text", "text": "What is this?"}]})
    store.append("a", user("And that?"))
    assert (store.head("a").title, store.head("a").preview) == ("What is this?", "And that?")


@pytest.mark.rule("L2")
def test_white_space_in_a_title_is_folded(world: World) -> None:
    store = world.store()
    store.append("a", user("\n\t Build \r\n a\N{NO-BREAK SPACE}\u2028 login   page \n"), create=True)
    assert store.head("a").title == "Build a login page"


@pytest.mark.rule("L2")
@pytest.mark.parametrize(
    "character",
    [
        "x",
        "ü",
        "漢",
        FAMILY,
        "e\N{COMBINING ACUTE ACCENT}",
        "\N{REGIONAL INDICATOR SYMBOL LETTER D}\N{REGIONAL INDICATOR SYMBOL LETTER E}",
    ],
)
def test_a_title_has_sixty_characters_as_a_person_counts_them_and_a_preview_twice_as_many(
    world: World, character: str
) -> None:
    store = world.store()
    store.append("fits", user(character * 60), create=True)
    store.append("long", user(character * 121), create=True)
    assert store.head("fits").title == character * 60
    assert store.head("fits").preview == character * 60
    assert store.head("long").title == character * 59 + "…"
    assert store.head("long").preview == character * 119 + "…"


@pytest.mark.rule("L2")
def test_a_title_stays_when_the_history_is_changed(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        session.extend([user("First"), assistant("Yes.")])
        session.clear()
        session.append(user("Second"))
        session.checkpoint([user("Summarised")])
    assert (store.head("a").title, store.head("a").preview) == ("First", "Second")


@pytest.mark.rule("L2")
@pytest.mark.parametrize("id", ["linked", "slashed", "straight"])
def test_a_workspace_is_the_folder_whatever_way_it_is_named(world: World, tmp_path: Path, id: str) -> None:
    folder, link = tmp_path / "project", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    names = {"linked": f"{link}/", "slashed": f"{folder}///", "straight": folder}
    store = world.store()
    _session(store, id, workspace=names[id])
    assert store.head(id).workspace == os.path.realpath(folder)
    for name in names.values():
        assert _ids(store, workspace=name) == [id]
    assert _ids(store, workspace=tmp_path) == []


@pytest.mark.rule("L2")
def test_no_workspace_stays_none(world: World) -> None:
    store = world.store()
    _session(store, "a", workspace="")
    assert store.head("a").workspace == ""


# -- counts


@pytest.mark.rule("L3")
def test_messages_are_counted_whatever_way_they_were_written(world: World) -> None:
    store, other = world.store(), world.other()
    with store.create("a") as session:
        session.append(user("1"))
        session.extend([user("2"), assistant("3")])
        store.append("a", user("4"))
        other.extend("a", users("5", "6"))
        with other.open("a", exclusive=False) as shared:
            shared.append(user("7"), durable=False)
            shared.extend(users("8", "9"), durable=False)
        session.set_history([*session.history(), user("10")])
        assert session.head.messages == 10
        assert other.head("a").messages == 10
        assert [head.messages for head in other.list()] == [10]
    assert [head.messages for head in world.reopened().list()] == [10]


@pytest.mark.rule("L3")
def test_what_is_no_message_is_not_counted(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        session.append(user("1"), id="once")
        session.append(user("1"), id="once")
        session.append({"n": 1}, kind="app.note")
        session.add_usage({"input_tokens": 1})
        session.rename("x")
        session.append(user("2"))
        session.pop()
        session.truncate(0)
        session.rewind(1)
        session.checkpoint(users("a", "b", "c"))
        assert session.head.messages == 2
        assert store.head("a").messages == len(list(session.records(kinds="message"))) == 2


@pytest.mark.rule("L3", "W11")
@pytest.mark.parametrize("where", ["the same process", "another engine"])
def test_what_a_holder_writes_after_a_guest_has_left_is_counted(world: World, where: str) -> None:
    store, other = world.store(), world.other()
    with store.create("a") as session:
        session.append(user("1"))
        with (store if where == "the same process" else other).open("a", exclusive=False) as guest:
            guest.append(user("2"))
        assert [head.messages for head in other.list()] == [2]
        session.append(user("3"))
        session.append(user("4"))
        assert [(head.messages, head.preview) for head in other.list()] == [(4, "4")]
        assert [(head.messages, head.preview) for head in store.list()] == [(4, "4")]


@pytest.mark.rule("L3")
def test_every_head_of_a_session_says_the_same(world: World) -> None:
    store, other = world.store(), world.other()
    with store.create("a", agent="coder", labels=["x"], meta={"k": [1]}) as session:
        session.append(user("1"), usage={"input_tokens": 3})
        session.extend(users("2", "3"))
        session.checkpoint([user("all")], token_count=7, summary="all")
        heads = [
            session.head,
            store.head("a"),
            other.head("a"),
            store.read("a").head,
            *store.list(),
            *other.list(),
        ]
    heads += [*store.list(), *world.reopened().list()]
    assert all(head == heads[0] for head in heads)
