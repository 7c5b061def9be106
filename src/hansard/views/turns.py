"""What was said, as turns: somebody puts something in, and all that follows is the answer to it.

Pure: records in, turns out, one by one; no more than one turn is held at a time. `fold` takes everything
that was said, `live` what the model sees, `newest` the end of a long session. `items` reads one message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from hansard import messages
from hansard.records import Record, freeze, understood
from hansard.views import vacuum
from hansard.views.history import Base, Entry, Place, Read, inline, shown
from hansard.views.usage import Usage
from hansard.views.usage import add as add_usage
from hansard.views.usage import advance as advance_usage

KINDS = ("message", "history", "usage", "compacted")
"""The kinds of records that say anything here."""

LONGEST = 10_000
"""Items that are held at once. A turn of more comes in several pieces."""

_WAITING = 1000
"""Calls of earlier turns without a result of which the name is remembered."""


class TurnItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was said or done in a turn.

    `kind` is one of

    - text, reasoning, image, file: as in `hansard.messages.Part`. A message in which nothing is said is one
      empty text; blank texts beside others are left out.
    - call: of the tool `name`, with its input as `text`. Its results are its `items`, wherever in the turn
      they came.
    - result: of a tool, with its output as `text`, and images and files among its `items`. It stands alone
      where no call of this turn has its `id`.
    - other: what no reading explains. Where it has no `text`, `data` is the message as it was written.
    - change: what the model sees was changed. `name` is the call that did it (checkpoint, truncate …), `text`
      the summary of a checkpoint; its `items` are the messages that were written for the model to see.
    - gone: `vacuum` took records out here; `data` counts them by kind.

    `role` is user, assistant, system, tool, or "". `seq` is the record that it stands in, and `inner` the
    number of the message among those that a history record has, else -1; items of one message have both in
    common. `at` is when it was said, `model` who is behind it, `error` whether a tool failed.
    """

    kind: str
    role: str
    seq: int
    inner: int = -1
    text: str = ""
    id: str = ""
    name: str = ""
    media: str = ""
    mime: str = ""
    error: bool = False
    model: str = ""
    at: datetime | None = None
    data: Any = None
    items: tuple[TurnItem, ...] = ()


class TurnView(msgspec.Struct, frozen=True, kw_only=True):
    """A turn, as it can be read: what somebody put in, and what followed until the next time.

    `number` is 1 for the first input of a session; what came before it has the number 0 and no `request`. It
    is None where the beginning of the session was not read. `first` and `last` are seqs of its records,
    `began` and `ended` when its first and its last message were said. `usage` is the sum of what its records
    say. `models` are those behind its messages, in the order in which they came in.
    """

    number: int | None
    first: int
    last: int
    began: datetime | None = None
    ended: datetime | None = None
    models: tuple[str, ...] = ()
    usage: Usage = msgspec.field(default_factory=Usage)
    request: tuple[TurnItem, ...] = ()
    response: tuple[TurnItem, ...] = ()

    @property
    def items(self) -> tuple[TurnItem, ...]:
        """The request and the response, one after the other."""
        return self.request + self.response


def fold(said: Iterable[Any], number: int | None = 0) -> Iterator[TurnView]:
    """The turns of records, or of messages that were never saved (their seq is their place).

    Whatever may be a user's input opens a turn, by the same rule that decides whether a session has any. A
    turn of more than `LONGEST` items comes in pieces of the same number, of which the first has the request.

    >>> [turn] = fold([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
    >>> turn.number, turn.request[0].text, turn.response[0].text
    (1, 'Hi', 'Hello')
    """
    names: dict[str, str] = {}
    turn = _Open(number, names)
    for place, one in enumerate(said):
        if isinstance(one, Record):
            record = understood(one)
            if record.kind != "message":
                turn.note(record)
                continue
            payload, shape, model, at = record.data, record.shape, record.model, record.when
            where = (record.seq, -1)
        elif isinstance(one, Entry):
            payload, shape, model, at, where = one.payload, one.shape, None, None, one.place
        else:
            payload, shape, model, at, where = freeze(one)[1], None, None, None, (place, -1)
        opens = messages.is_user_input(payload, shape)
        if opens or turn.size >= LONGEST:
            if turn.begun:
                yield turn.ended()
            if opens and number is not None:
                number += 1
            turn = _Open(number, names)
        found = items(payload, shape, place=where, at=at, model=model)
        turn.message(found, where[0], at)
        if opens:
            turn.asked = len(turn.items)
        if isinstance(one, Record) and one.usage is not None:
            turn.usage = advance_usage(turn.usage, one.usage, one.model)
    if turn.begun:
        yield turn.ended()


def live(base: Base, last: int, read: Read) -> Iterator[TurnView]:
    """The turns of what the model sees as of the record `last`, numbered by themselves."""
    return fold(
        Entry(place, payload, None, 0, 0) if record is None else record
        for place, payload, record in shown(base, last, read)
    )


def newest(backwards: Iterable[Record], limit: int) -> Iterator[TurnView]:
    """The last turns of a session, in order, of records given from its end; no more of them are read than it
    takes. Where that is not all, the numbers are None, and calls of earlier turns are not known."""
    if limit == 0:
        return
    found: list[Record] = []
    inputs = 0
    rest = iter(backwards)
    for record in rest:
        found.append(record)
        inputs += record.kind == "message" and messages.is_user_input(record.data, record.shape)
        if inputs == limit and next(rest, None) is not None:
            yield from fold(reversed(found), None)
            return
    yield from latest(fold(reversed(found)), limit)


def latest(turns: Iterable[TurnView], limit: int) -> Iterator[TurnView]:
    """The last of turns whose numbers are known."""
    kept: deque[TurnView] = deque()
    for turn in turns:
        kept.append(turn)
        while kept and (kept[0].number or 0) <= (turn.number or 0) - limit:
            kept.popleft()
    yield from kept


# -- one message ------------------------------------------------------------------------------------


def items(
    payload: Any,
    shape: str | None = None,
    *,
    place: Place = (-1, -1),
    at: datetime | None = None,
    model: str | None = None,
) -> list[TurnItem]:
    """What one message says, piece by piece; at least one. Calls and results stand apart.

    >>> [item] = items({"role": "tool", "tool_call_id": "c1", "content": "a.py"})
    >>> item.kind, item.id, item.text
    ('result', 'c1', 'a.py')
    """
    message = messages.read(payload, shape)
    item = partial(
        TurnItem,
        role=message.role,
        seq=place[0],
        inner=place[1],
        at=at,
        model=model or messages.model(payload) or "",
    )
    found: list[TurnItem] = []
    unread = not (message.shape or message.parts)
    for part in message.parts:
        kind = part.kind
        if kind == "other" and not part.text:
            unread = True
        elif kind in ("text", "other") and (not part.text or part.text.isspace()):
            continue
        elif kind == "result":
            what = "image" if (part.mime or "image/").startswith("image/") else "file"
            media = (item(kind=what, media=part.media, mime=part.mime),) if part.media else ()
            before = found[-1] if found else None
            if media and not part.text and before and before.items and before.id == part.id:
                found[-1] = replace(before, items=before.items + media)  # several images are several parts
                continue
            said = {name: getattr(part, name) for name in ("text", "id", "name", "error")}
            found.append(item(kind=kind, **said, items=media))
        else:
            said = {name: getattr(part, name) for name in ("text", "id", "name", "media", "mime", "error")}
            found.append(item(kind=kind, **said))
    if unread:
        found.append(item(kind="other", data=payload))
    return found or [item(kind="text")]


class _Open:
    """A turn that goes on. `names` are those of calls of earlier turns that nothing has answered yet."""

    def __init__(self, number: int | None, names: dict[str, str]) -> None:
        self.number = number
        self.names = names
        self.items: list[TurnItem] = []
        self.size = 0
        self.asked = 0  # the first so many items are the request
        self.usage = Usage()
        self.models: dict[str, None] = {}
        self.begun = False
        self.first = self.last = -1
        self.began: datetime | None = None
        self.over: datetime | None = None
        self._results: dict[int, list[TurnItem]] = {}  # by the index of their call
        self._waiting: dict[str, list[tuple[int, deque[int]]]] = {}  # calls by id, in rounds
        self._answered: dict[str, int] = {}
        self._round = 0
        self._answering = False

    def message(self, found: Iterable[TurnItem], seq: int, at: datetime | None) -> None:
        """One more message."""
        self._reach(seq)
        self.began, self.over = self.began or at, at or self.over
        for item in found:
            self.add(item)

    def note(self, record: Record) -> None:
        """A record in which nobody speaks."""
        data = record.data
        item = partial(TurnItem, role="", seq=record.seq, at=record.when)
        self.size += 1
        if record.kind == "history" and isinstance(data, dict):
            op, summary = data.get("op"), data.get("summary")
            self.items.append(
                item(
                    kind="change",
                    name=op if isinstance(op, str) else "",
                    text=summary if op == "checkpoint" and isinstance(summary, str) else "",
                    items=_paired(record),
                )
            )
        elif record.kind == "usage" and isinstance(data, dict):
            self.usage = advance_usage(self.usage, data, record.model)
        elif record.kind == "compacted" and (stretch := vacuum.of(record)) is not None:
            for model, usage in vacuum.usages(record):
                self.usage = add_usage(self.usage, usage, model)
            self.items.append(item(kind="gone", data=stretch.records))
        else:
            return
        self._reach(record.seq)

    def _reach(self, seq: int) -> None:
        if not self.begun:
            self.begun, self.first = True, seq
        self.last = seq

    def add(self, item: TurnItem) -> None:
        """One more item; a result goes to its call."""
        self.size += 1
        if item.model:
            self.models[item.model] = None
        key = item.id or item.name
        if item.kind == "result":
            self._answering = True
            call = self._call(key)
            if call is None:
                name = item.name or self.names.get(key, "")
                self.items.append(item if name == item.name else replace(item, name=name))
            else:
                name = item.name or self.items[call].name
                self._results.setdefault(call, []).append(replace(item, name=name))
            return
        if item.kind == "call" and key:
            if self._answering:
                self._answering = False
                self._round += 1
            rounds = self._waiting.setdefault(key, [])
            if not rounds or rounds[-1][0] != self._round:
                rounds.append((self._round, deque()))
            rounds[-1][1].append(len(self.items))
        self.items.append(item)

    def _call(self, key: str) -> int | None:
        """The call that a result answers: of those that have its id and were made since there were results,
        the first that waits; else one that was made before; else the one that was answered already."""
        rounds = self._waiting.get(key)
        if not rounds:
            return self._answered.get(key)
        calls = rounds[-1][1]
        self._answered[key] = calls.popleft()
        if not calls:
            rounds.pop()
        return self._answered[key]

    def ended(self) -> TurnView:
        """The turn, to which nothing is added any more."""
        whole = self.whole()
        for key, rounds in self._waiting.items():
            for _, calls in rounds:
                self.names.pop(key, None)  # it is the latest now
                self.names[key] = self.items[calls[0]].name
        while len(self.names) > _WAITING:
            del self.names[next(iter(self.names))]
        return TurnView(
            number=self.number,
            first=self.first,
            last=self.last,
            began=self.began,
            ended=self.over,
            models=tuple(self.models),
            usage=self.usage,
            request=whole[: self.asked],
            response=whole[self.asked :],
        )

    def whole(self) -> tuple[TurnItem, ...]:
        """The items, calls with their results."""
        return tuple(
            replace(item, items=tuple(self._results[i])) if i in self._results else item
            for i, item in enumerate(self.items)
        )


def _paired(record: Record) -> tuple[TurnItem, ...]:
    """What the messages say that were written inside a history record."""
    said = _Open(None, {})
    for i, payload in enumerate(inline(record)):
        for item in items(payload, place=(record.seq, i), at=record.when):
            said.add(item)
    return said.whole()
