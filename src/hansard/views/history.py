"""What the model sees, as a pure function of the records.

The `Base` in a head says where the history stands: ranges that the newest `history` record named, then
every message after it. An `Entry` is a message of it with its place; what a call that changes the history
leaves of the entries (`kept`, `left`, `composed`) becomes the parts of the next record.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from hansard import messages
from hansard.records import Record

Part = tuple[int, ...]
"""`(a, b)`: the message records with seq a to b. `(s, i, j)`: messages i to j written inside record s."""

Place = tuple[int, int]
"""`(seq, -1)`: a message record. `(s, i)`: the message i written inside the history record s."""


class Base(msgspec.Struct, frozen=True, omit_defaults=True):
    """The history is `parts` in order, then every message record after `after`."""

    after: int = -1
    parts: tuple[Part, ...] = ()


class Entry(msgspec.Struct, frozen=True):
    """A message that the model sees: where it stands, and what it says. Entries whose `run` is the same
    and whose `step` follow each other have no message between them in the log."""

    place: Place
    payload: Any
    shape: str | None
    run: int
    step: int


class History(list[Any]):
    """What the model sees: a list of payloads, oldest first. `seq` is the last record that it reflects."""

    def __init__(
        self,
        payloads: Iterable[Any] = (),
        *,
        seq: int = -1,
        token_count: int | None = None,
        summary: str = "",
    ) -> None:
        super().__init__(payloads)
        self.seq = seq
        self.token_count = token_count
        self.summary = summary


Read = Callable[[Sequence[tuple[int, int]], tuple[str, ...]], Iterable[Record]]
"""Gives the records of some kinds whose seq lies in one of the spans (both ends included), in order."""


def advance(base: Base, record: Record) -> Base:
    """The base after a `history` record."""
    given = record.data.get("parts") if isinstance(record.data, dict) else None
    return Base(record.seq, named(given if isinstance(given, list) else (), record.seq))


def named(given: Sequence[Any], seq: int) -> tuple[Part, ...]:
    """The parts of the history record `seq` as places; what cannot be understood stands for nothing."""
    parts: list[Part] = []
    written = 0
    for part in given:
        if isinstance(part, dict) and "message" in part:
            if parts and len(parts[-1]) == 3 and parts[-1][0] == seq:
                parts[-1] = (seq, parts[-1][1], written)
            else:
                parts.append((seq, written, written))
            written += 1
        elif (
            isinstance(part, list | tuple)
            and len(part) in (2, 3)
            and all(type(n) is int and n >= 0 for n in part)
            and part[-2] <= part[-1]
            and part[-len(part)] < seq
            and (len(part) == 3 or part[1] < seq)
        ):
            parts.append(tuple(part))
    return tuple(parts)


def inline(record: Record) -> list[Any]:
    """The messages written inside a history record."""
    given = record.data.get("parts") if isinstance(record.data, dict) else None
    listed = given if isinstance(given, list) else ()
    return [p["message"] for p in listed if isinstance(p, dict) and "message" in p]


def entries(base: Base, last: int, read: Read) -> list[Entry]:
    """The history that a base stands for, as of the record `last`, reading no more than what is live."""
    parts = [*base.parts, (base.after + 1, last)] if base.after < last else list(base.parts)
    spans: list[tuple[int, int]] = []
    for a, b in sorted((part[0], part[1] if len(part) == 2 else part[0]) for part in parts):
        if spans and a <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], max(b, spans[-1][1]))
        else:
            spans.append((a, b))
    inlined = any(len(part) == 3 for part in parts)
    said: list[Record] = []
    written: dict[int, list[Any]] = {}
    for record in read(spans, ("message", "history") if inlined else ("message",)) if spans else ():
        if record.kind == "message":
            said.append(record)
        else:
            written[record.seq] = inline(record)
    seqs = [record.seq for record in said]
    found: list[Entry] = []
    for run, part in enumerate(parts):
        if len(part) == 2:
            chosen = said[bisect_left(seqs, part[0]) : bisect_right(seqs, part[1])]
            found += (Entry((r.seq, -1), r.data, r.shape, run, step) for step, r in enumerate(chosen))
        else:
            s, i, j = part
            found += (
                Entry((s, n), payload, None, run, n)
                for n, payload in enumerate(written.get(s, ())[i : j + 1], start=i)
            )
    return found


def payloads(base: Base, last: int, read: Read) -> list[Any]:
    """The payloads of `entries`, the quick way where the history stands in the log as it was said."""
    parts = [*base.parts, (base.after + 1, last)] if base.after < last else list(base.parts)
    if not parts:
        return []
    if all(len(part) == 2 for part in parts) and all(a[1] < b[0] for a, b in pairwise(parts)):
        return [record.data for record in read([(a, b) for a, b in parts], ("message",))]
    return [entry.payload for entry in entries(base, last, read)]


def newest(base: Base, last: int, limit: int, backwards: Read) -> list[Any]:
    """The payloads of the newest `limit` entries. `backwards` reads from the end."""
    if limit == 0:
        return []
    found: list[Any] = []
    spans: list[Part] = [*base.parts, (base.after + 1, last)]
    for part in reversed(spans):
        if part[-2] > part[-1]:
            continue
        if len(part) == 2:
            for record in backwards([(part[0], part[1])], ("message",)):
                found.append(record.data)
                if len(found) == limit:
                    return found[::-1]
        else:
            for record in backwards([(part[0], part[0])], ("history",)):
                found += reversed(inline(record)[part[1] : part[2] + 1])
            if len(found) >= limit:
                break
    return found[:limit][::-1]


def fold(records: Iterable[Record]) -> list[Any]:
    """The history that a whole log gives, by going through all of it: what all else has to agree with."""
    said: dict[Place, Any] = {}
    seqs: list[int] = []
    seen: list[Any] = []
    for record in records:
        if record.kind == "message":
            said[record.seq, -1] = record.data
            seqs.append(record.seq)
            seen.append(record.data)
        elif record.kind == "history" and isinstance(record.data, dict):
            for i, payload in enumerate(inline(record)):
                said[record.seq, i] = payload
            seen = []
            for part in advance(Base(), record).parts:
                if len(part) == 2:
                    span = seqs[bisect_left(seqs, part[0]) : bisect_right(seqs, part[1])]
                    seen += [said[seq, -1] for seq in span]
                else:
                    places = ((part[0], i) for i in range(part[1], part[2] + 1))
                    seen += [said[place] for place in places if place in said]
    return seen


# -- changing it ------------------------------------------------------------------------------------


def parts_of(chosen: Sequence[Entry]) -> list[Part]:
    """The fewest parts that name these entries in this order."""
    parts: list[Part] = []
    before: Entry | None = None
    for entry in chosen:
        place = entry.place
        joins = before is not None and before.run == entry.run and before.step + 1 == entry.step
        if place[1] < 0:
            if joins and len(parts[-1]) == 2:
                parts[-1] = (parts[-1][0], place[0])
            else:
                parts.append((place[0], place[0]))
        elif joins and len(parts[-1]) == 3 and parts[-1][0] == place[0]:
            parts[-1] = (place[0], parts[-1][1], place[1])
        else:
            parts.append((place[0], place[1], place[1]))
        before = entry
    return parts


def covers(parts: Sequence[Part], place: Place) -> bool:
    """Whether one of the parts names the place."""
    if place[1] < 0:
        return any(len(part) == 2 and part[0] <= place[0] <= part[1] for part in parts)
    return any(len(part) == 3 and part[0] == place[0] and part[1] <= place[1] <= part[2] for part in parts)


def within(given: Sequence[Entry], parts: Sequence[Part]) -> list[Entry]:
    """The entries that the parts name, in the order in which they are given."""
    spans = sorted((part[0], part[1]) for part in parts if len(part) == 2)
    begins = [span[0] for span in spans]
    inner = [part for part in parts if len(part) == 3]
    reach: list[int] = []  # how far the spans up to each one go
    for _, end in spans:
        reach.append(max(end, reach[-1]) if reach else end)
    found = []
    for entry in given:
        if entry.place[1] < 0:
            i = bisect_right(begins, entry.place[0]) - 1
            if i >= 0 and entry.place[0] <= reach[i]:
                found.append(entry)
        elif covers(inner, entry.place):
            found.append(entry)
    return found


def kept(given: Sequence[Entry], keep: int, *, pairs: bool) -> int:
    """From which entry on a truncation to the last `keep` goes. With `pairs` a call is never separated
    from its results and no orphan result comes first: it keeps fewer rather than more."""
    start = max(0, len(given) - keep) if keep > 0 else len(given)
    if not pairs or start == 0:
        return start
    hidden = {id for entry in given[:start] for id in messages.calls(entry.payload, entry.shape)}
    # every result whose call is hidden, and every result that no call stands before, moves the cut
    known: set[str] = set()
    for i in range(start, len(given)):
        payload, shape = given[i].payload, given[i].shape
        known.update(messages.calls(payload, shape))
        orphans = set(messages.results(payload, shape)) - known
        if orphans and (i == start or hidden & orphans):
            start = i + 1
            hidden |= known
            known = set()
    return start


def left(given: Sequence[Entry], pop: int, *, pairs: bool) -> int:
    """How many entries are left when the newest `pop` are taken away. With `pairs` no call is left
    whose result went."""
    stop = max(0, len(given) - pop)
    if not pairs:
        return stop
    gone = _orphans(given[stop:])
    while gone:
        cut = next(
            (
                i
                for i in reversed(range(stop))
                if gone & set(messages.calls(given[i].payload, given[i].shape))
            ),
            None,
        )
        if cut is None:
            break
        gone -= set(messages.calls(given[cut].payload, given[cut].shape))
        gone |= _orphans(given[cut:stop])
        stop = cut
    return stop


def answering(
    rest: Sequence[Entry], gone: Sequence[Entry], stays: Sequence[Entry], *, first: bool = False
) -> list[Entry]:
    """What others added, without results whose call is gone. With `first` it may come to stand first, where
    no orphan may be."""
    hidden = {id for entry in gone for id in messages.calls(entry.payload, entry.shape)}
    made = {id for entry in stays for id in messages.calls(entry.payload, entry.shape)}
    first = first and not stays
    found: list[Entry] = []
    for entry in rest:
        calls = set(messages.calls(entry.payload, entry.shape))
        orphans = set(messages.results(entry.payload, entry.shape)) - made - calls
        if orphans and (orphans & hidden or (first and not found)):
            hidden |= calls
        else:
            made |= calls
            found.append(entry)
    return found


def shown(base: Base, last: int, read: Read) -> Iterator[tuple[Place, Any, Record | None]]:
    """What the model sees, one message at a time in bounded memory: where it stands, what it says, and its
    own record where it has one."""
    for part in (*base.parts, (base.after + 1, last)):
        if len(part) == 2 and part[0] <= part[1]:
            for record in read([(part[0], part[1])], ("message",)):
                yield (record.seq, -1), record.data, record
        elif len(part) == 3:
            for record in read([(part[0], part[0])], ("history",)):
                written = inline(record)[part[1] : part[2] + 1]
                yield from (((record.seq, i), payload, None) for i, payload in enumerate(written, part[1]))


def _orphans(given: Sequence[Entry]) -> set[str]:
    """The calls that these entries answer and do not make before."""
    orphans: set[str] = set()
    made: set[str] = set()
    for entry in given:
        made.update(messages.calls(entry.payload, entry.shape))
        orphans.update(set(messages.results(entry.payload, entry.shape)) - made)
    return orphans


def matched(given: Sequence[Entry], wanted: Sequence[Any]) -> list[Entry | None]:
    """For each wanted message an entry that says the same, if there is one; neighbours where possible."""
    keys = [_key(entry.payload) for entry in given]
    at: dict[bytes, deque[int]] = {}
    for i, key in enumerate(keys):
        at.setdefault(key, deque()).append(i)
    used: set[int] = set()
    chosen: list[Entry | None] = []
    follower = 0
    for payload in wanted:
        key = _key(payload)
        place = follower if follower < len(keys) and keys[follower] == key and follower not in used else -1
        places = at.get(key)
        while place < 0 and places:
            first = places.popleft()
            place = -1 if first in used else first
        if place < 0:
            chosen.append(None)
        else:
            used.add(place)
            chosen.append(given[place])
            follower = place + 1
    return chosen


def extension(given: Sequence[Entry], wanted: Sequence[Any]) -> Sequence[Any] | None:
    """What `wanted` has beyond the history, where it begins with all of it; else None."""
    if len(wanted) < len(given):
        return None
    if any(_key(entry.payload) != _key(payload) for entry, payload in zip(given, wanted, strict=False)):
        return None
    return wanted[len(given) :]


def composed(given: Sequence[Entry], wanted: Sequence[Any]) -> list[Any]:
    """The parts of a history record for the wanted messages: ranges where the log has them already."""
    parts: list[Any] = []
    run: list[Entry] = []
    for payload, entry in zip(wanted, matched(given, wanted), strict=True):
        if entry is not None:
            run.append(entry)
            continue
        parts += parts_of(run)
        run = []
        parts.append({"message": payload})
    return parts + parts_of(run)


def _key(payload: Any) -> bytes:
    """Equal for payloads that are equal as JSON, whatever the order of their members."""
    return _sorted(payload)


_sorted = msgspec.json.Encoder(order="sorted").encode


def digest(arguments: Mapping[str, Any]) -> str:
    """A short name for what a call was asked to do, so that its repeat under the same id is known."""
    import hashlib  # only calls with an id of their own need it

    return hashlib.sha256(_sorted(arguments)).hexdigest()[:32]
