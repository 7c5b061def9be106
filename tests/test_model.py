"""Random lives of a store, beside a plain model of it: after every step both say the same.

The model is lists and dicts (`tests/plain.py`) and knows nothing of files, catalogs or parts of a history.
What happens to a store here: several handles of a session, a second store in this process and one in
another, catalogs that are lost or turn into garbage, handles that nobody closed, a clock that jumps.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import hansard
from tests.neighbour import Neighbour
from tests.plain import Known, Log, edited, messages, pairs, same, user

RUNS = 300
"""Runs of each part; with --full ten times as many."""

PARTS = 2
STEPS = 50
HANDLES = 5
DOCTOR = 10
"""Steps between two visits of the doctor."""

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)

IDS = (
    "sess_a",
    "sess_ab",
    "sess_s1",
    "ab",
    "A/b",
    "a/b",
    "a:b",
    "\u00e4.",
    "a\u0308.",
    "con",
    "=~ =2f",
    "长" * 200,
)
REFS = ("a", "ab", "s", "sess", "sess_a", "sess_s1", "长", "长" * 200, "A", "a/", "none", "@active", "", " ")
AGENTS = (None, "coder", "writer")
FOLDERS = (None, "/w/one", "/w/one/", "/w/two")
LABELS = ((), ("red",), ("red", "grün"))
METAS: tuple[dict[str, Any] | None, ...] = (None, {"n": 1}, {"n": 1.5}, {"n": True, "deep": {"a": [None]}})
STATUSES = ("active", "done", "failed")

which = st.integers(0, HANDLES - 1)
ids = st.sampled_from(IDS[:5]) | st.sampled_from(IDS)
said = messages()
several = st.lists(said, max_size=3)
keys = st.sampled_from((None, None, None, "k1", "k2", "k3"))
expects = st.sampled_from((None, None, None, None, "right", "right", "wrong", "none"))
places = st.integers(0, 99)
times = st.sampled_from((None, None, None, -3, 0.5, 2, 400))
usages = st.sampled_from((None, None, {"input_tokens": 12, "output_tokens": 3}))
heads = st.fixed_dictionaries(
    {
        "agent": st.sampled_from(AGENTS),
        "workspace": st.sampled_from(FOLDERS),
        "labels": st.sampled_from((None, *LABELS)),
        "meta": st.sampled_from(METAS),
        "title": st.sampled_from((None, None, "A title", "")),
    }
)

REFUSALS = (hansard.HansardError, ValueError)
numbers = count(1)


class Hand:
    """A handle, and what the model knows of it. `log` is None as long as nothing is written."""

    def __init__(self, session: hansard.Session, id: str, log: Log | None, **facts: Any) -> None:
        self.session = session
        self.id = id
        self.log = log
        self.known = Known()
        if log is not None:
            self.known.look(log)
        self.exclusive: bool = facts["exclusive"]
        self.second: bool = facts.get("second", False)
        self.born: bool = facts.get("born", False)
        self.joins: bool = facts.get("joins", False)
        self.activate: bool = facts.get("activate", False)
        self.head: dict[str, Any] = facts.get("head", {})


class House(RuleBasedStateMachine):
    """A store and its model. `engine` says which kind."""

    engine = ""
    neighbour: Neighbour

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.made = count(1)
        self.steps = 0
        self.logs: dict[str, Log] = {}
        self.hands: list[Hand] = []
        self.leases: dict[str, Hand] = {}
        self.views: list[tuple[hansard.View, Log, int]] = []
        self.active: str | None = None
        self.acting: Hand | None = None
        self.touched: Log | None = None
        self.next_door = False  # whether the neighbour has the store open
        self.garbled = False  # whether the catalog was broken while it was open
        self.blind = False  # whether one in memory stands for it, as somebody else has it open too
        self.root = ""
        if self.engine == "files":
            memory = Path("/dev/shm")
            self.root = tempfile.mkdtemp(prefix="hansard-", dir=memory if memory.is_dir() else None)
        self.url = f"{self.root}/store" if self.root else f"memory:model-{next(numbers)}"
        self.store = self.open_store()
        self.second = self.open_store()

    def open_store(self) -> hansard.Store:
        return hansard.open(self.url, clock=lambda: self.now, new_id=lambda: f"sess_new{next(self.made)}")

    def teardown(self) -> None:
        self.leave()
        for store in (self.store, self.second):
            with suppress(hansard.HansardError):
                store.close()
        if self.root:
            shutil.rmtree(self.root)

    def leave(self) -> None:
        """The neighbour closes the store."""
        if self.next_door:
            self.neighbour.ask("close")
        self.next_door = False

    # -- the comparison

    def agree(self, real: Callable[[], Any], plain: Callable[[], Any]) -> Any:
        """Both do it, and the result is returned; or both refuse it alike, and it is None."""
        refusal = refused = None
        try:
            wanted = plain()
        except REFUSALS as error:
            refusal = told(error)
        if refusal is not None:
            try:
                real()
            except REFUSALS as error:  # not pytest.raises, which would keep a handle alive in its traceback
                refused = told(error)
            assert refused == refusal
            return None
        found = real()
        if isinstance(wanted, dict):
            check_record(found, wanted)
        elif isinstance(wanted, list) and wanted and isinstance(wanted[0], dict) and "seq" in wanted[0]:
            for one, other in zip(found, wanted, strict=True):
                check_record(one, other)
        elif wanted is not None:
            assert same(found, wanted)
        return found

    def check_invariants(self, *arguments: Any, **more: Any) -> None:
        """After every step."""
        super().check_invariants(*arguments, **more)
        self.steps += 1
        if self.touched is not None and not self.touched.gone:
            self.check_session(self.touched)
        hand = self.acting
        # now and then it is not asked, so that it comes to change what it has not seen
        if hand is not None and hand.log is not None and not hand.log.gone and self.steps % 3:
            check_history(hand.session.history(), hand.log)
            hand.known.look(hand.log)
        self.acting = self.touched = None
        if self.steps % 5 == 0:
            self.check_lists()
        if self.steps % DOCTOR == 0:
            self.check_health()
        self.now += timedelta(seconds=1)

    def check_session(self, log: Log) -> None:
        view = self.store.read(log.id)
        check_history(view.history(), log)
        check_head(view.head, log)

    def check_lists(self) -> None:
        found = (self.second if self.steps % 2 else self.store).list(limit=None, empty=True)
        assert [head.id for head in found] == self.listed(empty=True)
        for head in found:
            check_head(head, self.logs[head.id])
        assert self.store.active() == self.active

    def check_health(self) -> None:
        findings = [found for found in self.store.doctor().findings if not self.expected(found)]
        assert not findings
        assert sorted(holder.session for holder in self.store.locks()) == sorted(self.leases)

    def expected(self, found: hansard.Finding) -> bool:
        """A catalog that this test broke was set aside, or replaced by one in memory."""
        if found.kind == "aside":
            return "catalog.db" in found.place
        return self.blind and found.kind == "catalog" and found.session is None

    def listed(self, *, empty: bool = False, **wanted: Any) -> list[str]:
        """The ids that a list has, in order."""
        latest = self.now + DAY
        ranked = []
        for log in self.logs.values():
            head = log.head()
            if (head["input"] or empty) and fits(head, wanted):
                moments = [moment for moment in (head["updated_at"], head["created_at"]) if moment <= latest]
                ranked.append((-(moments[0].timestamp() if moments else 0), log.id))
        return [id for _, id in sorted(ranked)]

    # -- what both have

    def hand(self, number: int) -> Hand:
        """One of the handles; where there is none, one of a session that nobody has yet."""
        if not self.hands:
            id = next(id for id in (*IDS, f"one-{self.steps}") if id not in self.logs)
            self.add(Hand(self.store.create(id), id, None, exclusive=True, born=True, activate=True))
        return self.hands[number % len(self.hands)]

    def add(self, hand: Hand) -> None:
        self.hands.append(hand)
        if hand.exclusive:
            assert hand.id not in self.leases
            self.leases[hand.id] = hand
        if hand.activate and hand.log is not None:
            self.active = hand.id
        self.acting, self.touched = hand, hand.log
        if len(self.hands) > HANDLES:
            self.drop(self.hands[0])

    def drop(self, hand: Hand, how: str = "close") -> None:
        if how == "close":
            hand.session.close()
            hand.session.close()
        else:
            self.views = [kept for kept in self.views if kept[0] is not hand.session]
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                del hand.session
                gc.collect(0)
            assert [warning.category for warning in told] == [ResourceWarning]
        self.dropped(hand)

    def dropped(self, hand: Hand) -> None:
        self.hands.remove(hand)
        if hand.exclusive:
            del self.leases[hand.id]
        log = hand.log
        if hand.born and log is not None and not log.gone and not log.head()["input"]:
            self.remove(log)

    def remove(self, log: Log) -> None:
        log.gone = True
        del self.logs[log.id]
        if self.active == log.id:
            self.active = None

    def begin(self, id: str, head: dict[str, Any]) -> Log:
        log = self.logs[id] = Log(id, self.now, head)
        return log

    def written(self, hand: Hand) -> Log:
        """The log that this handle is about to write to."""
        self.acting = hand
        if hand.log is None and not self.joined(hand):
            if hand.id in self.logs:
                raise hansard.AlreadyExists(hand.id)
            hand.log = self.begin(hand.id, hand.head)
            hand.known.look(hand.log)
            if hand.activate:
                self.active = hand.id
        log = hand.log
        assert log is not None
        if log.gone:
            raise hansard.SessionNotFound(hand.id)
        self.touched = log
        return log

    def joined(self, hand: Hand) -> bool:
        """Whether somebody else has begun the session meanwhile that this handle was to get or create."""
        if hand.log is not None or not hand.joins or hand.id not in self.logs:
            return False
        hand.log, hand.born = self.logs[hand.id], False
        if hand.activate:
            self.active = hand.id
        return True

    def asked(self, hand: Hand) -> None:
        """Who changes a history has the lease, if only for that moment."""
        holder = self.leases.get(hand.id)
        if holder is not None and holder is not hand:
            raise hansard.SessionBusy(hand.id)

    def changed(self, hand: Hand, *, always: bool = False) -> tuple[Log, Known]:
        """The log whose history this handle is about to change. Unless it writes `always`, a session that
        is not written yet has an empty one, and stays unwritten."""
        self.asked(hand)
        if hand.log is None and not self.joined(hand) and not always:
            return Log(hand.id, self.now), Known()
        return self.written(hand), hand.known

    def expect(self, log: Log | None, how: str | None) -> int | None:
        last = -1 if log is None or log.gone else log.seq
        return {None: None, "right": last, "wrong": last + 1, "none": -1}[how]

    # -- opening and closing

    @rule(id=ids | st.none(), head=heads, eager=st.booleans(), activate=st.booleans())
    def create(self, id: str | None, head: dict[str, Any], eager: bool, activate: bool) -> None:
        if id in self.logs or id in self.leases:
            refusal = hansard.AlreadyExists if id in self.logs else hansard.SessionBusy
            with pytest.raises(refusal):
                self.store.create(id, **head)
            return
        session = self.store.create(id, eager=eager, activate=activate, **head)
        given = plain_head(head)
        log = self.begin(session.id, given) if eager else None
        self.add(Hand(session, session.id, log, exclusive=True, born=True, activate=activate, head=given))

    @rule(
        id=ids,
        create=st.booleans(),
        exclusive=st.booleans(),
        second=st.booleans(),
        as_head=st.booleans(),
        head=heads,
    )
    def open(
        self, id: str, create: bool, exclusive: bool, second: bool, as_head: bool, head: dict[str, Any]
    ) -> None:
        store = self.second if second else self.store
        given = {name: value for name, value in head.items() if value is not None} if create else {}
        log = self.logs.get(id)
        refusal: type[Exception] | None = None
        if log is None and not create:
            refusal = hansard.SessionNotFound
        elif exclusive and id in self.leases:
            refusal = hansard.SessionBusy
        if refusal is not None:
            with pytest.raises(refusal):
                store.open(id, create=create, exclusive=exclusive)
            return
        ref = self.store.head(id) if as_head and log is not None else id
        session = store.open(ref, create=create, exclusive=exclusive, **given)
        self.add(
            Hand(
                session,
                id,
                log,
                exclusive=exclusive,
                second=second,
                born=log is None,
                joins=log is None,
                activate=exclusive,
                head=plain_head(given),
            )
        )

    @rule(
        text=st.sampled_from(REFS) | st.none(),
        agent=st.sampled_from(AGENTS),
        workspace=st.sampled_from(FOLDERS),
        create=st.booleans(),
    )
    def resume(self, text: str | None, agent: str | None, workspace: str | None, create: bool) -> None:
        given = {"agent": agent, "workspace": workspace}
        refusal: type[Exception] | None = None
        id = None
        try:
            id = self.latest(**given) if text is None or not text.strip() else self.resolved(text)
        except REFUSALS as error:
            refusal = type(error)
        if refusal is hansard.NoSessions and create:
            session = self.store.resume(text, create=True, agent=agent, workspace=workspace)
            fresh = plain_head(given)
            self.add(Hand(session, session.id, None, exclusive=True, born=True, activate=True, head=fresh))
            return
        if refusal is None and id in self.leases:
            refusal = hansard.SessionBusy
        if refusal is not None:
            with pytest.raises(refusal):
                self.store.resume(text, agent=agent, workspace=workspace)
            return
        assert id is not None
        session = self.store.resume(text, agent=agent, workspace=workspace)
        assert session.id == id
        self.add(Hand(session, id, self.logs[id], exclusive=True, activate=True))

    def latest(self, **wanted: Any) -> str:
        """The active session if it fits, else the newest that does."""
        if self.active is not None and fits(self.logs[self.active].head(), wanted):
            return self.active
        found = self.listed(**wanted)
        if not found:
            raise hansard.NoSessions("there is none")
        return found[0]

    def resolved(self, text: str) -> str:
        if text == "@active":
            if self.active is None:
                raise hansard.SessionNotFound(text)
            return self.active
        for id in (text, f"sess_{text}"):
            if id in self.logs:
                return id
        found = [id for id in self.logs if id.startswith((text, f"sess_{text}"))]
        if not found:
            raise hansard.SessionNotFound(text)
        if len(found) > 1:
            raise hansard.AmbiguousSession(text, len(found), [])
        return found[0]

    @rule(text=st.sampled_from(REFS))
    def resolve(self, text: str) -> None:
        def plain() -> str:
            return self.resolved(text) if text.strip() else self.latest()

        self.agree(lambda: self.store.resolve(text), plain)

    @rule(number=which)
    def close(self, number: int) -> None:
        if self.hands:
            self.drop(self.hand(number))

    @rule(number=which)
    def abandon(self, number: int) -> None:
        """Nobody closes it, and it is gone."""
        if self.hands:
            self.drop(self.hand(number), "abandon")

    @rule(both=st.booleans())
    def reopen(self, both: bool) -> None:
        for hand in list(self.hands):
            if both or not hand.second:
                self.dropped(hand)
        self.views.clear()
        self.store.close()
        if both and self.root:
            self.second.close()
            self.leave()
            self.garbled = self.blind = False
            self.second = self.open_store()
        elif both:
            for hand in list(self.hands):
                hand.session.close()
            second, self.second = self.second, self.open_store()
            second.close()
        self.store = self.open_store()

    # -- saying something

    @rule(number=which, payload=said, key=keys, how=expects, time=times, usage=usages, durable=st.booleans())
    def append(
        self,
        number: int,
        payload: Any,
        key: str | None,
        how: str | None,
        time: float | None,
        usage: Any,
        durable: bool,
    ) -> None:
        hand = self.hand(number)
        unwritten = hand.log is None and not self.joined(hand)
        expect = self.expect(hand.log, how)
        when = None if time is None else self.now + time * DAY

        def plain() -> Any:
            if unwritten and expect not in (None, -1):
                raise hansard.Conflict("there is nothing yet")
            log = self.written(hand)
            return log.say(
                [payload],
                self.now,
                ids=[key],
                expect=None if unwritten else expect,
                known=hand.known,
                time=when,
                usage=usage,
            )[0]

        self.agree(
            lambda: hand.session.append(
                payload, id=key, expect=expect, time=when, usage=usage, durable=durable
            ),
            plain,
        )

    @rule(number=which, payloads=several, given=st.none() | st.tuples(keys, keys, keys), how=expects)
    def extend(self, number: int, payloads: list[Any], given: Any, how: str | None) -> None:
        hand = self.hand(number)
        if not payloads:
            assert hand.session.extend([]) == []
            return
        unwritten = hand.log is None and not self.joined(hand)
        expect = self.expect(hand.log, how)
        ids = None if given is None else list(given[: len(payloads)])

        def plain() -> Any:
            if unwritten and expect not in (None, -1):
                raise hansard.Conflict("there is nothing yet")
            if unwritten and hand.id not in self.logs:
                Log("", self.now).say(payloads, self.now, ids=ids)  # that they do not contradict each other
            log = self.written(hand)
            return log.say(
                payloads, self.now, ids=ids, expect=None if unwritten else expect, known=hand.known
            )

        self.agree(lambda: hand.session.extend(payloads, ids=ids, expect=expect), plain)

    @rule(
        id=ids,
        payloads=several,
        one=st.booleans(),
        key=keys,
        create=st.booleans(),
        how=expects,
        second=st.booleans(),
    )
    def append_beside(
        self,
        id: str,
        payloads: list[Any],
        one: bool,
        key: str | None,
        create: bool,
        how: str | None,
        second: bool,
    ) -> None:
        """Without a handle, beside whoever has one."""
        store = self.second if second else self.store
        payload = (payloads or [user("beside")])[0]
        expect = self.expect(self.logs.get(id), how)

        def plain() -> Any:
            log = self.logs.get(id)
            if log is None:
                if not create or expect not in (None, -1):
                    raise hansard.SessionNotFound(id)
                log = self.begin(id, {})
                return log.say([payload] if one else payloads, self.now, ids=[key] if one else None)
            self.touched = log
            return log.say(
                [payload] if one else payloads, self.now, ids=[key] if one else None, expect=expect
            )

        if one:
            self.agree(
                lambda: [store.append(id, payload, id=key, create=create, expect=expect)],
                plain,
            )
        elif payloads:
            self.agree(lambda: store.extend(id, payloads, create=create, expect=expect), plain)

    @rule(number=which)
    def flush(self, number: int) -> None:
        hand = self.hand(number)
        if hand.log is None or not hand.log.gone:
            hand.session.flush()

    # -- what the model sees

    @rule(
        number=which,
        payloads=several,
        upto=st.none() | places,
        tokens=st.none() | st.integers(0, 9000),
        summary=st.sampled_from((None, "", "What was said\n更多")),
        key=keys,
    )
    def checkpoint(
        self,
        number: int,
        payloads: list[Any],
        upto: int | None,
        tokens: int | None,
        summary: str | None,
        key: str | None,
    ) -> None:
        hand = self.hand(number)
        self.joined(hand)
        last = -1 if hand.log is None else hand.log.seq
        more: dict[str, Any] = {
            "upto": None if upto is None else upto % (last + 3) - 1,
            "token_count": tokens,
            "summary": summary,
            "id": key,
        }

        def plain() -> Any:
            self.asked(hand)
            if hand.log is None and more["upto"] not in (None, -1):
                raise ValueError("there is nothing yet")
            log, known = self.changed(hand, always=True)
            return log.checkpoint(known, payloads, self.now, **more)

        self.agree(lambda: hand.session.checkpoint(payloads, **more), plain)

    @rule(number=which, keep=places, pairs=st.booleans())
    def truncate(self, number: int, keep: int, pairs: bool) -> None:
        hand = self.hand(number)
        keep = keep % (len(hand.known.said) + 3) - 1

        def plain() -> Any:
            log, known = self.changed(hand)
            return log.truncate(known, keep, self.now, pairs=pairs)

        log = hand.log
        alone = log is not None and not log.gone and hand.known.said.issuperset(log.history)
        self.agree(lambda: hand.session.truncate(keep, pairs=pairs), plain)
        if log is not None and alone and log.records[-1]["data"] == "truncate" and pairs:
            check_pairs(log.payloads(-2), list(self.store.read(hand.id).history()))

    @rule(number=which, how=st.integers(0, 6), place=places, payload=said)
    def set_history(self, number: int, how: int, place: int, payload: Any) -> None:
        hand = self.hand(number)
        log = hand.log
        mine = [] if log is None else [one.payload for one in log.history if one in hand.known.said]
        wanted = edited(mine, how, place, payload)

        def plain() -> Any:
            log, known = self.changed(hand, always=bool(wanted))
            return log.set_history(known, wanted, self.now)

        self.agree(lambda: hand.session.set_history(wanted), plain)

    @rule(number=which, n=st.integers(0, 4), pairs=st.booleans())
    def pop(self, number: int, n: int, pairs: bool) -> None:
        hand = self.hand(number)

        def plain() -> Any:
            log, known = self.changed(hand)
            return log.pop(known, n, self.now, pairs=pairs)

        self.agree(lambda: hand.session.pop(n, pairs=pairs), plain)

    @rule(number=which)
    def clear(self, number: int) -> None:
        hand = self.hand(number)

        def plain() -> Any:
            log, known = self.changed(hand)
            return log.clear(known, self.now)

        self.agree(hand.session.clear, plain)

    @rule(number=which, place=places)
    def rewind(self, number: int, place: int) -> None:
        hand = self.hand(number)
        self.joined(hand)
        seq = place if hand.log is None else place % (hand.log.seq + 2)

        def plain() -> Any:
            if hand.log is None or (seq > hand.log.seq and not hand.log.gone):
                raise ValueError("no such record")
            log = self.written(hand)  # which looks first, and asks for the lease then
            log, known = self.changed(hand, always=True)
            return log.rewind(known, seq, self.now)

        self.agree(lambda: hand.session.rewind(seq), plain)

    # -- the head

    def tell(self, hand: Hand, real: Callable[[], Any], kind: str, data: Any, key: str | None = None) -> None:
        def plain() -> Any:
            log = self.written(hand)
            first = log.first(key)
            if first is not None:
                if first["kind"] != kind or not same(first["data"], data):
                    raise hansard.Conflict("another record under the same id")
                return first
            return log.note(kind, data, self.now, id=key)

        self.agree(real, plain)

    @rule(number=which, title=st.sampled_from(("Mine", "", "长 title")), key=keys)
    def rename(self, number: int, title: str, key: str | None) -> None:
        hand = self.hand(number)
        self.tell(hand, lambda: hand.session.rename(title, id=key), "meta", {"set": {"title": title}}, key)

    @rule(number=which, text=st.sampled_from(("", "A summary")), key=keys)
    def set_summary(self, number: int, text: str, key: str | None) -> None:
        hand = self.hand(number)
        self.tell(
            hand, lambda: hand.session.set_summary(text, id=key), "meta", {"set": {"summary": text}}, key
        )

    @rule(number=which, on=st.booleans())
    def pin(self, number: int, on: bool) -> None:
        hand = self.hand(number)
        self.tell(hand, lambda: hand.session.pin(on), "meta", {"set": {"pinned": on}})

    @rule(number=which, add=st.sampled_from(LABELS), remove=st.sampled_from(LABELS))
    def label(self, number: int, add: Sequence[str], remove: Sequence[str]) -> None:
        hand = self.hand(number)
        if hand.log is not None and hand.log.gone:
            return
        self.joined(hand)
        before = hand.head.get("labels", []) if hand.log is None else hand.log.head()["labels"]
        labels = sorted((set(before) | set(add)) - set(remove))
        if labels == before:
            assert hand.session.label(*add, remove=remove) is None
            return
        self.tell(hand, lambda: hand.session.label(*add, remove=remove), "meta", {"set": {"labels": labels}})

    @rule(
        number=which,
        status=st.none() | st.sampled_from(STATUSES),
        agent=st.sampled_from((None, "coder", "editor")),
        workspace=st.sampled_from(FOLDERS),
        meta=st.sampled_from(METAS),
        unset=st.lists(
            st.sampled_from(("title", "status", "labels", "meta", "meta.n", "pinned", "agent", "summary")),
            max_size=2,
        ),
        key=keys,
    )
    def update(self, number: int, meta: Any, unset: list[str], key: str | None, **fields: Any) -> None:
        hand = self.hand(number)
        given = {name: value for name, value in fields.items() if value is not None}
        written = plain_head(given) | ({} if meta is None else {"meta": meta})
        if not written and not unset:
            assert hand.session.update() is None
            return
        data: dict[str, Any] = {"set": written} if written else {}
        if unset:
            data["unset"] = unset
        self.tell(
            hand,
            lambda: hand.session.update(**given, meta=meta, unset=unset, id=key),
            "meta",
            data,
            key,
        )

    @rule(number=which, tokens=st.integers(0, 9), key=keys)
    def add_usage(self, number: int, tokens: int, key: str | None) -> None:
        hand = self.hand(number)
        usage = {"input_tokens": tokens, "output_tokens": 1}
        self.tell(hand, lambda: hand.session.add_usage(usage, id=key), "usage", usage, key)

    # -- the store

    @rule(id=ids, second=st.booleans())
    def delete(self, id: str, second: bool) -> None:
        store = self.second if second else self.store
        assert store.delete(id) is (id in self.logs)
        if id in self.logs:
            self.remove(self.logs[id])
        with pytest.raises(hansard.SessionNotFound):
            store.read(id)

    @rule(id=ids | st.none())
    def activate(self, id: str | None) -> None:
        if id is None or id in self.logs:
            self.store.activate(id)
            self.active = id
        else:
            with pytest.raises(hansard.SessionNotFound):
                self.store.activate(id)

    @rule(
        agent=st.sampled_from(AGENTS),
        workspace=st.sampled_from(FOLDERS),
        labels=st.sampled_from(LABELS),
        meta=st.sampled_from((None, {"n": 1}, {"n": 1.5}, {"n": True})),
        pinned=st.none() | st.booleans(),
        status=st.none() | st.sampled_from(STATUSES),
        since=st.none() | st.integers(-60, 10),
        until=st.none() | st.integers(-60, 10),
        empty=st.booleans(),
        limit=st.integers(0, 3),
    )
    def list(
        self,
        since: int | None,
        until: int | None,
        empty: bool,
        limit: int,
        workspace: str | None,
        **wanted: Any,
    ) -> None:
        """Page by page."""
        wanted["since"] = None if since is None else self.now + timedelta(seconds=since)
        wanted["until"] = None if until is None else self.now + timedelta(seconds=until)
        ids = self.listed(empty=empty, workspace=workspace, **wanted)
        page = self.store.list(limit=limit, empty=empty, workspace=workspace, **wanted)
        found = [head.id for head in page]
        if limit == 0:
            assert (found, page.next) == ([], None)
            return
        while page.next is not None:
            assert len(page) == limit
            page = self.second.list(limit=limit, after=page.next, empty=empty, workspace=workspace, **wanted)
            found += [head.id for head in page]
        assert found == ids

    @rule(agent=st.sampled_from(AGENTS), workspace=st.sampled_from(FOLDERS))
    def find_latest(self, agent: str | None, workspace: str | None) -> None:
        found = self.store.latest(agent=agent, workspace=workspace)
        ids = self.listed(agent=agent, workspace=workspace)
        assert (found and found.id) == (ids[0] if ids else None)

    # -- reading

    @rule(number=which, limit=st.integers(0, 6))
    def history(self, number: int, limit: int) -> None:
        hand = self.hand(number)
        self.joined(hand)
        if hand.log is None:
            if hand.id not in self.logs:
                assert hand.session.history(limit) == []
        elif hand.log.gone:
            with pytest.raises(hansard.SessionNotFound):
                hand.session.history()
        else:
            seen = hand.log.payloads()
            assert hand.session.history(limit) == seen[max(0, len(seen) - limit) :]
            hand.known.look(hand.log)

    @rule(
        id=ids,
        after=st.none() | places,
        before=st.none() | places,
        kinds=st.sampled_from((None, "message", ("message", "history"), ("meta", "usage"), ())),
        limit=st.none() | st.integers(0, 4),
        reverse=st.booleans(),
    )
    def records(self, id: str, kinds: Any, limit: int | None, reverse: bool, **places: Any) -> None:
        log = self.logs.get(id)
        if log is None:
            with pytest.raises(hansard.SessionNotFound):
                self.store.read(id)
            return
        places = {name: None if n is None else n % (log.seq + 4) - 2 for name, n in places.items()}
        wanted = [
            record
            for record in log.records
            if (places["after"] is None or record["seq"] > places["after"])
            and (places["before"] is None or record["seq"] < places["before"])
            and (kinds is None or record["kind"] in ((kinds,) if isinstance(kinds, str) else kinds))
        ]
        if reverse:
            wanted.reverse()
        found = list(self.store.read(id).records(kinds=kinds, limit=limit, reverse=reverse, **places))
        for one, other in zip(found, wanted[:limit], strict=True):
            check_record(one, other)

    @rule(id=ids, seq=places, key=keys)
    def get(self, id: str, seq: int, key: str | None) -> None:
        log = self.logs.get(id)
        if log is None:
            return
        view = self.store.read(id)
        seq %= log.seq + 2
        wanted = log.records[seq] if seq <= log.seq else None
        for found, record in ((view.get(seq), wanted), (view.get(key or "k1"), log.first(key or "k1"))):
            assert (found is None) == (record is None)
            if found is not None and record is not None:
                check_record(found, record)

    @rule(id=ids)
    def keep_view(self, id: str) -> None:
        """A view stands still until it is told to go on."""
        if id in self.logs:
            self.views = [*self.views[-2:], (self.second.read(id), self.logs[id], self.logs[id].seq)]

    @rule(move=st.booleans())
    def look_again(self, move: bool) -> None:
        views, self.views = self.views, []
        for view, log, seq in views:
            if log.gone:
                with pytest.raises(hansard.SessionNotFound):
                    view.refresh()
                continue
            assert same(view.history(), log.payloads(seq))
            assert view.summary() == log.summaries[seq]
            assert [record.seq for record in view.records()] == list(range(seq + 1))
            if move:
                view.refresh()
                seq = log.seq
                assert same(view.history(), log.payloads())
            self.views.append((view, log, seq))

    # -- what happens to a store

    @rule(days=st.sampled_from((-400, -2, -0.1, 0.1, 2, 400)))
    def jump(self, days: float) -> None:
        self.now += days * DAY


class MemoryHouse(House):
    engine = "memory"


class FileHouse(House):
    """What only files can suffer."""

    engine = "files"

    def beside(self) -> Neighbour:
        if not self.next_door:
            self.neighbour.ask("open", url=self.url)
            self.blind = self.blind or self.garbled
        self.next_door = True
        return self.neighbour

    @rule(id=ids, payload=said, key=keys, create=st.booleans())
    def append_next_door(self, id: str, payload: Any, key: str | None, create: bool) -> None:
        def plain() -> Any:
            log = self.logs.get(id)
            if log is None:
                if not create:
                    raise hansard.SessionNotFound(id)
                log = self.begin(id, {})
            self.touched = log
            return log.say([payload], self.now, ids=[key])[0]["seq"]

        self.agree(
            lambda: self.beside().ask("append", self.now, ref=id, payload=payload, id=key, create=create),
            plain,
        )

    @rule(id=ids, title=st.sampled_from(("Theirs", "")))
    def rename_next_door(self, id: str, title: str) -> None:
        def plain() -> Any:
            if id not in self.logs:
                raise hansard.SessionNotFound(id)
            self.touched = self.logs[id]
            return self.touched.note("meta", {"set": {"title": title}}, self.now)["seq"]

        self.agree(lambda: self.beside().ask("rename", self.now, ref=id, title=title), plain)

    @rule(id=ids)
    def read_next_door(self, id: str) -> None:
        if id in self.logs:
            assert same(self.beside().ask("history", ref=id), self.logs[id].payloads())
        assert self.beside().ask("list", self.now) == self.listed(empty=True)

    @rule(all=st.booleans(), closed=st.booleans())
    def lose_catalog(self, all: bool, closed: bool) -> None:
        if closed:
            self.reopen_without(lambda: self.unlink_catalog(all))
        else:
            self.unlink_catalog(all)

    def unlink_catalog(self, all: bool) -> None:
        for suffix in ("", "-wal", "-shm") if all else ("",):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.root}/store/catalog.db{suffix}")

    @rule(
        garbage=st.sampled_from((b"", b"garbage", b"SQLite format 3\0" + b"\xff" * 4096)),
        closed=st.booleans(),
    )
    def break_catalog(self, garbage: bytes, closed: bool) -> None:
        def put() -> None:
            self.unlink_catalog(True)
            with open(f"{self.root}/broken", "wb") as file:
                file.write(garbage)
            os.replace(f"{self.root}/broken", f"{self.root}/store/catalog.db")

        if closed:
            self.reopen_without(put)
        else:
            put()
            self.garbled = True
            self.blind = self.blind or self.next_door

    def reopen_without(self, meanwhile: Callable[[], None]) -> None:
        for hand in list(self.hands):
            self.dropped(hand)
        self.views.clear()
        self.store.close()
        self.second.close()
        self.leave()
        self.garbled = self.blind = False
        meanwhile()
        self.store, self.second = self.open_store(), self.open_store()


# -- comparing --------------------------------------------------------------------------------------


def told(error: Exception) -> tuple[type[Exception], int]:
    """What of a refusal both have to agree on: its class, and how many sessions a prefix has."""
    return type(error), getattr(error, "total", 0)


def plain_head(given: dict[str, Any]) -> dict[str, Any]:
    """The fields as they come back."""
    head = {name: value for name, value in given.items() if value is not None}
    if "workspace" in head:
        head["workspace"] = head["workspace"].rstrip("/")
    if "labels" in head:
        head["labels"] = sorted(head["labels"])
    return head


def fits(head: dict[str, Any], wanted: dict[str, Any]) -> bool:
    for name, value in wanted.items():
        if value is None:
            continue
        if name == "since":
            found = head["updated_at"] >= value
        elif name == "until":
            found = head["updated_at"] < value
        elif name == "labels":
            found = set(value) <= set(head["labels"])
        elif name == "meta":
            found = all(key in head["meta"] and same(head["meta"][key], value[key]) for key in value)
        elif name == "workspace":
            found = head["workspace"] == value.rstrip("/")
        else:
            found = head[name] == value
        if not found:
            return False
    return True


def check_history(found: hansard.History, log: Log) -> None:
    assert same(found, log.payloads())
    assert (found.seq, found.summary, found.token_count) == (log.seq, log.summaries[-1], log.counts[-1])
    for payload in found:  # it is the reader's own, and nobody sees what he does with it
        if isinstance(payload, dict | list):
            payload.clear()


def check_record(found: hansard.Record, wanted: dict[str, Any]) -> None:
    names = ("seq", "kind", "id", "at", "time", "usage")
    assert [getattr(found, name) for name in names] == [wanted[name] for name in names]
    if wanted["kind"] in ("message", "meta", "usage"):
        assert same(found.data, wanted["data"])


def check_head(found: hansard.Head, log: Log) -> None:
    wanted = log.head()
    assert (found.id, found.seq, found.messages) == (log.id, log.seq, wanted["messages"])
    assert found.has_user_input == wanted["input"]
    assert (found.usage.total_tokens, found.usage.calls) == (wanted["tokens"], wanted["calls"])
    names = ("agent", "workspace", "status", "labels", "pinned", "title", "preview")
    assert [getattr(found, name) for name in names] == [wanted[name] for name in names]
    assert (found.created_at, found.updated_at, found.ended_at) == (
        wanted["created_at"],
        wanted["updated_at"],
        wanted["ended_at"],
    )
    assert same(found.meta, wanted["meta"])
    assert (found.summary, found.token_count) == (log.summaries[-1], log.counts[-1])
    found.labels.append("of the reader's own")
    found.meta.clear()


def check_pairs(before: list[Any], after: list[Any]) -> None:
    """A truncated history begins with no orphan, and has no result whose call was hidden."""
    assert after == before[len(before) - len(after) :]
    hidden = {id for payload in before[: len(before) - len(after)] for id in pairs(payload)[0]}
    made: set[str] = set()
    for place, payload in enumerate(after):
        calls, answered = pairs(payload)
        made.update(calls)
        orphans = set(answered) - made
        assert not orphans & hidden
        assert place or not orphans or len(after) == len(before)


# -- the tests --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def neighbour() -> Iterator[Neighbour]:
    """Another process, started once."""
    process = Neighbour()
    yield process
    process.close()


RULES = "I2 I3 I4 W1 W5 W6 W7 W8 W9 W10 W11 W12 H1 H2 H3 H4 H5 H6 H9 E5 E6 E9 L1 L2 L3 S1 C3"


def live(house: type[House], part: int, pytestconfig: pytest.Config) -> None:
    """As many random lives as a part has. The seed makes every run the same."""
    runs = RUNS * (10 if pytestconfig.getoption("--full") else 1)
    run_state_machine_as_test(
        seed(part)(house),
        settings=settings(
            max_examples=runs,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            print_blob=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )


@pytest.mark.rule(*RULES.split())
@pytest.mark.parametrize("part", range(PARTS))
def test_a_store_in_memory_lives_like_its_model(part: int, pytestconfig: pytest.Config) -> None:
    live(type("MemoryHouse", (MemoryHouse,), {}), part, pytestconfig)


@pytest.mark.rule(*RULES.split())
@pytest.mark.parametrize("part", range(PARTS))
def test_a_store_of_files_lives_like_its_model(
    part: int, neighbour: Neighbour, pytestconfig: pytest.Config
) -> None:
    live(type("FileHouse", (FileHouse,), {"neighbour": neighbour}), part, pytestconfig)
