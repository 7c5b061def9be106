"""What a search is: what a query means, what of a record is searched, what matches, and in what order.

An engine may find the records as it likes; `scan` goes through all of them, and says what it has to find.
docs/search.md describes all of this for those who search.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from heapq import heappush, heappushpop
from math import exp2, log
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from hansard import messages
from hansard.records import Record, decode, encode, utc
from hansard.views.folding import LETTER, WORDS, Places, fold
from hansard.views.head import Head
from hansard.views.head import microseconds as microseconds
from hansard.views.history import covers, inline

ORDERS = ("rank", "newest")

RANKED = 1000
"""How many of the matches are ranked: the newest."""

SEARCHED = ("message", "history")
"""The kinds of records in which something can be found."""

ROLES = {"": 0, "user": 1, "assistant": 2, "system": 3, "tool": 4}
"""Who may speak, as an index may note it."""

# The formula of docs/search.md.
WEIGHTS = (4.0, 2.0, 1.0)
"""What a word counts in prose, in a tool's input, in its output."""

RECENT, HALVED = 0.5, timedelta(days=30)
"""What being of this moment adds, and after what time half of that is left."""

TITLED = 1.5
"""What a session is worth whose title has all that is looked for."""

_K1, _B = 1.2, 0.75  # as in every BM25, SQLite's included
_LEAST = 1e-6  # the weight of a word that is in more than half of all records

MOST_ITEMS, MOST_WORDS, LONGEST = 32, 64, 256
"""What counts of a query: so many things to look for, words of a phrase, and characters of a word."""


# -- what is asked ----------------------------------------------------------------------------------


class Item(NamedTuple):
    """Words that stand side by side; with `prefix` the last one only begins so."""

    words: tuple[str, ...]
    prefix: bool = False


class Terms(NamedTuple):
    """What all must be there, and what must not."""

    wanted: tuple[Item, ...]
    excluded: tuple[Item, ...] = ()


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A search as an engine gets it. None: any. With `tools` what tools were given and gave counts too.

    `place` is where the page before ended: the `key` of its last match.
    """

    terms: Terms
    agent: str | None = None
    workspace: str | None = None
    role: str | None = None
    session: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tools: bool = True
    order: str = "rank"
    limit: int | None = None
    place: tuple[Any, ...] | None = None
    now: datetime


_GIVEN = re.compile(
    r'(?P<no>(?<!\S)-(?=["\w]))?(?:"(?P<quoted>[^"]*)(?:"(?P<open>\*+)?|\Z)|(?P<word>[^\s"]+))', re.DOTALL
)


@lru_cache(64)
def parse(text: str) -> Terms:
    """What a query asks for. Every text is one; what has no words in it asks for nothing.

    >>> parse('login "red button" auth* -draft').wanted[1:]
    (Item(words=('red', 'button'), prefix=False), Item(words=('auth',), prefix=True))
    >>> parse("src/app.py").wanted, parse("?! *").wanted
    ((Item(words=('src', 'app', 'py'), prefix=False),), ())
    """
    found: tuple[list[Item], list[Item]] = [], []
    for match in _GIVEN.finditer(text[:100_000]):
        said, prefix = match["quoted"], match["open"] is not None
        if said is None:
            said = match["word"]
            prefix = said.endswith("*")
        words = WORDS.findall(fold(said[:20_000]))[:MOST_WORDS]
        if not words:
            continue
        for n, word in enumerate(words):
            if len(word) > LONGEST:  # what is longer still counts by its beginning
                words, prefix = [*words[:n], word[:LONGEST]], True
                break
        item = Item(tuple(words), prefix)
        which = found[match["no"] is not None]
        if item not in which and len(which) < MOST_ITEMS:
            which.append(item)
    return Terms(*map(tuple, found))


# -- what is searched -------------------------------------------------------------------------------


class Texts(NamedTuple):
    """What a record says, apart by who is asked for it: prose, what tools were given, what they gave."""

    prose: str = ""
    input: str = ""
    output: str = ""


NOTHING = Texts()


def read(record: Record) -> tuple[Texts, str]:
    """What of a record is searched, a message or the messages that a change of the history wrote; and who
    speaks in it, "" where nobody says, or several do."""
    if record.kind == "message":
        message = messages.read(record.data, record.shape)
        return _said(record.data, message), message.role
    if record.kind != "history":
        return NOTHING, ""
    given = [(payload, messages.read(payload)) for payload in inline(record)]
    if not given:
        return NOTHING, ""
    told = zip(*(_said(payload, message) for payload, message in given), strict=True)
    roles = {message.role for _, message in given}
    return Texts(*("\n".join(filter(None, one)) for one in told)), roles.pop() if len(roles) == 1 else ""


def _said(payload: Any, message: messages.Message) -> Texts:
    parts = message.parts
    if len(parts) == 1 and parts[0].kind == "text":
        return Texts(parts[0].text)
    if not parts and not message.shape:  # nobody's form; what it says is in it somewhere
        return Texts(_flat(payload))
    prose: list[str] = []
    given: list[str] = []
    gave: list[str] = []
    for part in parts:
        match part.kind:
            case "text" | "reasoning" | "other":
                prose.append(part.text)
            case "call":
                given += (part.name, _unescaped(part.text))
            case "result":
                gave.append(_unescaped(part.text))
            case _:
                prose.append(part.name)
                gave.append(part.text)  # what a file says
    return Texts(*("\n".join(filter(None, told)) for told in (prose, given, gave)))


def _unescaped(text: str) -> str:
    """A text that is JSON, as what it says: else "\\n" would begin a word with an n."""
    if "\\" in text and text[:1] in ("{", "[", '"'):
        try:
            return _flat(decode(text.encode()))
        except (ValueError, RecursionError):
            pass
    return text


def _flat(value: Any) -> str:
    """All texts and numbers in a JSON value, in order, names of members too."""
    found: list[str] = []
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for name in reversed(list(value)):
                left += (value[name], str(name))
        elif isinstance(value, list | tuple):
            left += reversed(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(str(value))
    return "\n".join(found)


# -- what matches -----------------------------------------------------------------------------------


class Folded(NamedTuple):
    """The texts of a record as they are compared, without those that nobody asks for; `length` is how many
    words all of them have."""

    texts: tuple[str, ...]
    length: int


def folded(said: Texts, tools: bool) -> Folded:
    all = tuple(map(fold, said))
    return Folded(all if tools else all[:1], sum(len(WORDS.findall(text)) for text in all))


def matches(texts: Sequence[str], terms: Terms) -> bool:
    """Whether all that is wanted is in one of these folded texts or the other, and nothing that is not."""
    return (
        bool(terms.wanted)
        and all(any(_has(text, item) for text in texts) for item in terms.wanted)
        and not any(_has(text, item) for item in terms.excluded for text in texts)
    )


def _has(text: str, item: Item) -> bool:
    for word in item.words:  # most have not, and are known so at once
        if word not in text:
            return False
    return _pattern(item).search(text) is not None


def _count(text: str, item: Item) -> int:
    return len(_pattern(item).findall(text)) if all(word in text for word in item.words) else 0


@lru_cache(256)
def _pattern(item: Item) -> re.Pattern[str]:
    """Finds words side by side in a folded text."""
    between = f"(?:(?!{LETTER})(?s:.))+"
    end = "" if item.prefix else f"(?!{LETTER})"
    return re.compile(f"(?<!{LETTER})(?={between.join(map(re.escape, item.words))}{end})")


@lru_cache(256)
def _marking(item: Item) -> re.Pattern[str]:
    """The same with all that it finds, to the end of a word of which the beginning was asked for."""
    rest = f"{LETTER}*" if item.prefix else f"(?!{LETTER})"
    between = f"(?:(?!{LETTER})(?s:.))+"
    return re.compile(f"(?<!{LETTER}){between.join(map(re.escape, item.words))}{rest}")


# -- in what order ----------------------------------------------------------------------------------


class Found(msgspec.Struct, frozen=True):
    """A record that matches, and the head of its session."""

    head: Head
    record: Record
    score: float


def moment(record: Record) -> int:
    """When it was said, in microseconds; a time more than a day ahead of the writing does not count."""
    when = record.when
    return microseconds(record.at if when - record.at > timedelta(days=1) else when)


def key(order: str, score: float, at: int, session: str, seq: int) -> tuple[Any, ...]:
    """Where a match stands: the smallest comes first."""
    return (-score, -at, session, -seq) if order == "rank" else (-at, session, -seq)


def scoring(now: datetime) -> Callable[[float, int, bool], float]:
    """Gives the score: what the words are worth, and what being new and having such a title add."""
    moment, halved = microseconds(now), HALVED / timedelta(microseconds=1)

    def score(words: float, at: int, titled: bool) -> float:
        recent = 1 + RECENT * exp2(-max(0, moment - at) / halved)
        return words * recent * TITLED if titled else words * recent

    return score


def is_titled(title: str, terms: Terms) -> bool:
    """Whether a title, folded, alone has all that is wanted."""
    return all(_has(title, item) for item in terms.wanted)


def cursor(last: Found, query: Query) -> str:
    """Where the page behind this match begins."""
    place = key(query.order, last.score, moment(last.record), last.head.id, last.record.seq)
    told = encode([_digest(query), *place, query.now])
    return urlsafe_b64encode(told).decode().rstrip("=")


def place_of(cursor: str, query: Query) -> tuple[tuple[Any, ...], datetime]:
    """What a cursor says: where the page before ended, and what was now for the first one."""
    try:
        digest, *place, now = decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if digest != _digest(query) or [type(one) for one in place] != _KEYS[query.order]:
            raise ValueError
        return tuple(place), utc(datetime.fromisoformat(now))
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise ValueError(f"after={cursor!r} is no cursor of this search; take it from page.next") from None


_KEYS = {"rank": [float, int, str, int], "newest": [int, str, int]}


def _digest(query: Query) -> int:
    """What must be the same for all pages."""
    asked = replace(query, limit=None, place=None, now=datetime.min)
    return crc32(encode(asked))


def scan(sessions: Iterable[tuple[Head, Iterable[Record]]], query: Query) -> list[Found]:
    """All that a search finds, by looking at every record: what every engine has to find."""
    terms, wanted = query.terms, query.terms.wanted
    records = words = 0
    having = [0] * len(wanted)
    # the newest: what the order begins with, the larger the newer, and how often what was found where
    newest: list[tuple[_Newer, Head, Record, list[float], int]] = []
    most = RANKED if query.order == "rank" else None if query.limit is None else query.limit
    if not wanted or query.limit == 0:
        return []
    for head, said in sessions:
        for record in said:
            if record.kind not in SEARCHED:
                continue
            said_here, role = read(record)
            text = folded(said_here, query.tools)
            if not text.length:
                continue
            records += 1
            words += text.length
            counts = [[_count(one, item) for one in text.texts] for item in wanted]
            for n, found in enumerate(counts):
                having[n] += any(found)
            if not all(map(any, counts)) or not matches(text.texts, terms):
                continue
            if not _passes(head, record, role, query):
                continue
            place = key("newest", 0, moment(record), head.id, record.seq)
            if query.order == "newest" and query.place is not None and place <= query.place:
                continue
            weighed = [sum(c * w for c, w in zip(found, WEIGHTS, strict=False)) for found in counts]
            entry = (_Newer(place), head, record, weighed, text.length)
            if most is None or len(newest) < most:
                heappush(newest, entry)
            else:
                heappushpop(newest, entry)
    rarity = [max(log((records - n + 0.5) / (n + 0.5)), _LEAST) for n in having]
    given: list[tuple[tuple[Any, ...], Found]] = []
    scored = scoring(query.now)
    for _, head, record, weighed, length in newest:
        around = _K1 * (1 - _B + _B * length * records / words)
        score = sum(r * (f * (_K1 + 1)) / (f + around) for r, f in zip(rarity, weighed, strict=True))
        at = moment(record)
        score = scored(score, at, is_titled(fold(head.title), terms))
        place = key(query.order, score, at, head.id, record.seq)
        if query.place is None or place > query.place:
            given.append((place, Found(head, record, score)))
    given.sort(key=lambda entry: entry[0])
    return [found for _, found in given[: query.limit]]


class _Newer(tuple[Any, ...]):
    """A place in the order of time, to be compared the other way round; no two are equal."""

    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return tuple(self) > tuple(other)


def _passes(head: Head, record: Record, role: str, query: Query) -> bool:
    if query.session is not None and head.id != query.session:
        return False
    if query.agent is not None and head.agent != query.agent:
        return False
    if query.workspace is not None and head.workspace != query.workspace:
        return False
    at = moment(record)
    if query.since is not None and at < microseconds(query.since):
        return False
    if query.until is not None and at >= microseconds(query.until):
        return False
    return query.role is None or role == query.role


# -- what is shown ----------------------------------------------------------------------------------


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A place where something was found: the record `seq` of a session, and what it says there.

    `snippet` is a line of it, `marks` says from where to where in that line the matches go. `live` is False
    where the model does not see it any more: it was cleared, rewound or put in fewer words.
    """

    session: str
    seq: int
    role: str
    at: datetime
    snippet: str
    title: str
    score: float
    live: bool = True
    marks: tuple[tuple[int, int], ...] = ()

    def marked(self, begin: str = "[", end: str = "]") -> str:
        """The snippet with something before and behind each match."""
        pieces: list[str] = []
        at = 0
        for a, b in self.marks:
            pieces += (self.snippet[at:a], begin, self.snippet[a:b], end)
            at = b
        return "".join((*pieces, self.snippet[at:]))


def hit(found: Found, query: Query) -> Hit:
    """What is shown of a match."""
    head, record = found.head, found.record
    said, role = read(record)
    line, marks = snippet(said if query.tools else said[:1], query.terms)
    return Hit(
        session=head.id,
        seq=record.seq,
        role=role,
        at=record.when,
        snippet=line,
        title=head.title,
        score=round(found.score, 9),
        live=is_live(head, record),
        marks=marks,
    )


def is_live(head: Head, record: Record) -> bool:
    """Whether the model sees it."""
    base = head.base
    if record.kind == "message":
        return record.seq > base.after or covers(base.parts, (record.seq, -1))
    return any(len(part) == 3 and part[0] == record.seq for part in base.parts)


WIDTH = 160
"""Characters of a snippet."""

BEFORE = 40
"""Characters of it that stand before the first match."""


def snippet(said: Sequence[str], terms: Terms, width: int = WIDTH) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The part of a text in which most of what is wanted stands, as one line, and where the matches are.

    >>> snippet(["We moved the\\ndatabase on Monday."], parse("database"))
    ('We moved the database on Monday.', ((13, 21),))
    """
    best: tuple[int, str, list[tuple[int, int]]] = (0, "", [])
    for text in said:
        shown = _spans(text, terms, width)
        if shown[0] > best[0]:
            best = (shown[0], text, shown[1])
    _, text, spans = best
    return _line(text, spans, width)


def _spans(text: str, terms: Terms, width: int) -> tuple[int, list[tuple[int, int]]]:
    """How many of the things that are wanted stand near each other, and the matches from there on."""
    given = fold(text)
    found: list[tuple[int, int, int]] = []
    for n, item in enumerate(terms.wanted):
        for count, match in enumerate(_marking(item).finditer(given)):
            found.append((*match.span(), n))
            if count == 500:
                break
    found.sort()
    most, first = 0, 0
    end = 0
    near: dict[int, int] = {}
    for begin, (at, _, n) in enumerate(found):
        while end < len(found) and found[end][1] <= at + width - BEFORE:
            near[found[end][2]] = near.get(found[end][2], 0) + 1
            end += 1
        near.setdefault(n, 0)  # one may be longer than all there is room for
        count = sum(1 for _ in near)
        if count > most:
            most, first = count, begin
        near[n] -= 1
        if near[n] <= 0:
            del near[n]
        end = max(end, begin + 1)
    places = Places(text)
    shown = [span for span in found[first:] if span[0] <= found[first][0] + width]
    return most, [(places.begin(a), places.end(b)) for a, b, _ in shown]


def _line(text: str, spans: Sequence[tuple[int, int]], width: int) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A line of a text around the first of the spans, white space folded, cut between characters."""
    first = spans[0][0] if spans else 0
    begin, end = _cuts(text, max(0, first - BEFORE), first, first + width - BEFORE, width)
    out: list[str] = []
    marks: list[tuple[int, int]] = []
    marked = [False] * (end - begin)
    for a, b in spans:
        for n in range(max(a, begin), min(b, end)):
            marked[n - begin] = True
    if begin:
        out.append("…")
    for n in range(begin, end):
        character = text[n]
        if character.isspace():
            if not out or out[-1] in (" ", "…"):
                continue
            character = " "
        if marked[n - begin]:
            if marks and marks[-1][1] == len(out):
                marks[-1] = (marks[-1][0], len(out) + 1)
            else:
                marks.append((len(out), len(out) + 1))
        out.append(character)
    while out and out[-1] == " ":
        out.pop()
    if end < len(text) and text[end:].strip():
        out.append("…")
    line = "".join(out)
    kept = [(a, min(b, len(line.rstrip()))) for a, b in marks if a < len(line)]
    return line, tuple((a, b) for a, b in kept if a < b)


def _cuts(text: str, begin: int, first: int, end: int, width: int) -> tuple[int, int]:
    """Where a line begins and ends: between words where one ends near, else between characters as a person
    counts them."""
    end = min(len(text), max(end, begin + width))
    if begin:
        space = next((n for n in range(begin, min(begin + BEFORE // 2, first)) if text[n].isspace()), -1)
        begin = _boundary(text, begin, first) if space < 0 else space + 1
    if end < len(text):
        space = next((n for n in range(end, max(end - 20, first + 1), -1) if text[n].isspace()), -1)
        end = _boundary(text, end, len(text)) if space < 0 else space
    return begin, end


def _boundary(text: str, place: int, most: int) -> int:
    """The first place from one on, up to another, at which a character ends."""
    if text[max(0, place - 1) : place + 1].isascii():
        return place
    import regex  # only where a text needs it

    start = max(0, place - 64)
    while start and not text[start].isascii() and place - start < 1000:
        start -= 1
    for match in regex.finditer(r"\X", text, pos=start, endpos=min(len(text), most + 1000)):
        if match.end() >= place:
            return place if match.start() == place else min(match.end(), most)
    return most
