"""H9: however a history is read, it is the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hansard.engines.memory import Memory
from hansard.session import Session, View
from hansard.store import Store
from hansard.testing.chat import answer, assistant, call, texts, user, users
from hansard.testing.world import World
from hansard.views import head as heads
from hansard.views import history as views


def _told(view: View) -> list[Any]:
    history = view.history()
    return [list(history), history.seq, history.summary, history.token_count]


def _elsewhere(store: Store, id: str) -> list[Any]:
    view = store.read(id)
    return [*_told(view), views.fold(view.records())]


def _from_the_base(store: Store, id: str) -> list[Any]:
    """Read from the base alone: nothing but the head, and the spans that it names."""
    head = store.head(id)
    read = store._engine.read
    return [
        entry.payload
        for entry in views.entries(
            head.base, head.seq, lambda spans, kinds: read(id, spans=spans, kinds=kinds)
        )
    ]


class _Course:
    """A session to which things happen as the dice fall, the same for the same seed."""

    def __init__(self, seed: int, store: Store, other: Store, id: str = "s") -> None:
        self.dice = random.Random(seed)
        self.store, self.other, self.id = store, other, id
        self.session: Session = store.create(id)
        self.session.append(user("begin"))
        self.said = 0

    def text(self) -> str:
        self.said += 1
        return self.dice.choice(["continue", f"message {self.said}"])

    def several(self) -> list[Any]:
        return users(*(self.text() for _ in range(self.dice.randint(1, 4))))

    def step(self) -> None:
        dice, session = self.dice, self.session
        match dice.randrange(16):
            case 0 | 1:
                session.append(user(self.text()))
            case 2:
                session.extend(self.several())
            case 3:
                id = f"c{self.said}"
                session.extend([call(id), answer(id), assistant(self.text())])
            case 4:
                self.other.extend(self.id, self.several())
            case 5:
                session.checkpoint([user(self.text()), *session.history()[-dice.randint(1, 4) :]])
            case 6:
                session.checkpoint(self.several(), summary=self.text(), token_count=dice.randint(0, 99))
            case 7:
                session.checkpoint(self.several(), upto=dice.randint(session.head.base.after, session.seq))
            case 8:
                session.truncate(dice.randint(-1, 6), pairs=dice.random() < 0.7)
            case 9:
                kept = list(session.history())
                for _ in range(dice.randint(0, 2)):
                    kept.insert(dice.randint(0, len(kept)), user(self.text()))
                if kept and dice.random() < 0.5:
                    kept.pop(dice.randrange(len(kept)))
                session.set_history(kept)
            case 10:
                session.set_history([*session.history(), *self.several()])
            case 11:
                session.pop(dice.randint(0, 3), pairs=dice.random() < 0.5)
            case 12:
                if dice.random() < 0.3:
                    session.clear()
            case 13:
                session.rewind(dice.randint(0, session.seq))
            case 14:
                session.set_summary(self.text())
            case 15:
                session.add_usage({"input_tokens": 1})
                self.other.append(self.id, {"x": 1}, kind="mine.own")


@pytest.mark.rule("H9", "H1")
@pytest.mark.parametrize("seed", range(12))
def test_a_history_is_the_same_however_it_is_read(world: World, seed: int) -> None:
    store, other = world.store(), world.other()
    course = _Course(seed, store, other)
    for _ in range(30):
        course.step()
        told = _told(course.session)
        history = told[0]
        for place in (store, other):
            view = place.read("s")
            assert _told(view) == told
            assert views.fold(view.records()) == history
            assert _from_the_base(place, "s") == history
            for limit in (0, 1, 2, len(history) - 1, len(history), len(history) + 1):
                if limit >= 0:
                    assert view.history(limit) == history[max(0, len(history) - limit) :]
            assert heads.fold(view.records()) == view.head
        assert course.session.head == other.head("s")
    course.session.close()
    again = world.reopened()
    assert _told(again.read("s")) == told
    with again.open("s") as session:
        assert _told(session) == told
        session.append(user("and on"))
        assert session.history() == [*history, user("and on")]


@pytest.mark.rule("H9")
@pytest.mark.parametrize("seed", range(4))
def test_a_history_is_the_same_for_a_reader_in_another_process(world: World, seed: int) -> None:
    course = _Course(seed, world.store(), world.other())
    for _ in range(2):
        for _ in range(12):
            course.step()
        told = _told(course.session)
        assert world.elsewhere(_elsewhere, "s") == [*told, told[0]]


@pytest.mark.rule("H9")
@pytest.mark.parametrize("seed", range(8))
def test_a_history_is_the_same_on_this_engine_and_in_memory(world: World, seed: int) -> None:
    here = _Course(seed, world.store(), world.other())
    memory = Store(Memory())
    there = _Course(seed, memory, memory)
    for _ in range(40):
        here.step()
        there.step()
        assert _told(here.session) == _told(there.session)
    mine = [(r.kind, r.seq, r.id, r.batch, r.usage) for r in here.session.records()]
    assert mine == [(r.kind, r.seq, r.id, r.batch, r.usage) for r in there.session.records()]
    assert [r.data for r in here.session.records(after=0)] == [r.data for r in there.session.records(after=0)]
    there.session.close()
    memory.close()


@pytest.mark.rule("H9", "H6")
@pytest.mark.parametrize("seed", range(4))
def test_every_moment_of_a_session_can_be_had_again(world: World, seed: int) -> None:
    course = _Course(seed, world.store(), world.other())
    then: dict[int, tuple[list[Any], str]] = {}
    for _ in range(25):
        course.step()
        history, seq, summary, _ = _told(course.session)
        then[seq] = (history, summary)
    for seq, (history, summary) in then.items():
        course.session.rewind(seq)
        assert course.session.history() == history
        assert course.session.summary() == summary
        assert _from_the_base(world.store(), "s") == history


@pytest.mark.rule("H9")
def test_a_handle_that_stays_open_and_one_that_is_opened_anew_give_the_same(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(users("a", "b", "c"))
        session.truncate(2)
    for i in range(5):
        with store.open("s") as session:
            before = _told(session)
            session.append(user(f"{i}"))
            session.truncate(3)
            after = _told(session)
        with world.other().open("s") as session:
            assert _told(session) == after != before
    assert texts(store.read("s").history()) == ["2", "3", "4"]
