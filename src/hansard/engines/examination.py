"""What `doctor` looks at in a folder of logs: every line of every log, and all that stands beside them.

It reads with the same code as everybody else, and changes nothing but the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hansard.engines import Finding
from hansard.errors import HansardError
from hansard.ids import file_key
from hansard.records import Scan
from hansard.views import head as heads

if TYPE_CHECKING:
    from hansard.engines.catalog import Catalog
    from hansard.engines.files import Files
    from hansard.engines.logs import Log

OURS = frozenset(
    "hansard.json sessions archive documents blobs names state locks aside namespaces "
    "catalog.db catalog.db-wal catalog.db-shm catalog.lock catalog.check".split()
)
PASSED_OVER = frozenset({".DS_Store", "lost+found", "hansard.json.tmp"})


def examine(files: Files, told: Callable[[int], None] | None = None) -> Iterator[Finding]:
    """Each problem with its place and what to do about it. `told` hears how many logs were looked at."""
    files.settle()
    yield from _foreign(files)
    for n, session in enumerate(sorted(files.sessions())):
        if told is not None:
            told(n)
        log = files.new_log(session)
        try:
            yield from _log(files, log)
        except (HansardError, OSError) as error:
            yield Finding(
                kind="unreadable",
                session=session,
                place=log.path,
                detail=str(error),
                remedy="the file was left as it is; bring it back from a copy, or move it out of the store",
            )
        finally:
            log.detach()
    known = files.catalog.use(lambda catalog: catalog.known())
    for session in sorted(set(known) - set(files.sessions()) - files.catalog.use(_open)):
        yield Finding(
            kind="catalog",
            session=session,
            place=files.path("catalog.db"),
            detail="it lists a session that has no log",
            remedy="close what has the store open and delete catalog.db; it comes back",
        )
    if files.catalog.in_memory:
        yield Finding(
            kind="catalog",
            place=files.path("catalog.db"),
            detail="it cannot be used; lists are made from the logs each time",
            remedy="see that the folder can be written and that no other program has the file locked",
        )
    for name in sorted(files.disk.names(files.path("aside"))):
        yield Finding(
            kind="aside",
            place=files.path("aside", name),
            detail="was set aside because it could not be understood, or was left by a crash",
            remedy="look at it, and remove it when nothing in it is missed",
        )


def _open(catalog: Catalog) -> set[str]:
    return {session for session, _ in catalog.open_ids()}


def _log(files: Files, log: Log) -> Iterator[Finding]:
    size = log.attach().size
    reader = Scan()
    at = 0
    while at < size:
        piece = log.stretch(at, min(at + (1 << 20), size))
        if not piece:
            break
        at += len(piece)
        for record in reader.feed(piece):
            log.advance(record)
    for record in reader.finish():
        log.advance(record)
    length, state = reader.end + reader.unterminated, reader.state
    for wrong in reader.damage:
        yield Finding(
            kind="damage",
            session=log.session,
            place=f"{log.path}:{wrong.offset}",
            detail=str(wrong),
            remedy="what can be read is shown; bring the log back from a copy if one has what is missing",
        )
    if log.head is None:
        yield Finding(
            kind="unborn",
            session=log.session,
            place=log.path,
            detail="a log without a whole first line, left by a crash; it is no session",
            remedy="nothing was acknowledged; it is taken over when the session is created again",
        )
        return
    if reader.unterminated or reader.torn:
        cut = f"{reader.torn} bytes of a write cut short"
        left = "the last line lacks its newline" if reader.unterminated else cut
        yield Finding(
            kind="torn",
            session=log.session,
            place=f"{log.path}:{length}",
            detail=left,
            remedy="nothing: the next write mends it",
        )
    row = files.catalog.use(lambda catalog: catalog.row(log.session))
    if row is None or row.head is None:
        yield _wrong_row(files, log, "it does not list the session")
    elif not row.open and (row.length, row.state) != (length, state):
        yield _wrong_row(files, log, f"it reflects {row.length} bytes of {length}")
    elif row.length == length and heads.dump(row.head) != heads.dump(log.head):
        yield _wrong_row(files, log, "what it says of the session is not what the log says")


def _wrong_row(files: Files, log: Log, detail: str) -> Finding:
    return Finding(
        kind="catalog",
        session=log.session,
        place=files.path("catalog.db"),
        detail=detail,
        remedy="close what has the store open and delete catalog.db; it comes back",
    )


def _foreign(files: Files) -> Iterator[Finding]:
    for name in sorted(set(files.disk.names(files.root)) - OURS - PASSED_OVER):
        yield Finding(
            kind="foreign",
            place=files.path(name),
            detail="not ours; it was left as it is",
            remedy="move it elsewhere: a store is a folder of its own",
        )
    known = {file_key(session) + ".jsonl" for session in files.sessions()}
    for name in sorted(set(files.disk.names(files.path("sessions"))) - known - PASSED_OVER):
        yield Finding(
            kind="foreign",
            place=files.path("sessions", name),
            detail="no log of ours; it was left as it is",
            remedy="move it elsewhere, or give it its right name if it is a log",
        )
