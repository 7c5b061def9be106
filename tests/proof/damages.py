"""What can happen to the bytes of a log, by lot, and what has to be readable of it all the same.

Nothing here is the library's: lines are written, damaged and read by the rules of docs/format.md alone. A
damaged log knows which of its lines nobody has touched.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from random import Random
from typing import Any
from zlib import crc32

Line = dict[str, Any]

# -- lines as they are written


def sealed(front: bytes, seed: int) -> tuple[bytes, int]:
    """A line of everything before its sum, and the seed of the next one."""
    claimed = crc32(front, seed)
    end = b',"sum":"%08x"}\n' % claimed
    return front + end, crc32(end, claimed)


def written(writes: Iterable[list[tuple[str, Any]]], id: str = "s") -> list[bytes]:
    """The lines of a log in which these are written, kind and data, several at once or one alone."""
    begin = ("session", {"id": id, "uid": f"uid-of-{id}", "format": 1})
    lines, seed, seq = [], 0, 0
    for write in ([begin], *writes):
        batch = [seq, len(write)]
        for kind, data in write:
            said: Line = {"kind": kind, "data": data, "id": f"key-{seq}"} if seq % 3 == 2 else {}
            said = said or {"kind": kind, "data": data}
            said |= {"batch": batch} if len(write) > 1 else {}
            said |= {"at": f"2026-05-01T12:{seq // 60 % 60:02}:{seq % 60:02}Z", "seq": seq}
            front = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()[:-1]
            line, seed = sealed(front, seed)
            lines.append(line)
            seq += 1
    return lines


# -- a reader by the rules, as slow and plain as can be

_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?(Z|[+-]\d\d:\d\d)")
_END = re.compile(rb',"sum":"([0-9a-f]{8})"\}')


def _finite(text: str) -> float:
    number = float(text)
    if number - number:  # neither infinity nor NaN is a number of JSON
        raise ValueError
    return number


def _members(pairs: list[tuple[str, Any]]) -> Line:
    """An object in which two lines that ran into each other may both have left what every record has."""
    for name, value in pairs:
        if name == "at" and _AT.fullmatch(str(value)):
            datetime.fromisoformat(value)  # which says whether there is such a time
        elif name == "at" or (name == "seq" and not _is_number(value)):
            raise ValueError
    return dict(pairs)


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def legible(text: bytes) -> Line | None:
    """The record in a line, if there is one, whether it is what was written or not."""
    if not _END.fullmatch(text, max(0, len(text) - 18)):
        return None
    try:
        line = json.loads(text.decode(), parse_float=_finite, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return None
    return line if "at" in line and "seq" in line else None


def _texts(raw: bytes) -> Iterable[bytes]:
    """Lines as they are to be read: without what an editor left at their ends, and two where the newline
    between them is lost."""
    *wholes, rest = raw.split(b"\n")
    for whole in (*wholes, rest):
        text = whole if whole is rest else whole.rstrip(b" \r\0")
        while legible(text) is None and whole is not rest:
            hole = text.rfind(b"\0") + 1
            if hole and legible(text[hole:]):  # what stands before it never reached the disk
                yield text[:hole]
                text = text[hole:]
                break
            end = next((m.end() for m in _END.finditer(text) if legible(text[: m.end()])), 0)
            begin = text.find(b'{"kind":', end)
            if not end or begin < 0:
                break
            yield text[:end]
            text = text[begin:]
        yield text


def readable(raw: bytes) -> list[Line]:
    """The records that have to be given of a log, whatever happened to it: the rules of the format, one after
    the other. More may be given, if it is said to be doubtful."""
    texts = list(_texts(raw))
    given: list[Line] = []
    write: list[Line] = []
    seed, last, doubt = 0, -1, False
    for i, text in enumerate(texts):
        line = legible(text)
        if line is None:
            doubt = doubt or i < len(texts) - 1
            continue
        seq, claimed = line["seq"], int(text[-10:-2], 16)
        then = crc32(text[-18:] + b"\n", claimed)
        final = i == len(texts) - 1  # without a newline, so that its sum has to be right
        right = not final if doubt else claimed == crc32(text[:-18], seed)
        if not right and seq > last + 1:
            after = legible(texts[i + 1]) if i + 1 < len(texts) else None
            right = after is not None and after["seq"] > seq
            right = right and int(texts[i + 1][-10:-2], 16) == crc32(texts[i + 1][:-18], then)
        if seq <= last or not right:
            doubt = True
            continue
        seed, last, doubt = then, seq, False
        first, n = line.get("batch", (seq, 1))
        if write and (write[0]["batch"] != [first, n] or seq != first + len(write)):
            write = []
        if n == 1:
            given.append(line)
        elif write or seq == first:
            write.append(line)
            if len(write) == n:
                given += write
                write = []
    return given


# -- damage


@dataclass
class Piece:
    """Bytes of a damaged log. `origin` is the line of the sound log that they are, at its place."""

    data: bytes
    origin: int | None = None


@dataclass
class Damaged:
    """A log that things happen to."""

    sound: list[bytes]
    pieces: list[Piece] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pieces = [Piece(line, n) for n, line in enumerate(self.sound)]

    @property
    def raw(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)

    def splice(self, start: int, stop: int, data: bytes) -> None:
        """Puts bytes in the place of others, and knows which lines are not what they were any more."""
        was = self.raw[start:stop]
        same = next(
            (n for n, (a, b) in enumerate(zip(was, data, strict=False)) if a != b), min(len(was), len(data))
        )
        start, data, was = start + same, data[same:], was[same:]
        longest = min(len(was), len(data))
        same = next((n for n in range(longest) if was[~n] != data[~n]), longest)
        stop, data, was = stop - same, data[: len(data) - same], was[: len(was) - same]
        if was == data:
            return
        kept: list[Piece] = []
        before = after = b""
        place, at = None, 0
        for piece in self.pieces:
            end = at + len(piece.data)
            inside = at < stop and start < end if start < stop else at < start < end
            if inside:
                before += piece.data[: max(0, start - at)]
                after += piece.data[max(0, stop - at) :]
            if (inside or at >= start) and place is None:
                place = len(kept)
            if not inside:
                kept.append(piece)
            at = end
        kept.insert(len(kept) if place is None else place, Piece(before + data + after))
        self.pieces = kept

    def settle(self) -> None:
        """A line that something without an end stands before is touched; one that is as it was is not."""
        seen: list[Piece] = []
        last, ended = -1, True
        for piece in self.pieces:
            rest, n = piece.data, piece.origin
            while (
                ended and n is None and last + 1 < len(self.sound) and rest.startswith(self.sound[last + 1])
            ):
                last += 1
                seen.append(Piece(self.sound[last], last))
                rest = rest[len(self.sound[last]) :]
            if rest:
                known = n is not None and ended and n > last
                seen.append(Piece(rest, n if known else None))
                last = n if known and n is not None else last
                ended = rest.endswith(b"\n")
        self.pieces = seen

    def untouched(self) -> set[int]:
        return {piece.origin for piece in self.pieces if piece.origin is not None}

    def safe(self) -> set[int]:
        """The lines that nothing excuses the loss of: they and all of their write are untouched, nothing that
        can be read stands before them and claims a later number, and what is before them is as it was,
        illegible, or one line that is refused because what is before that is as it was."""
        safe: set[int] = set()
        run = b""  # what stands between the last untouched line and this one
        last, claimed, clean = -1, -1, True
        follows = {piece.origin: after.origin for piece, after in pairwise(self.pieces)}
        for piece in self.pieces:
            n = piece.origin
            if n is None:
                run += piece.data
                claimed = max([claimed, *map(int, re.findall(rb'"seq":\s*(\d+)', piece.data))])
                continue
            texts = list(_texts(run))[:-1]
            read = [legible(text) is not None for text in texts]
            if run and clean and len(texts) == 1 and texts[0] + b"\n" == self.sound[last + 1]:
                good = n == last + 2 or follows.get(n) == n + 1  # only its end was touched
            elif run:
                good = not any(read) or (clean and read[0] and not any(read[1:]))
            else:
                good = n == last + 1 or follows.get(n) == n + 1
            clean = good and n > claimed
            if clean:
                safe.add(n)
            run, last = b"", n
        whole = {n: range(n, n + 1) for n in safe}
        for n in safe:
            first, many = json.loads(self.sound[n]).get("batch", (n, 1))
            whole[n] = range(first, first + many)
        return {n for n in safe if safe.issuperset(whole[n])}

    def places(self) -> list[tuple[int, int]]:
        """Where it is not what it was: from which byte to which."""
        found, at, last, before, ended = [], 0, -1, -1, True
        copies = Counter(piece.data for piece in self.pieces)
        for piece in self.pieces:
            if piece.origin is None and copies[piece.data] > 1 and piece.data in self.sound:
                pass  # of several copies any may be the one that is shown
            elif piece.origin is None:
                begin = at if not at or ended else found.pop()[0]  # it has run into the line before
                found.append((begin, at + len(piece.data)))
            elif piece.origin != last + 1 and before == last:
                found.append((at, at))  # some are missing
            before = -2 if piece.origin is None else piece.origin
            ended = piece.data.endswith(b"\n")
            last = last if piece.origin is None else piece.origin
            at += len(piece.data)
        return found


Blow = Callable[[Random, Damaged, list[bytes]], None]


def _somewhere(rng: Random, log: Damaged) -> int:
    return rng.randrange(len(log.raw) + 1)


def _between(rng: Random, log: Damaged) -> int:
    """The beginning of a piece, or the end."""
    n = rng.randrange(len(log.pieces) + 1)
    return sum(len(piece.data) for piece in log.pieces[:n])


def _piece(rng: Random, log: Damaged) -> tuple[int, bytes]:
    """Where a piece begins, and what it is."""
    n = rng.randrange(len(log.pieces)) if log.pieces else 0
    at = sum(len(piece.data) for piece in log.pieces[:n])
    return at, log.pieces[n].data if log.pieces else b""


def flip(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """A bit, or many in one stretch."""
    raw = log.raw
    at = _somewhere(rng, log)
    stop = min(len(raw), at + rng.choice([1, 1, 1, 4, 40, 700]))
    odds = rng.choice([1.0, 0.2])
    changed = (byte ^ (1 << rng.randrange(8)) if rng.random() < odds else byte for byte in raw[at:stop])
    log.splice(at, stop, bytes(changed))


def cut(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """The end is gone."""
    log.splice(_somewhere(rng, log), len(log.raw), b"")


def drop(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """A stretch is gone."""
    at = _somewhere(rng, log)
    log.splice(at, min(len(log.raw), at + rng.choice([1, 1, 7, 19, 160, 500])), b"")


def remove(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """Whole lines are gone."""
    at, line = _piece(rng, log)
    log.splice(at, at + len(line), b"")
    if rng.random() < 0.3:
        remove(rng, log, other)


def swap(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """A line stands elsewhere, mostly not far away."""
    if len(log.pieces) > 1:
        n = rng.randrange(len(log.pieces) - 1)
        moved = log.pieces.pop(n)
        to = n + 1 if rng.random() < 0.7 else rng.randrange(len(log.pieces) + 1)
        log.pieces.insert(to, Piece(moved.data))


def double(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """Lines are there again, at once or later."""
    at, line = _piece(rng, log)
    log.splice(*[at + len(line) if rng.random() < 0.5 else _between(rng, log)] * 2, line)


def garbage(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """Something that nobody wrote, mostly as lines of its own."""
    said = rng.choice(GARBAGE)(rng)
    at = _between(rng, log) if rng.random() < 0.7 else _somewhere(rng, log)
    log.splice(at, at, said + (b"\n" if rng.random() < 0.8 else b""))


def overwrite(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """Something in the place of what stood there."""
    said = rng.choice(GARBAGE)(rng)
    at = _somewhere(rng, log)
    log.splice(at, min(len(log.raw), at + len(said)), said)


def hole(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """A stretch never reached the disk, or NULs stand where nothing stood."""
    at = _between(rng, log) if rng.random() < 0.5 else _somewhere(rng, log)
    size = rng.choice([1, 16, 512, 5000])
    stop = at if rng.random() < 0.3 else min(len(log.raw), at + size)
    log.splice(at, stop, bytes(size if stop == at else stop - at))


def editor(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """Somebody's editor saved it: line ends, blanks, a mark at the beginning, blank lines."""
    at, line = _piece(rng, log)
    match rng.randrange(6):
        case 0:
            for n, piece in enumerate(log.pieces):
                log.pieces[n] = Piece(piece.data.replace(b"\n", b"\r\n"))
        case 1:
            log.splice(0, 0, b"\xef\xbb\xbf")
        case 2:
            log.splice(at, at, b"\n" * rng.randrange(1, 4))
        case 3 if line.endswith(b"\n"):
            log.splice(
                at + len(line) - 1, at + len(line), rng.choice([b"\r\n", b" \n", b"\t\n", b" \r \n", b""])
            )
        case 4:
            log.splice(at, at + len(line), line.replace(b'":', b'": '))
        case _:
            log.splice(at, at + len(line), line.replace(b"e", "é".encode("latin-1")))


def strangers(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """Lines of another session, one or several."""
    n = rng.randrange(len(other))
    at = _between(rng, log)
    log.splice(at, at, b"".join(other[n : n + rng.choice([1, 1, 2, 5])]))


def page(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """A sector of another file, or of this one, was written here."""
    source = b"".join(other) if rng.random() < 0.5 else log.raw
    n, size = rng.randrange(len(source) + 1), rng.choice([512, 4096])
    at = _somewhere(rng, log) // 512 * 512
    data = source[n // 512 * 512 :][:size]
    log.splice(at, min(len(log.raw), at + len(data)), data)


def reword(rng: Random, log: Damaged, other: list[bytes]) -> None:
    """A number, a time, a name in a line says something else, and the line can be read still."""
    at, line = _piece(rng, log)
    pattern, new = rng.choice(REWORDED)
    found = list(re.finditer(pattern, line))
    if found:
        match = rng.choice(found)
        log.splice(at + match.start(), at + match.end(), match.expand(new))


REWORDED = [
    (rb'("seq":)(\d+)', rb"\g<1>9\2"),
    (rb'("seq":)(\d+)', rb"\g<1>0"),
    (rb'("seq":)(\d+)', rb"\g<1>-1"),
    (rb'("seq":)(\d+)', rb"\g<1>99999999999999999999999999"),
    (rb'("seq":)(\d+)', rb"\g<1>9223372036854775807"),
    (rb'("seq":)(\d+)', rb"\g<1>2.0"),
    (rb'("at":"[^"]*)Z"', rb'\1"'),
    (rb'("at":")\d{4}', rb"\g<1>0001"),
    (rb'("at":")\d{4}', rb"\g<1>9999"),
    (rb'("at":"[^"]*)Z"', rb'\1-23:59"'),
    (rb'"batch":\[(\d+),(\d+)\]', rb'"batch":[\1,0]'),
    (rb'"batch":\[(\d+),(\d+)\]', rb'"batch":[\1,1000000]'),
    (rb'"batch":\[(\d+),(\d+)\]', rb'"batch":[-1,\2]'),
    (rb'"batch":\[(\d+),(\d+)\]', rb'"batch":[\2,\1]'),
    (rb'"kind":"\w+"', rb'"kind":"history"'),
    (rb'"kind":"\w+"', rb'"kind":"compacted"'),
    (rb'"kind":"\w+"', rb'"kind":"meta"'),
    (rb'"kind":"\w+"', rb'"kind":"usage"'),
    (rb'"kind":"\w+"', rb'"kind":"session"'),
    (rb'"data":\{', rb'"data":{"usage":[1],"parts":[[0,99999999999]],"first":0,"set":{"title":5},'),
    (rb'"data":\{', rb'"usage":{"input_tokens":1e400},"data":{'),
    (rb'"data":\{', rb'"usage":{"input_tokens":-7,"cost":"x"},"data":{'),
    (rb'"data":\{', rb'"data":{"role":["user"],"content":{"text":7},'),
    (rb'"data":\{', rb'"mood":' + b"[" * 90 + b"]" * 90 + rb',"data":{'),
    (rb'"sum":"(\w{8})"', rb'"sum":"00000000"'),
]

GARBAGE: list[Callable[[Random], bytes]] = [
    lambda rng: rng.randbytes(rng.choice([1, 5, 50, 3000])),
    lambda rng: b"garbage",
    lambda rng: rng.choice([b"{}", b"null", b"[]", b'"', b"{", b'{"kind":', b"\\", b'"}', b'"kind"']),
    lambda rng: b"[" * rng.choice([200, 100_000]),
    lambda rng: b'{"kind":"x","data":' + b'{"a":' * 5000,
    lambda rng: b'{"kind":"message","data":"' + b"x" * rng.choice([70_000, 300_000]),
    lambda rng: b'{"kind":"message","data":1,"at":"2026-05-01T12:00:00Z","seq":3,"sum":"00000000"}',
    lambda rng: b',"sum":"01234567"}' * rng.choice([1, 3]),
    lambda rng: b',"sum":"01234567"}{"kind":',
    lambda rng: b"\x1a",
    lambda rng: b"<<<<<<< HEAD",
    lambda rng: b"\xff\xfe" + "{}".encode("utf-16-le"),
]

BLOWS: list[Blow] = [
    flip,
    flip,
    cut,
    drop,
    remove,
    swap,
    double,
    garbage,
    garbage,
    overwrite,
    hole,
    editor,
    strangers,
    page,
    reword,
    reword,
]


def damaged(sound: list[bytes], other: list[bytes], rng: Random) -> Damaged:
    """A log to which something has happened, or several things."""
    log = Damaged(sound)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        blow = rng.choice(BLOWS)
        blow(rng, log, other)
        log.told.append(blow.__name__)
    log.settle()
    return log


# -- logs that are intact and strange


def strange(rng: Random) -> bytes:
    """A log of whole lines whose checksums are right, by somebody who keeps to no other rule."""
    raw, seed, seq, batch = b"", 0, 0, [0, 1]
    for _ in range(rng.randrange(1, 30)):
        seq += rng.choice([1, 1, 1, 1, 1, 1, 0, 2, -1, 5]) if raw else 0
        if rng.random() < 0.3:
            batch = [seq + rng.choice([0, 0, 0, 1, -1]), rng.choice([2, 2, 3, 1, 0, -1])]
        kind = rng.choice(["message"] * 9 + ["compacted", "x", "meta", "!x" if rng.random() < 0.02 else "y"])
        said: Line = {"kind": kind, "data": {"first": seq - rng.randrange(3)}}
        said |= {"batch": batch} if rng.random() < 0.5 else {}
        said |= {"mood": 1} if rng.random() < 0.03 else {}
        said |= {"at": "2026-05-01T12:00:00Z", "seq": seq}
        front = json.dumps(said, separators=(",", ":")).encode()[:-1]
        if rng.random() < 0.04:
            front = rng.choice(STRANGE) + front
        line, seed = sealed(front, seed)
        raw += line
    return raw


STRANGE = [b"{}\n", b"x\n", b"\xff\n", b"[]\n", b'{"kind":1}\n', b"\0\n"]
