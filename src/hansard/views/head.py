"""The head of a session: who it is and how it stands, folded from its records.

`begin` makes a head of a log's first record and `advance` takes it on by one record; nothing else
anywhere computes a title, a count or an activity. `Query` and `matches` say which heads a list has and
`rank` in what order; an engine with indexes must answer as they do.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hansard import messages
from hansard.errors import Damaged, NewerFormat
from hansard.records import FORMAT, Record
from hansard.views.history import Base
from hansard.views.history import advance as advance_base
from hansard.views.usage import Usage
from hansard.views.usage import advance as advance_usage

TITLE = 60
PREVIEW = 120

OPEN_STATUS = "active"
"""The status of a session that goes on; any other ends it (`ended_at`)."""


class Head(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A snapshot of what a session is, as lists show it.

    `messages` counts message records, whatever of them the model still sees; `base` says where that is.
    `other` has fields of newer versions. `titled` is True where somebody chose the title. A `parent` with a
    `path` is the session that this one is a part of, one without the session that it is a fork of, as that
    was just after record `forked_at`. `extras` counts the records of an application's own: its kinds, events,
    output. `written_at` is when its last record was written. `reach` is the first record whose history is
    still known: `vacuum` dropped what only earlier ones showed.
    """

    id: str
    seq: int
    title: str = ""
    preview: str = ""
    agent: str = ""
    model: str = ""
    vendor: str = ""
    endpoint: str = ""
    workspace: str = ""
    status: str = OPEN_STATUS
    labels: list[str] = []
    meta: dict[str, Any] = {}
    parent: str | None = None
    path: str | None = None
    forked_at: int | None = None
    pinned: bool = False
    archived: bool = False
    created_at: datetime
    updated_at: datetime
    written_at: datetime | None = None
    ended_at: datetime | None = None
    messages: int = 0
    turns: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    token_count: int | None = None
    summary: str = ""
    has_user_input: bool = False
    extras: int = 0
    reach: int = 0
    base: Base = Base()
    titled: bool = False
    first_text: str = ""
    uid: str = ""
    format: int = FORMAT
    other: dict[str, Any] = {}


TEXT_FIELDS = ("agent", "model", "vendor", "endpoint", "workspace", "status", "summary")
"""Fields that hold text; `title` too, but it has a rule of its own."""

IDENTITY = ("id", "uid", "format")


def begin(record: Record) -> Head:
    """The head of a session of which only the first record is known."""
    data = record.data
    if record.kind != "session" or not isinstance(data, dict) or not isinstance(data.get("id"), str):
        raise Damaged(f"the first record is of kind {record.kind!r}; a log begins with a session record")
    written = data.get("format")
    if type(written) is not int or not 1 <= written <= FORMAT:
        raise NewerFormat(
            f"session {data['id']!r} was written in format {written!r}; this version of hansard reads up to "
            f"{FORMAT}; install a newer version"
        )
    head = Head(
        id=data["id"],
        uid=str(data.get("uid", "")),
        seq=record.seq,
        created_at=record.when,
        updated_at=record.when,
        written_at=record.at,
        format=written,
    )
    for field, value in data.items():
        if field not in IDENTITY:
            _set(head, field, value, record)
    return head


def advance(head: Head, record: Record) -> None:
    """Takes the head, in place, past one more record."""
    head.seq, head.written_at = record.seq, record.at
    data = record.data
    match record.kind:
        case "message":
            said = take_message(head, record)
            if said:
                head.preview = preview(said)
        case "meta" if isinstance(data, dict):
            fields = data.get("set")
            if isinstance(fields, dict):
                for field, value in fields.items():
                    _set(head, field, value, record)
            unset = data.get("unset")
            if isinstance(unset, list):
                for field in unset:
                    _unset(head, field)
        case "history" if isinstance(data, dict):
            head.base = advance_base(head.base, record)
            head.reach = min(head.reach, record.seq)  # one that lost its end comes to them again
            count = data.get("token_count")
            head.token_count = count if isinstance(count, int) else None
            if isinstance(data.get("summary"), str):
                head.summary = data["summary"]
        case "turn":
            head.turns += 1
            head.has_user_input = True
            head.updated_at = _instant(record)
        case "usage" if isinstance(data, dict):
            head.usage = advance_usage(head.usage, data, record.model)
        case "compacted" if isinstance(data, dict):
            _resume_behind(head, data)
        case "event" | "output":
            head.extras += 1
        case kind if "." in kind:
            head.extras += 1
        case _:
            pass


def advance_all(head: Head, records: Iterable[Record]) -> None:
    """Takes the head, in place, past several more records. Of what users said only the last is looked at for
    the preview: that is most of what a fold would take."""
    said = ""
    for record in records:
        if record.kind == "message":
            said = take_message(head, record) or said
        else:
            if said and record.kind == "compacted":  # it may say itself what the preview is behind it
                head.preview, said = cut(said, PREVIEW), ""
            advance(head, record)
    if said:
        head.preview = preview(said)


class Taken(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a head follows from records that `vacuum` takes out: how it stands just after them. Absolute,
    so that sums of money come out to the last digit."""

    messages: int
    updated_at: datetime
    usage: Usage
    preview: str = ""
    first_text: str = ""
    summary: str = ""
    has_user_input: bool = False
    reach: int = 0


def taken(head: Head) -> Taken:
    """What a `compacted` record that ends here has to say."""
    return Taken(**{name: getattr(head, name) for name in Taken.__struct_fields__})


def _resume_behind(head: Head, data: dict[str, Any]) -> None:
    """The head behind records that are not there any more, as their `compacted` record tells it."""
    try:
        after = msgspec.convert(data.get("head"), Taken)
    except msgspec.ValidationError:
        return  # a `compacted` record of somebody else's; what it left out counts nothing
    for name in Taken.__struct_fields__:
        setattr(head, name, getattr(after, name))
    if not head.titled:
        head.title = head.first_text


def below(head: Head) -> str:
    """The session that a head is a part of, "" for one that stands for itself; a fork does."""
    return "" if head.path is None or head.parent is None else head.parent


def is_bare(head: Head) -> bool:
    """Whether nobody misses it: no user has put anything in, and no application anything of its own."""
    return not head.has_user_input and not head.extras


def fold(records: Any) -> Head | None:
    """The head that a whole log gives; None for an empty one."""
    head = None
    for record in records:
        if head is None:
            head = begin(record)
        else:
            advance(head, record)
    return head


def copy(head: Head) -> Head:
    """A head that its owner may change without anybody noticing."""
    return _decode(_encode(head))


def dump(head: Head) -> bytes:
    """The head as JSON, for a catalog or a wire."""
    return _encode(head)


def load(raw: bytes | str) -> Head:
    """The head that `dump` wrote."""
    return _decode(raw)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Head).decode


def preview(said: str) -> str:
    """What lists show of what a user said last."""
    return cut(said, PREVIEW)


def take_message(head: Head, record: Record) -> str:
    """Takes the head past a message, all but the preview: that is to be made of what is returned, what a user
    said, if anything."""
    head.seq, head.written_at = record.seq, record.at
    head.messages += 1
    if record.origin is None:  # copying is no activity
        head.updated_at = _instant(record)
    data, shape = record.data, record.shape
    said = messages.user_text(data, shape)
    if said and not head.first_text:
        head.first_text = cut(said, TITLE)
        if not head.titled:
            head.title = head.first_text
    if not head.has_user_input:
        head.has_user_input = messages.is_user_input(data, shape)
    if record.usage is not None:
        head.usage = advance_usage(head.usage, record.usage, record.model)
    return said


def _instant(record: Record) -> datetime:
    """When it happened; a stated time that lies more than a day ahead of the writing is no activity."""
    if record.time is None or record.time - record.at > timedelta(days=1):
        return record.at
    return record.time


def _set(head: Head, field: str, value: Any, record: Record) -> None:
    if field in TEXT_FIELDS:
        setattr(head, field, value if isinstance(value, str) else "")
        if field == "status":
            head.status = head.status or OPEN_STATUS
            head.ended_at = None if head.status == OPEN_STATUS else record.when
    elif field == "title":
        head.title, head.titled = (value, True) if isinstance(value, str) else (head.first_text, False)
    elif field == "labels":
        given = value if isinstance(value, list) else []
        head.labels = sorted({label for label in given if isinstance(label, str)})
    elif field == "meta":
        head.meta = {**head.meta, **value} if isinstance(value, dict) else {}
    elif field == "pinned":
        head.pinned = value is True
    elif field in ("parent", "path"):
        setattr(head, field, value if isinstance(value, str) else None)
    elif field == "forked_at":
        head.forked_at = value if type(value) is int else None
    else:
        head.other = {**head.other, field: value}


def _unset(head: Head, field: Any) -> None:
    if not isinstance(field, str):
        return
    if field == "title":
        head.title, head.titled = head.first_text, False
    elif field.startswith("meta."):
        head.meta = {name: value for name, value in head.meta.items() if name != field[5:]}
    elif field == "status":
        head.status, head.ended_at = OPEN_STATUS, None
    elif field in TEXT_FIELDS:
        setattr(head, field, "")
    elif field == "labels":
        head.labels = []
    elif field == "meta":
        head.meta = {}
    elif field == "pinned":
        head.pinned = False
    elif field in ("parent", "path", "forked_at"):
        setattr(head, field, None)
    else:
        head.other = {name: value for name, value in head.other.items() if name != field}


def cut(text: str, graphemes: int) -> str:
    """Text on one line, white space folded, at most so many characters as a person counts them.

    >>> cut("  Build\\n a   login page", 60), cut("one two three", 8)
    ('Build a login page', 'one two…')
    """
    window = graphemes * 8
    while True:
        words = text[:window].split()
        folded = " ".join(words)
        if len(folded) > graphemes * 4 or window >= len(text):
            break
        window *= 8
    if len(folded) <= graphemes:
        return folded
    if folded[: graphemes + 2].isascii():  # no "\r\n" is left, so each character stands alone
        return folded[: graphemes - 1].rstrip() + "…"
    import regex  # only where a text needs it: lists of ASCII titles start without

    clusters = regex.findall(r"\X", folded)
    if len(clusters) <= graphemes:
        return folded
    return "".join(clusters[: graphemes - 1]).rstrip() + "…"


# -- lists ------------------------------------------------------------------------------------------


class Query(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which heads, in what order. None: any. `meta` compares whole values, `labels` must all be there.

    `empty` takes in sessions without user input; `anywhere` takes in children and archived ones too. With
    `parent` the list has the children and the forks of that session, without it no children.
    `place` is where the page before ended: the rank and the id of its last head.
    """

    agent: str | None = None
    model: str | None = None
    workspace: str | None = None
    status: str | None = None
    labels: tuple[str, ...] = ()
    meta: dict[str, Any] = {}
    parent: str | None = None
    pinned: bool | None = None
    archived: bool = False
    since: datetime | None = None
    until: datetime | None = None
    prefix: str | None = None
    empty: bool = False
    anywhere: bool = False
    order: str = "activity"
    limit: int | None = None
    place: tuple[int, str] | None = None
    now: datetime


ORDERS = ("activity", "created")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(moment: datetime) -> int:
    """An instant as a whole number, which sorts and stores exactly."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def rank(head: Head, query: Query) -> int:
    """Where a head stands in a list: ascending, newest first, ties by id.

    A time more than a day ahead of now is ignored: such a head stands where it was created, and where
    that lies ahead too, at the end.
    """
    latest = microseconds(query.now) + 86_400_000_000
    moments = [head.created_at] if query.order == "created" else [head.updated_at, head.created_at]
    return -next((m for m in map(microseconds, moments) if m <= latest), 0)


def matches(head: Head, query: Query) -> bool:
    """Whether a list that asks so has this head."""
    if query.prefix is not None and not head.id.startswith(query.prefix):
        return False
    if not query.anywhere:
        if head.archived != query.archived:
            return False
        if below(head) if query.parent is None else head.parent != query.parent:
            return False
        if not head.has_user_input and not query.empty:
            return False
    elif query.parent is not None and head.parent != query.parent:
        return False
    if query.since is not None and head.updated_at < query.since:
        return False
    if query.until is not None and head.updated_at >= query.until:
        return False
    if query.pinned is not None and head.pinned != query.pinned:
        return False
    for field in ("agent", "model", "workspace", "status"):
        wanted = getattr(query, field)
        if wanted is not None and getattr(head, field) != wanted:
            return False
    return matches_tags(head, query)


def matches_tags(head: Head, query: Query) -> bool:
    """The part of `matches` about labels and metadata, which no index answers."""
    if not all(label in head.labels for label in query.labels):
        return False
    missing = object()
    return all(_same(head.meta.get(name, missing), value) for name, value in query.meta.items())


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
