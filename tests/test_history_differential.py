"""Whatever calls change a history, in whatever order and by whom: the fold over all records, the read from
the base alone and a naive list give the same one after every step."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hansard
from hansard.views.history import fold
from tests.plain import Known, Log, edited, messages, same

RUNS = 200
AT = datetime(2026, 5, 1, tzinfo=UTC)

number = st.integers(0, 99)
lists = st.lists(messages(), max_size=4)
keys = st.sampled_from((None, None, None, "k1", "k2"))
extend = st.tuples(st.just("extend"), st.lists(messages(), min_size=1, max_size=4), st.booleans())
tokens = st.none() | st.integers(0, 9000)
call = st.tuples(
    st.integers(0, 1),
    st.one_of(
        st.tuples(st.just("append"), messages(), keys),
        extend,
        extend,
        extend,
        st.tuples(st.just("beside"), messages()),
        st.tuples(st.just("beside"), messages()),
        st.tuples(st.just("checkpoint"), lists, st.none() | number, tokens, keys),
        st.tuples(st.just("truncate"), number, st.booleans()),
        st.tuples(st.just("truncate"), number, st.just(True)),
        st.tuples(st.just("set_history"), st.integers(0, 6), number, messages()),
        st.tuples(st.just("pop"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("rewind"), number),
        st.tuples(st.sampled_from(("clear", "open", "reopen", "summarise", "read"))),
        st.tuples(st.just("read"), number),
    ),
)
calls = st.integers(0, 30).flatmap(lambda n: st.lists(call, min_size=n, max_size=n))  # as many long as short


@contextmanager
def temporary(kind: str) -> Iterator[str]:
    """The URL of a store that is gone afterwards, in memory where the machine has such a folder."""
    if kind == "memory":
        yield f"memory:differential-{next(numbers)}"
        return
    memory = Path("/dev/shm")
    root = tempfile.mkdtemp(prefix="hansard-", dir=memory if memory.is_dir() else None)
    try:
        yield f"{root}/store"
    finally:
        shutil.rmtree(root)


numbers = count()


class Pair:
    """Two handles of one session, and beside them the list, with what each of them knows."""

    def __init__(self, url: str, exclusive: bool) -> None:
        self.url = url
        self.exclusive = exclusive
        self.keeper = hansard.open(url)  # a store in memory lasts as long as somebody has it open
        self.keeper.append("s", "begin", create=True)
        self.log = Log("s", AT)
        self.log.say(["begin"], AT)
        self.store = hansard.open(url)
        self.begin()

    def begin(self) -> None:
        self.handles = [
            self.store.open("s", exclusive=self.exclusive),
            self.store.open("s", exclusive=False),
        ]
        self.known = [Known(), Known()]
        for known in self.known:
            known.look(self.log)

    def close(self) -> None:
        self.store.close()
        self.keeper.close()

    def step(self, who: int, what: str, *arguments: Any) -> None:
        getattr(self, what)(who, self.handles[who], self.known[who], *arguments)

    def change(self, who: int, real: Callable[[], Any], plain: Callable[[], Any]) -> None:
        """Both do it, or both refuse."""
        if who == 1 and self.exclusive:
            with pytest.raises((hansard.SessionBusy, ValueError)):  # a record that is not there, at once
                real()
            return
        agree(real, plain)

    # -- the calls

    def append(self, who: int, handle: Any, known: Known, payload: Any, key: str | None) -> None:
        agree(
            lambda: handle.append(payload, id=key),
            lambda: self.log.say([payload], AT, ids=[key], known=known)[0],
        )

    def extend(self, who: int, handle: Any, known: Known, payloads: list[Any], expect: bool) -> None:
        handle.extend(payloads, expect=self.log.seq if expect else None)
        self.log.say(payloads, AT, known=known)

    def beside(self, who: int, handle: Any, known: Known, payload: Any) -> None:
        self.store.append("s", payload)
        self.log.say([payload], AT)

    def checkpoint(
        self,
        who: int,
        handle: Any,
        known: Known,
        payloads: list[Any],
        place: int | None,
        tokens: int | None,
        key: str | None,
    ) -> None:
        more: dict[str, Any] = {
            "upto": None if place is None else place % (self.log.seq + 3) - 1,
            "token_count": tokens,
            "summary": None if tokens is None else f"{tokens} tokens",
            "id": key,
        }
        self.change(
            who,
            lambda: handle.checkpoint(payloads, **more),
            lambda: self.log.checkpoint(known, payloads, AT, **more),
        )

    def truncate(self, who: int, handle: Any, known: Known, number: int, pairs: bool) -> None:
        keep = number % (len(known.said) + 3) - 1
        self.change(
            who,
            lambda: handle.truncate(keep, pairs=pairs),
            lambda: self.log.truncate(known, keep, AT, pairs=pairs),
        )

    def set_history(self, who: int, handle: Any, known: Known, how: int, place: int, payload: Any) -> None:
        mine = [said.payload for said in self.log.history if said in known.said]
        wanted = edited(mine, how, place, payload)
        self.change(who, lambda: handle.set_history(wanted), lambda: self.log.set_history(known, wanted, AT))

    def pop(self, who: int, handle: Any, known: Known, n: int, pairs: bool) -> None:
        self.change(who, lambda: handle.pop(n, pairs=pairs), lambda: self.log.pop(known, n, AT, pairs=pairs))

    def clear(self, who: int, handle: Any, known: Known) -> None:
        self.change(who, lambda: handle.clear(), lambda: self.log.clear(known, AT))

    def rewind(self, who: int, handle: Any, known: Known, number: int) -> None:
        seq = number % (self.log.seq + 2)
        self.change(who, lambda: handle.rewind(seq), lambda: self.log.rewind(known, seq, AT))

    def summarise(self, who: int, handle: Any, known: Known) -> None:
        text = ("", "What was said", "更多")[self.log.seq % 3]
        handle.set_summary(text)
        self.log.note("meta", {"set": {"summary": text}}, AT)

    def read(self, who: int, handle: Any, known: Known, number: int | None = None) -> None:
        seen = self.log.payloads()
        limit = None if number is None else number % (len(seen) + 2)
        assert handle.history(limit) == (seen if limit is None else seen[max(0, len(seen) - limit) :])
        known.look(self.log)

    def open(self, who: int, handle: Any, known: Known) -> None:
        handle.close()
        self.handles[who] = self.store.open("s", exclusive=self.exclusive and who == 0)
        known.look(self.log)

    def reopen(self, who: int, handle: Any, known: Known) -> None:
        """Nobody has a file store open for a moment; the next reader has nothing but what is on disk."""
        self.store.close()
        if not self.url.startswith("memory:"):
            self.keeper.close()
            self.keeper = hansard.open(self.url)
        self.store = hansard.open(self.url)
        self.begin()

    # -- the comparison

    def compare(self) -> None:
        log = self.log
        seen = log.payloads()
        view = self.store.read("s")
        records = list(view.records())
        assert [record.kind for record in records] == [record["kind"] for record in log.records]
        history = view.history()
        assert same(history, seen)
        assert same(fold(records), seen)
        assert (history.seq, history.summary, history.token_count) == (
            log.seq,
            log.summaries[-1],
            log.counts[-1],
        )
        for limit in {0, 1, 2, len(seen) - 1, len(seen), len(seen) + 1} - {-1}:
            assert view.history(limit) == seen[max(0, len(seen) - limit) :]
        assert view.summary() == log.summaries[-1]


def agree(real: Callable[[], Any], plain: Callable[[], Any]) -> None:
    """Both do it with the same result, or both refuse it alike."""
    try:
        wanted = plain()
    except (hansard.Conflict, ValueError) as refusal:
        with pytest.raises(type(refusal)):
            real()
        return
    found = real()
    if isinstance(wanted, dict):
        assert (found.seq, found.kind, found.id) == (wanted["seq"], wanted["kind"], wanted["id"])
    else:
        assert same(found, wanted)


@pytest.mark.rule("H1", "H2", "H3", "H4", "H5", "H6", "H9", "W5", "W11")
@pytest.mark.parametrize("engine", ["memory", "files"])
def test_the_fold_the_base_and_a_plain_list_agree(engine: str, pytestconfig: pytest.Config) -> None:
    @settings(
        max_examples=RUNS * (10 if pytestconfig.getoption("--full") else 1),
        deadline=None,
        derandomize=True,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(steps=calls, exclusive=st.booleans())
    def run(steps: list[Any], exclusive: bool) -> None:
        with temporary(engine) as url:
            pair = Pair(url, exclusive)
            try:
                pair.compare()
                for who, (what, *arguments) in steps:
                    pair.step(who, what, *arguments)
                    pair.compare()
                pair.reopen(0, None, Known())
                pair.compare()
            finally:
                with suppress(hansard.HansardError):
                    pair.close()

    run()
