"""The record, its line in a log, and the checksum that runs through a log.

A line is one compact JSON object; its last member is `sum`, the CRC-32 of all bytes of the file before
`,"sum"`. `Scan` reads lines back: it verifies whole stretches at once, holds back batches until they are
complete, tells a torn tail from damage in the middle, and keeps reading past damage. What records mean
is the business of the views.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from zlib import crc32

import msgspec

from hansard.errors import InvalidPayload, NewerFormat

FORMAT = 1
"""The major version of what is written. A reader refuses a larger one."""

KINDS = frozenset("session meta message history turn block end usage event output compacted".split())
"""What the kinds of this format are; an application's own have a dot in them."""

DEEPEST = 100
"""Levels of nesting that a payload may have."""

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""The number of a record, exact in every language. What says to be another one is damaged."""

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time of which it is known when that was."""

_SEAL = 18  # the length of `,"sum":"01234567"}`
_EXTRA = "*extra"  # never written; what a line has beyond the members below is gathered under it


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"extra": _EXTRA}):
    """One thing that was said or done, as it stands in the log. `extra` has members of newer versions."""

    kind: str
    data: Any = None
    id: str | None = None
    turn: str | None = None
    model: str | None = None
    usage: Any = None
    shape: str | None = None
    time: Instant | None = None
    blobs: tuple[str, ...] = ()
    origin: tuple[str, int] | None = None
    box: str | None = None
    batch: tuple[int, int] | None = None
    at: Instant
    seq: Number
    sum: str | None = None
    extra: dict[str, Any] = {}

    @property
    def when(self) -> datetime:
        """When it happened: `time` where the writer said so, else when it was written."""
        return self.time or self.at


class Draft(msgspec.Struct, kw_only=True, omit_defaults=True, dict=True):
    """A record on its way into a log: its data already JSON, its place not yet known.

    The members stand in the order in which a line has them. Beside them it may carry its data as Python
    values that nobody else has (`own`), so that they need not be read from the JSON again.
    """

    kind: str
    data: msgspec.Raw
    id: str | None = None
    turn: str | None = None
    model: str | None = None
    usage: Any = None
    shape: str | None = None
    time: datetime | None = None
    blobs: tuple[str, ...] = ()
    origin: tuple[str, int] | None = None
    box: str | None = None
    batch: tuple[int, int] | None = None
    at: datetime | None = None
    seq: int | None = None
    sum: str | None = None


class Damage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place in a log that is not as it was written. `seq` is the last good record before it.

    kind: `illegible` (no record can be read there), `altered` (it reads, but its checksum says that it
    is not what was written; not shown), `unverified` (shown, but what stands before it is illegible),
    `line-end` (shown; only the end of its line was changed), `gap` (records are missing), `batch`
    (a write of several records of which some are missing; the others are not shown).
    """

    kind: str
    offset: int
    length: int
    seq: int
    detail: str = ""

    def __str__(self) -> str:
        return f"byte {self.offset}, {self.length} bytes, after record {self.seq}: {self.kind}: {self.detail}"


encode = msgspec.json.Encoder().encode
"""JSON as it is written everywhere: compact, UTF-8, members in the order given."""

decode = msgspec.json.Decoder().decode
"""JSON of any kind, back into plain Python values."""

_records = msgspec.json.Decoder(Record)
_members = {field.encode_name for field in msgspec.structs.fields(Record)} - {_EXTRA}


def utc(moment: datetime) -> datetime:
    """The same instant in UTC; a time without a zone is refused rather than guessed.

    >>> from datetime import timedelta, timezone
    >>> utc(datetime(2026, 5, 1, 14, 0, tzinfo=timezone(timedelta(hours=2)))).isoformat()
    '2026-05-01T12:00:00+00:00'
    """
    if not isinstance(moment, datetime):
        raise TypeError(f"{moment!r} is no datetime")
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; give an aware datetime")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{moment.isoformat()} lies outside the years 1 to 9999 in UTC") from None


def after(now: datetime, by: timedelta) -> datetime:
    """The moment that lies so long after another one; the last there is, where that is after all time."""
    try:
        return now + by
    except OverflowError:
        return _last if by > timedelta(0) else _first


def ago(now: datetime, by: timedelta) -> datetime:
    """The moment that lies so long before another one; the first there is, where that is before all time."""
    try:
        return now - by
    except OverflowError:
        return _first if by > timedelta(0) else _last


_first, _last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def encodes(text: str) -> bool:
    """Whether it is valid Unicode: no store has a text that is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- payloads ---------------------------------------------------------------------------------------


def freeze(payload: Any) -> tuple[bytes, Any]:
    """A payload as JSON and a copy of its own, if what is stored decodes equal to it; else `InvalidPayload`.

    >>> freeze({"role": "user", "content": ("a", 1)})
    (b'{"role":"user","content":["a",1]}', {'role': 'user', 'content': ['a', 1]})
    """
    try:
        raw = encode(payload)
        if _is_plain_text(payload):  # as most messages are
            return raw, payload.copy()
        own = decode(raw)
        # what encodes without loss decodes equal; tuples, objects and mistakes take the long way round
        if own == payload and (raw.count(b"[") + raw.count(b"{") <= DEEPEST or _depth(own) <= DEEPEST):
            return raw, own
    except (TypeError, ValueError, RecursionError, OverflowError):
        pass
    plain = _plain(payload, "$", 0)
    try:
        raw = encode(plain)
        own = decode(raw)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidPayload("$", str(error)) from None
    if own != plain:  # nothing known gets here; it would be a silent change
        raise InvalidPayload("$", "it does not come back from JSON as it was")
    return raw, own


def _is_plain_text(value: Any) -> bool:
    """Whether it is an object of nothing but texts, which has been encoded and so comes back as it is."""
    if type(value) is not dict:
        return False
    for name, member in value.items():  # noqa: SIM110  # a generator takes three times as long
        if type(member) is not str or type(name) is not str:
            return False
    return True


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list) and item]:
        depth += 1
        if depth > DEEPEST:
            break
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return depth


def _plain(value: Any, path: str, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidPayload(path, f"text with a lone surrogate at character {error.start}") from None
        return text
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidPayload(path, f"{float(value)} has no place in JSON")
        return float(value)
    if depth >= DEEPEST and isinstance(value, dict | list | tuple) and value:
        raise InvalidPayload(path, f"nested deeper than {DEEPEST} levels")
    if isinstance(value, dict):
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidPayload(f"{path}[{key!r}]", f"a key that is {type(key).__name__}, not text")
            where = f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"
            plain[_plain(key, where, depth)] = _plain(item, where, depth + 1)
        return plain
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        given = dump(value, mode="json", exclude_unset=True)
        if given is not None and not isinstance(given, str | int | float | dict | list | tuple):
            told = f"{type(value).__name__}, whose model_dump() gives {type(given).__name__}"
            raise InvalidPayload(path, told)
        return _plain(given, path, depth)
    raise InvalidPayload(path, type(value).__name__)


def equal(one: bytes | msgspec.Raw, other: bytes | msgspec.Raw) -> bool:
    """Whether two texts are the same JSON value, whatever the order of members."""
    a, b = bytes(one), bytes(other)
    return a == b or _sorted(decode(a)) == _sorted(decode(b))


_sorted = msgspec.json.Encoder(order="sorted").encode


# -- lines ------------------------------------------------------------------------------------------


def seal(body: bytes, state: int) -> tuple[bytes, int]:
    """The line for an encoded record, and the state of the checksum after it.

    >>> seal(b'{"kind":"message","seq":1}', 0)
    (b'{"kind":"message","seq":1,"sum":"3628dce5"}\\n', 2868382108)
    """
    front = body[:-1]
    total = crc32(front, state)
    end = b',"sum":"%08x"}\n' % total
    return front + end, crc32(end, total)


def frame(drafts: Sequence[Draft], seq: int, state: int) -> tuple[bytes, int]:
    """The lines of one write whose first record is `seq`, and the checksum's state after them. The drafts
    know their places then."""
    if len(drafts) == 1:
        draft = drafts[0]
        draft.seq, draft.batch, draft.sum = seq, None, None
        line, state = seal(encode(draft), state)
        draft.sum = line[-11:-3].decode()
        return line, state
    lines = []
    batch = (seq, len(drafts))
    for draft in drafts:
        draft.seq, draft.batch, draft.sum = seq, batch, None
        line, state = seal(encode(draft), state)
        draft.sum = line[-11:-3].decode()
        lines.append(line)
        seq += 1
    return b"".join(lines), state


_framed = re.compile(rb'"batch":\[\d+,\d+\],("at":"[^"\\]{19,40}","seq":\d+,"sum":"[0-9a-f]{8}"\}\n)$')


def sealed_anew(line: bytes, state: int, *, alone: bool = False) -> tuple[bytes, int]:
    """The same line behind another one, and the checksum's state after it. With `alone` it is a write of its
    own from now on: others of its batch were taken out."""
    return seal((_framed.sub(rb"\1", line) if alone else line)[: -_SEAL - 1] + b"}", state)


def redrafted(record: Record) -> Draft:
    """A record on its way into another log, as it stands."""
    return Draft(
        kind=record.kind,
        data=msgspec.Raw(encode(record.data)),
        id=record.id,
        turn=record.turn,
        model=record.model,
        usage=record.usage,
        shape=record.shape,
        time=record.time,
        blobs=record.blobs,
        origin=record.origin,
        box=record.box,
        batch=record.batch,
        at=record.at,
        seq=record.seq,
    )


def stored(draft: Draft) -> Record:
    """The record that a written draft has become. What it carried is the record's now."""
    carried = draft.__dict__
    return Record(
        kind=draft.kind,
        data=carried.pop("own") if "own" in carried else decode(draft.data),
        id=draft.id,
        turn=draft.turn,
        model=draft.model,
        usage=draft.usage,
        shape=draft.shape,
        time=draft.time,
        blobs=draft.blobs,
        origin=draft.origin,
        box=draft.box,
        batch=draft.batch,
        at=draft.at,  # type: ignore[arg-type]  # set by the store before it is written
        seq=draft.seq,  # type: ignore[arg-type]  # set by the engine when it was written
        sum=draft.sum,
    )


def parse(line: bytes) -> Record:
    """The record in a line; `ValueError` where there is none. Members that we do not know are kept."""
    try:
        return _records.decode(line)
    except msgspec.ValidationError:
        members = decode(line)
        if not isinstance(members, dict):
            raise
        extra = {name: members.pop(name) for name in list(members) if name not in _members}
        if not extra:
            raise
        record = msgspec.convert(members, Record)
        return msgspec.structs.replace(record, extra=extra)


def state_after(end: bytes) -> int | None:
    """The checksum's state after a line, from the line's last bytes; None where they are illegible.

    >>> state_after(b'..."seq":1,"sum":"3628dce5"}\\n')
    2868382108
    """
    claimed = _claimed(end)
    return None if claimed is None else _state(claimed)


_hex8 = re.compile(rb"[0-9a-f]{8}").fullmatch


def _claimed(end: bytes) -> int | None:
    digits = end[-11:-3]
    if end[-19:-11] == b',"sum":"' and end[-3:] == b'"}\n' and _hex8(digits):
        return int(digits, 16)
    return None


_end = re.compile(
    rb'(?:"batch":\[(\d+),(\d+)\],)?"at":"[^"\\]{19,40}","seq":(\d+),"sum":"([0-9a-f]{8})"\}\n$'
).search

TAIL = 160
"""Bytes from the end of a log in which a writer finds all that it needs to go on."""


def last(end: bytes) -> tuple[int, int] | None:
    """(seq, checksum state) after the last line, from a log's last bytes; None where a look at the whole
    is needed: the end is illegible, or stands in the middle of a batch."""
    found = _end(end[-TAIL:])  # the search would go through all of a long line
    if found is None:
        return None
    first, n, seq = found[1], found[2], int(found[3])
    if first is not None and seq != int(first) + int(n) - 1:
        return None
    state = state_after(end)
    return None if state is None else (seq, state)


# -- reading ----------------------------------------------------------------------------------------


class Scan:
    """Reads a log from `offset` on, fed with its bytes in pieces of any size.

    `end`, `state` and `seq` stand behind the last intact record that was given out, `damage` lists what is
    wrong before it. What follows `end` is, so far, a torn tail: never shown, and cut by the next writer.
    """

    def __init__(self, offset: int = 0, state: int | None = 0, seq: int | None = -1) -> None:
        self.end = offset
        self.state: int | None = state
        self.seq: int | None = seq
        self.damage: list[Damage] = []
        self.unterminated = False  # the last record lacks only its newline
        self._seeds = [] if state is None else [state]  # what the next line's checksum may go on from
        self._doubt = state is None  # what stands before the next line is not known good
        self._at = offset  # the offset of the next line
        self._next = seq  # the seq of the last line that was accepted, given out or not
        self._pieces: list[bytes] = []  # a line that has not ended yet
        self._open: list[Record] = []  # a batch of which more is to come
        self._open_at = offset
        self._held: _Held | None = None  # a line that the next one has to vouch for
        self._behind: list[tuple[int, bytes, int | None, str]] = []  # illegible lines behind that one
        self._suspect: list[Damage] = []  # damage, if good records follow; else part of the torn tail

    def feed(self, data: bytes) -> list[Record]:
        """The records that are complete by now."""
        cut = data.rfind(b"\n") + 1
        if not cut:
            if data:
                self._pieces.append(data)
            return []
        if self._pieces:
            block = b"".join((*self._pieces, data[:cut]))
            self._pieces.clear()
        else:
            block = data if cut == len(data) else data[:cut]
        if cut < len(data):
            self._pieces.append(data[cut:])
        return self._block(block)

    def finish(self) -> list[Record]:
        """To be called at the end of the log: what only waited for more counts now, and so does a last line
        whose newline alone is missing."""
        found: list[Record] = []
        if self._pieces:
            whole = b"".join(self._pieces)
            line = whole.rstrip(b"\0")  # of what follows, only the length has reached the disk
            claimed = _claimed(line + b"\n")
            seeds = self._seeds if self._held is None else [self._held.state, *self._seeds]
            if claimed is not None and any(crc32(line[:-_SEAL], seed) == claimed for seed in seeds):
                self._pieces = [whole[len(line) :]]
                found = self._block(line + b"\n")
                self._at -= 1
                if self.end > self._at:
                    self.end = self._at
                    self.unterminated = True
        if self._held is not None:
            self._vouch(self._held, found)
        return found

    @property
    def torn(self) -> int:
        """Where the torn tail begins is `end`; this is how much there is of it, as far as it was read."""
        return self._at + sum(map(len, self._pieces)) - self.end

    def _block(self, block: bytes) -> list[Record]:
        """Whole lines: at once where the checksum of the whole stretch is right, else one by one."""
        claimed = _claimed(block[-_SEAL - 1 :])
        if claimed is not None and len(self._seeds) == 1 and not self._doubt:
            if crc32(memoryview(block)[: -_SEAL - 1], self._seeds[0]) == claimed:
                try:
                    records = _records.decode_lines(block)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    pass
                else:
                    given = self._plain(block, records, _state(claimed))
                    if given is not None:
                        return given
        found: list[Record] = []
        start = 0
        while start < len(block):
            stop = block.index(b"\n", start) + 1
            self._line(block[start:stop], found)
            start = stop
        return found

    def _plain(self, block: bytes, records: list[Record], state: int) -> list[Record] | None:
        """Takes in a stretch that is as it was written, if all in it is plain: consecutive, of kinds that
        need no understanding, no batch broken. Gives what is complete by it."""
        if self._suspect or self._held is not None or self._next is None or not records:
            return None
        seq = self._next
        for record in records:
            seq += 1
            if record.seq != seq:
                if record.seq < seq or record.batch is not None or not _fills(record, seq):
                    return None
                seq = record.seq
            elif record.kind[:1] == "!":
                return None
        given = self._open + records if self._open else records
        rest = 0  # how many records at the end belong to a batch of which more is to come
        last = given[-1].batch
        if last is not None and seq < last[0] + last[1] - 1:
            rest = seq - last[0] + 1
        whole = given[: len(given) - rest] if rest else given
        if rest > len(given) or any(record.batch != last for record in given[len(whole) :]):
            return None
        left, batch = 0, None
        for record in whole:
            if record.batch != batch or not left:
                batch = record.batch
                if left or (batch is not None and batch[0] != record.seq):
                    return None
                left = 1 if batch is None else batch[1]
            left -= 1
        if left:
            return None
        begin = len(block)
        if 0 < rest <= len(records):
            for _ in range(rest):
                begin = block.rfind(b"\n", 0, begin - 1) + 1
        if whole:
            self.seq = whole[-1].seq
            if rest <= len(records):
                self.end = self._at + begin
                self.state = state_after(block[:begin]) if 0 < begin < len(block) else self._seeds[0]
                if begin == len(block):
                    self.state = state
        if rest:
            if whole or not self._open:
                self._open_at = self._at + begin
            self._open = given[len(whole) :]
        else:
            self._open = []
        self._at += len(block)
        self._seeds, self._next = [state], seq
        return whole

    def _line(self, line: bytes, found: list[Record]) -> None:
        text = line.rstrip(b"\r\n \0") + b"\n"  # an editor or a crash may have changed its end
        claimed = _claimed(text)
        record = _parsed(text)
        if record is None and self._unglued(line, found):
            return
        at, self._at = self._at, self._at + len(line)
        if claimed is None or record is None:
            self._illegible(at, line, claimed, "no record can be read" if line.strip() else "a blank line")
            return
        front = memoryview(text)[: -_SEAL - 1]
        if self._held is not None:
            # behind something illegible a greater seq is all that a line can say for the one before
            goes_on = bool(self._behind) or crc32(front, self._held.state) == claimed
            if goes_on and record.seq > self._held.record.seq:
                self._vouch(self._held, found)
            else:
                self._refuse(self._held)
        sums = [crc32(front, seed) for seed in self._seeds]
        follows = self._next is None or record.seq > self._next
        if claimed not in sums or not follows:
            if not follows or not self._doubt:
                held = _Held(record, at, line, _state(claimed), sums[:1])
                if follows and self._next is not None and record.seq > self._next + 1:
                    self._held = held  # a line before it may be missing, or its seq may have been altered
                else:
                    self._refuse(held)
                return
            self._note("unverified", at, line, f"record {record.seq}: what stands before it is not intact")
        elif text != line:
            self._note("line-end", at, line, f"record {record.seq}: its line does not end in one newline")
        self._accept(record, at, at + len(line), _state(claimed), found)

    def _unglued(self, line: bytes, found: list[Record]) -> bool:
        """Reads a line that has lost its end and runs into the next one, or that stands behind a stretch of
        what never reached the disk, if it is one."""
        for match in _seals(line):
            first, rest = line[: match.end()], line[match.end() :]
            begin = rest.find(b'{"kind":')
            if begin >= 0 and _parsed(first + b"\n") is not None:
                self._line(first, found)
                self._at += begin
                self._line(rest[begin:], found)
                return True
        hole = line.rfind(b"\0") + 1
        if hole and _parsed(line[hole:]) is not None:
            self._illegible(self._at, line[:hole], None, "bytes that never reached the disk")
            self._at += hole
            self._line(line[hole:], found)
            return True
        return False

    def _illegible(self, at: int, line: bytes, claimed: int | None, detail: str) -> None:
        """What stands behind it cannot be verified, and is taken as it reads."""
        if self._held is not None:  # the next line that can be read says whether that one belongs here
            self._behind.append((at, line, claimed, detail))
            return
        self._note("illegible", at, line, detail)
        self._doubt = True
        if claimed is not None:
            self._seeds = [_state(claimed)]

    def _go_behind(self) -> None:
        """Takes in what stands behind a line that was held."""
        behind, self._behind = self._behind, []
        for one in behind:
            self._illegible(*one)

    def _vouch(self, held: _Held, found: list[Record]) -> None:
        """Accepts a line that does not go on from the one before it: that must be missing."""
        self._held = None
        record = held.record
        self._note("unverified", held.at, held.line, f"record {record.seq}: what stood before it is missing")
        self._accept(record, held.at, held.at + len(held.line), held.state, found)
        self._go_behind()

    def _refuse(self, held: _Held) -> None:
        """A line that reads, but is not what was written there."""
        self._held = None
        follows = self._next is None or held.record.seq > self._next
        wrong = "its checksum is wrong" if follows else f"record {held.record.seq} does not belong here"
        self._note("altered", held.at, held.line, wrong)
        self._doubt = True
        # either its content was altered, or its checksum, or it does not belong here at all
        self._seeds = [held.state, *map(_state, held.sums), *self._seeds[:1]]
        self._go_behind()

    def _accept(self, record: Record, at: int, end: int, state: int, found: list[Record]) -> None:
        expected = None if self._next is None else self._next + 1
        if expected is not None and record.seq != expected and not _fills(record, expected):
            last = record.seq - 1
            which = f"record {expected} is" if last == expected else f"records {expected} to {last} are"
            self._note("gap", at, b"", f"{which} missing")
        self._seeds, self._doubt, self._next = [state], False, record.seq
        batch = record.batch
        begun = self._open[0].seq + len(self._open) if self._open else record.seq
        if self._open and (batch != self._open[0].batch or record.seq != begun):
            self._broken(at)
        if batch is None or batch[1] <= 1:
            self._give([record], end, state, found)
        elif self._open:
            self._open.append(record)
            if len(self._open) == batch[1]:
                records, self._open = self._open, []
                self._give(records, end, state, found)
        elif record.seq == batch[0]:
            self._open, self._open_at = [record], at
        else:
            self._note("batch", at, b"", f"record {record.seq} is of a write of which a part is missing")

    def _give(self, records: list[Record], end: int, state: int, found: list[Record]) -> None:
        found += map(understood, records)
        self.damage += self._suspect
        self._suspect = []
        self.end, self.state, self.seq = end, state, records[-1].seq

    def _broken(self, at: int) -> None:
        first, n = self._open[0].batch or (0, 0)
        left = len(self._open)
        self._open = []
        detail = f"a write of records {first} to {first + n - 1}, of which {left} are left"
        self._suspect.append(
            Damage(
                kind="batch", offset=self._open_at, length=at - self._open_at, seq=first - 1, detail=detail
            )
        )

    def _note(self, kind: str, at: int, line: bytes, detail: str) -> None:
        seq = -1 if self._next is None else self._next
        self._suspect.append(Damage(kind=kind, offset=at, length=len(line), seq=seq, detail=detail))


class _Held(NamedTuple):
    """A line that reads, whose checksum does not go on from the line before it."""

    record: Record
    at: int
    line: bytes
    state: int
    sums: list[int]


_seals = re.compile(rb',"sum":"[0-9a-f]{8}"\}(?!\n?$)').finditer


def _parsed(text: bytes) -> Record | None:
    try:
        return parse(text)
    except (ValueError, RecursionError):
        return None


def _state(claimed: int) -> int:
    """The checksum's state after a line that claims this sum."""
    return crc32(b',"sum":"%08x"}\n' % claimed, claimed)


def understood(record: Record) -> Record:
    """The record, if it is not of a kind that must be understood and is not."""
    if record.kind[:1] == "!":
        raise NewerFormat(
            f"record {record.seq} has the kind {record.kind!r}, which this version of hansard does not "
            "know and must understand to read on; install a newer version"
        )
    return record


def _fills(record: Record, expected: int) -> bool:
    """Whether a record says that what is missing before it was taken out on purpose."""
    data = record.data
    return record.kind == "compacted" and isinstance(data, dict) and data.get("first") == expected


def scan(pieces: Iterable[bytes], into: Scan | None = None) -> Iterable[Record]:
    """All records of a log given in pieces.

    >>> at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> line, _ = frame([Draft(kind="message", data=msgspec.Raw(b'"hi"'), at=at)], 0, 0)
    >>> [record.data for record in scan([line])]
    ['hi']
    """
    reader = Scan() if into is None else into
    for piece in pieces:
        yield from reader.feed(piece)
    yield from reader.finish()
