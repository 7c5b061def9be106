"""What `vacuum` may take out of a log, and the `compacted` records that stand for it afterwards.

A `compacted` record stands where its stretch ended, with that record's seq. It says what of the head follows
from the records that are gone (`head`), what they cost, and for each id of theirs where it stood and a digest
of what it said, so that a repeat is known for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime

import msgspec

from hansard.records import Draft, Record, decode, encode
from hansard.views import head as heads
from hansard.views.head import Head, Taken, taken
from hansard.views.history import Base, covers
from hansard.views.usage import Usage, add, understand

IDS = 100
"""Ids that one record remembers, so that none grows beyond what a reader likes to meet in one line."""


class Former(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record that was taken out and had an id of its own."""

    seq: int
    at: datetime
    digest: str


class Stretch(msgspec.Struct, omit_defaults=True):
    """The data of a `compacted` record."""

    first: int
    last: int
    head: Taken | None = None
    usage: dict[str, Usage] = {}
    records: dict[str, int] = {}
    ids: dict[str, Former] = {}


def digest(kind: str, data: bytes | msgspec.Raw) -> str:
    """A short name for what a record says: equal for equal JSON, whatever the order of members."""
    import hashlib  # few writes have an id, and fewer meet one again

    return hashlib.sha256(kind.encode() + b"\0" + _sorted(decode(data))).hexdigest()[:32]


_sorted = msgspec.json.Encoder(order="sorted").encode


def of(record: Record) -> Stretch | None:
    """What a `compacted` record stands for; None where it is none of ours."""
    try:
        return msgspec.convert(record.data, Stretch)
    except msgspec.ValidationError:
        return None


def first(draft: Draft) -> int:
    """The first of the records that a `compacted` one is to stand for."""
    return msgspec.json.decode(draft.data, type=Stretch).first


def size(draft: Draft) -> int:
    """How many records a `compacted` one stands for."""
    return sum(msgspec.json.decode(draft.data, type=Stretch).records.values())


def remembered(record: Record, id: str | None) -> Former | None:
    """The record with this id among those that a `compacted` one stands for."""
    stretch = of(record)
    return None if stretch is None or id is None else stretch.ids.get(id)


def ids(record: Record) -> Iterator[str]:
    """The ids that a record answers for: its own, and those of the records that it stands for."""
    if record.id is not None:
        yield record.id
    if record.kind == "compacted" and isinstance(record.data, dict):
        given = record.data.get("ids")
        if isinstance(given, dict):
            yield from given


def plan(records: Iterable[Record], base: Base, last: int) -> Iterator[Draft]:
    """The `compacted` records for everything that the newest history does not show, as of the record `last`:
    messages that it left out and the history records before it. Nothing goes where there is none, for then
    every message is seen; the first and the last record always stay, and so does every record of another
    kind.
    """
    if base.after < 0:
        return
    inlined = {part[0] for part in base.parts if len(part) == 3}
    head: Head | None = None
    stretch: Stretch | None = None
    pieces, at = 0, None
    for record in records:
        before = head
        if head is None:
            head = heads.begin(record)
        else:
            heads.advance(head, record)
        goes = before is not None and record.seq < last and _goes(record, base, inlined)
        if stretch is not None and (not goes or len(stretch.ids) >= IDS):
            if pieces:  # else it is one record already that stands for others
                yield _compacted(stretch, at)
            stretch = None
        if goes:
            if stretch is None:
                stretch, pieces = Stretch(first=_first(record), last=record.seq), 0
            _take(stretch, record)
            at = record.at
            pieces += record.kind != "compacted" or stretch.first < _first(record)
            stretch.head = msgspec.structs.replace(taken(head), reach=base.after)
    if stretch is not None and pieces:
        yield _compacted(stretch, at)


def _goes(record: Record, base: Base, inlined: set[int]) -> bool:
    if record.seq >= base.after:
        return False
    if record.kind == "message":
        return not covers(base.parts, (record.seq, -1))
    if record.kind == "history":
        return record.seq not in inlined
    return record.kind == "compacted" and of(record) is not None


def _first(record: Record) -> int:
    stretch = of(record) if record.kind == "compacted" else None
    return record.seq if stretch is None else stretch.first


def _take(stretch: Stretch, record: Record) -> None:
    stretch.last = record.seq
    earlier = of(record) if record.kind == "compacted" else None
    if earlier is not None:
        stretch.ids = {**stretch.ids, **earlier.ids}
        for kind, n in earlier.records.items():
            stretch.records[kind] = stretch.records.get(kind, 0) + n
    else:
        stretch.records[record.kind] = stretch.records.get(record.kind, 0) + 1
    for model, usage in usages(record):
        stretch.usage[model or ""] = add(stretch.usage.get(model or "", Usage()), usage, None)
    if record.id is not None:
        call = record.data.get("call") if record.kind == "history" and isinstance(record.data, dict) else None
        said = call if isinstance(call, str) else digest(record.kind, encode(record.data))
        stretch.ids[record.id] = Former(seq=record.seq, at=record.at, digest=said)


def _compacted(stretch: Stretch, at: datetime | None) -> Draft:
    return Draft(kind="compacted", data=msgspec.Raw(encode(stretch)), at=at, seq=stretch.last)


def usages(record: Record) -> Iterator[tuple[str | None, Usage]]:
    """What a record cost, by model: its own, or that of the records that it stands for."""
    if record.kind == "compacted":
        stretch = of(record)
        if stretch is not None:
            yield from ((model or None, usage) for model, usage in stretch.usage.items())
        return
    raw = record.data if record.kind == "usage" else record.usage if record.kind == "message" else None
    if raw is not None:
        with suppress(ValueError):
            one = understand(raw)
            yield from one.models.items() if one.models else ((record.model, one),)
