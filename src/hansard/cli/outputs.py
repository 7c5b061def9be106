"""What the commands print with `--json`, as types. From these come the schemas in docs/schemas/.

No command loads this: mypy checks what they print against it, and `scripts/commands.py` makes the schemas.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from hansard.records import Instant

Id = Annotated[str, Meta(description="The id of a session.")]
Url = Annotated[str, Meta(description="The store, as --store takes it.")]
Seq = Annotated[int, Meta(ge=0, description="The number of a record in its session; the first has 0.")]
Bytes = Annotated[int, Meta(ge=0, description="Bytes on the disk.")]
Amount = Annotated[int, Meta(ge=0)]


class Tokens(TypedDict):
    """What model calls took. `cost` is in dollars, null where none was recorded."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    total_tokens: int
    cost: float | None
    calls: int
    breakdown: dict[str, int]


class Usage(Tokens):
    """The same, and by model."""

    models: dict[str, Tokens]


class Head(TypedDict):
    """What a session is, as lists show it."""

    id: Id
    seq: Annotated[Seq, Meta(description="The number of its last record.")]
    title: str
    preview: Annotated[str, Meta(description="The beginning of what was last said by a person.")]
    agent: str
    model: str
    vendor: str
    endpoint: str
    workspace: str
    status: str
    labels: list[str]
    meta: dict[str, Any]
    parent: Annotated[str | None, Meta(description="What it is a fork or, with a path, a part of.")]
    path: str | None
    pinned: bool
    archived: bool
    created_at: Instant
    updated_at: Annotated[Instant, Meta(description="When something was last said.")]
    ended_at: Instant | None
    messages: Annotated[Amount, Meta(description="How many messages were ever written.")]
    turns: Amount
    usage: Usage
    token_count: Annotated[int | None, Meta(description="Tokens of what the model sees, if told.")]
    summary: str
    has_user_input: bool


class Record(TypedDict):
    """One thing that was said or done, as it was written; what it has not, it does not show. Applications
    and newer versions may have more members."""

    kind: Annotated[str, Meta(description="message, session, meta, history, usage, event … or an own one.")]
    data: Annotated[Any, Meta(description="What was said, as it was given.")]
    at: Annotated[Instant, Meta(description="When it was written.")]
    seq: Seq
    id: NotRequired[Annotated[str, Meta(description="What its writer called it.")]]
    time: NotRequired[Annotated[Instant, Meta(description="When it was said, if that was told.")]]
    turn: NotRequired[str]
    model: NotRequired[str]
    usage: NotRequired[Any]
    shape: NotRequired[str]
    blobs: NotRequired[list[str]]
    origin: NotRequired[Annotated[tuple[str, int], Meta(description="What it is a copy of.")]]
    box: NotRequired[str]
    batch: NotRequired[Annotated[tuple[int, int], Meta(description="The write that it belongs to.")]]


class Home(TypedDict):
    """The newest sessions."""

    store: Url
    sessions: list[Head]


class Listed(TypedDict):
    """A page of sessions."""

    store: Url
    sessions: list[Head]
    next: Annotated[str | None, Meta(description="What --after takes for the next page; null at the end.")]


class Item(TypedDict):
    """One thing that was said or done in a turn; what it has not, it does not show."""

    kind: Annotated[
        str, Meta(description="text, reasoning, call, result, image, file, other, change or gone.")
    ]
    role: Annotated[str, Meta(description="user, assistant, system, tool, or empty.")]
    seq: Annotated[Seq, Meta(description="The record that it stands in.")]
    inner: NotRequired[
        Annotated[int, Meta(description="Which message of that record, where it has several.")]
    ]
    text: NotRequired[
        Annotated[str, Meta(description="What was said, given to a tool, or given back by it.")]
    ]
    id: NotRequired[Annotated[str, Meta(description="What a call and its result have in common.")]]
    name: NotRequired[Annotated[str, Meta(description="The tool, the file, or the kind of change.")]]
    media: NotRequired[Annotated[str, Meta(description="Where an image or a file is, or all of it.")]]
    mime: NotRequired[str]
    error: NotRequired[Annotated[bool, Meta(description="Whether the tool failed.")]]
    model: NotRequired[str]
    at: NotRequired[Annotated[Instant, Meta(description="When it was said.")]]
    data: NotRequired[Annotated[Any, Meta(description="What no reading explains, as it was given.")]]
    items: NotRequired[
        Annotated[list[Item], Meta(description="The results of a call, the images of a result.")]
    ]


class Turn(TypedDict):
    """What somebody put in, and what followed until the next time."""

    number: Annotated[
        int | None, Meta(description="0 before the first input; null where --limit left some out.")
    ]
    first: Annotated[Seq, Meta(description="Its first record.")]
    last: Annotated[Seq, Meta(description="Its last record.")]
    began: Instant | None
    ended: Instant | None
    models: list[str]
    usage: Usage
    request: list[Item]
    response: list[Item]


class Shown(TypedDict):
    """A session: `turns`, what was said in it; with --live `messages`, what the model sees; with --records
    `records`, everything that was written."""

    head: Head
    turns: NotRequired[list[Turn]]
    messages: NotRequired[Annotated[list[Any], Meta(description="Payloads, as they were given.")]]
    records: NotRequired[list[Record]]


class Hit(TypedDict):
    """A place where something was found: the record `seq` of a session, and a line of what it says."""

    session: Id
    seq: Seq
    role: Annotated[str, Meta(description="user, assistant, system, tool, or empty.")]
    at: Annotated[Instant, Meta(description="When it was said.")]
    title: Annotated[str, Meta(description="That of the session.")]
    snippet: Annotated[str, Meta(description="A line of what is said there.")]
    marks: Annotated[
        list[tuple[int, int]],
        Meta(description="From where to where in the snippet the matches go, in characters."),
    ]
    score: Annotated[float, Meta(description="How well it matches: see docs/search.md.")]
    live: Annotated[bool, Meta(description="Whether the model sees it still.")]


class Searched(TypedDict):
    """A page of what was found."""

    store: Url
    query: str
    hits: list[Hit]
    next: Annotated[str | None, Meta(description="What --after takes for the next page; null at the end.")]


class Told(TypedDict):
    """A record; each is a line."""

    session: Id
    record: Record


class Changed(TypedDict):
    """A session, as it is after that."""

    store: Url
    session: Id
    head: Head


class Written(TypedDict):
    """A record that was written; where its id was there before, the one that has it."""

    seq: Seq
    id: str | None
    at: Instant


class Appended(TypedDict):
    """What was written."""

    store: Url
    session: Id
    records: list[Written]


class Removed(TypedDict):
    """What was deleted, and what somebody else had deleted before."""

    store: Url
    deleted: list[str]
    missing: list[str]


class Kept(TypedDict):
    """A session that had to go and could not."""

    id: str
    reason: str


class Cleaned(TypedDict):
    """What was deleted; with --dry-run, what would be."""

    store: Url
    dry_run: bool
    count: Amount
    ids: list[str]
    bytes: Bytes
    failed: list[Kept]


class Exported(TypedDict):
    """A document: its text, or with --to where it was written."""

    store: Url
    session: Id
    format: str
    text: NotRequired[str]
    to: NotRequired[str]
    bytes: NotRequired[Bytes]


class Lock(TypedDict):
    """Who has a session open, as far as is known."""

    session: Id
    title: str
    pid: int | None
    started: str | None
    host: str | None
    user: str | None
    command: str | None
    since: Instant | None


class Locks(TypedDict):
    """The sessions that are open."""

    store: Url
    locks: list[Lock]


class Finding(TypedDict):
    """One thing that was found: what, where, and what to do about it."""

    kind: str
    session: str | None
    place: str
    detail: str
    remedy: str
    repaired: bool


class Examined(TypedDict):
    """How the store is."""

    store: Url
    sessions: Annotated[Amount, Meta(description="How many were looked at.")]
    ok: Annotated[bool, Meta(description="Whether nothing was found.")]
    damaged: Annotated[bool, Meta(description="Whether something that was written is lost.")]
    findings: list[Finding]


class Vacuumed(TypedDict):
    """How many records were taken out, and the bytes that this saved."""

    store: Url
    session: Id
    count: Amount
    bytes: Bytes


class Killed(TypedDict):
    """The process that was killed."""

    pid: int
    signal: Literal["SIGKILL"]


class Write(TypedDict):
    """How far it had come."""

    bytes: int
    written: int


class Demonstrated(TypedDict):
    """What was left of a session whose writer was killed."""

    store: Url
    session: Id
    killed: Killed
    write: Write
    acknowledged: Annotated[int, Meta(description="Messages that were said to be safe.")]
    found: Annotated[int, Meta(description="Messages in the history afterwards.")]
    torn: str | None
    aside: str | None
    ok: bool


class Versions(TypedDict):
    """What runs here."""

    hansard: str
    python: str
    sqlite: str
    platform: str
    store: Annotated[str | None, Meta(description="Where the store is; null where nothing says so.")]


OUTPUTS: dict[str, Any] = {
    "": Home,
    "ls": Listed,
    "show": Shown,
    "search": Searched,
    "tail": Told,
    "new": Changed,
    "append": Appended,
    "rename": Changed,
    "label": Changed,
    "pin": Changed,
    "fork": Changed,
    "rm": Removed,
    "cleanup": Cleaned,
    "export": Exported,
    "locks": Locks,
    "doctor": Examined,
    "vacuum": Vacuumed,
    "demo": Demonstrated,
    "version": Versions,
}
"""What each command prints; "" is `hansard` alone."""
