"""What `doctor` looks at in a folder of logs: every line of every log, and all that stands beside them.

It reads with the same code as everybody else, and changes nothing but the catalog. With `repair` it mends
what can be mended, and keeps a copy of what was there before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from hansard.engines import Finding
from hansard.engines.disk import TEMPORARY, problem
from hansard.errors import AlreadyExists, HansardError
from hansard.ids import file_key, is_hashed, new_id
from hansard.records import FORMAT, Draft, Record, Scan, encode, redrafted, seal
from hansard.views import head as heads

if TYPE_CHECKING:
    from hansard.engines.catalog import Catalog
    from hansard.engines.files import Files
    from hansard.engines.logs import Log

OURS = frozenset(
    "hansard.json sessions archive documents blobs names state locks aside namespaces "
    "catalog.db catalog.db-wal catalog.db-shm catalog.db-journal catalog.lock catalog.check "
    "search.db search.db-wal search.db-shm search.db-journal search.lock search.turn".split()
)
PASSED_OVER = frozenset({".DS_Store", "lost+found", "hansard.json" + TEMPORARY})

STALE = 3600.0
"""Seconds after which a file that was about to be renamed is one that a crash left."""


def examine(
    files: Files, told: Callable[[int], None] | None = None, *, repair: bool = False
) -> Iterator[Finding]:
    """Each problem with its place and what to do about it. `told` hears how many logs were looked at."""
    files.settle()
    yield from _foreign(files)
    yield from _leftovers(files, repair)
    needed: dict[str, tuple[str, int]] = {}
    for n, session in enumerate(sorted(files.sessions())):
        if told is not None:
            told(n)
        log = files.new_log(session)
        stat = files.disk.look(log.path)
        if stat is not None and not stat.plain:
            yield _is_foreign(log.path, "a folder, a link or a pipe, and no log")
            continue
        try:
            found = list(_log(files, log, needed))
        except (HansardError, OSError) as error:
            told_by = problem(error, log.path) if isinstance(error, OSError) else error
            found = [
                Finding(
                    kind="unreadable",
                    session=session,
                    place=log.path,
                    detail=str(told_by),
                    remedy="the file was left as it is; bring it back from a copy, or move it out of the "
                    "store",
                )
            ]
        finally:
            log.detach()
        yield from _mended(files, session, found) if repair and found else found
    yield from _catalog(files, repair)
    yield from _index(files, repair)
    yield from _blobs(files, needed, repair)
    for name in sorted(files.disk.names(files.path("aside"))):
        yield Finding(
            kind="aside",
            place=files.path("aside", name),
            detail="was set aside because it could not be understood, or was left by a crash",
            remedy="look at it, and remove it when nothing in it is missed",
        )


# -- logs


def _log(files: Files, log: Log, needed: dict[str, tuple[str, int]]) -> Iterator[Finding]:
    size = log.attach().size
    reader = Scan()
    at = 0

    def take(records: list[Record]) -> None:
        log.advance(records)
        for record in records:
            for digest in record.blobs:
                needed.setdefault(digest, (log.session, record.seq))

    while at < size:
        piece = log.stretch(at, min(at + (1 << 20), size))
        if not piece:
            break
        at += len(piece)
        take(reader.feed(piece))
    take(reader.finish())
    length, state = reader.end + reader.unterminated, reader.state
    for wrong in reader.damage:
        yield Finding(
            kind="damage",
            session=log.session,
            place=f"{log.path}:{wrong.offset}",
            detail=str(wrong),
            remedy="what can be read is shown; bring the log back from a copy if one has what is missing, or "
            "go on without it: `hansard doctor --repair` writes the log anew and keeps this one under aside/",
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


def _mended(files: Files, session: str, found: list[Finding]) -> Iterator[Finding]:
    """The findings of one log, after what can be mended was. What somebody has open is left as it is."""
    kinds = {finding.kind for finding in found}
    failed = ""
    if kinds & {"damage", "torn", "unborn"}:
        try:
            lease = files.lease(session)
            try:
                _drop_row(files, session)  # it may be of the log as it was before it was damaged
                _mend(files, session, kinds)
            finally:
                files.release(session, lease)
        except (HansardError, OSError) as error:
            failed = str(error)
    if "catalog" in kinds:
        _drop_row(files, session)
    for finding in found:
        if finding.kind == "unreadable":
            yield finding
        elif failed and finding.kind != "catalog":
            yield _with(finding, remedy=f"it could not be mended: {failed}")
        else:
            yield _with(finding, remedy="it was mended", repaired=True)


def _mend(files: Files, session: str, kinds: set[str]) -> None:
    with files._using(session) as log:
        if "unborn" in kinds:
            try:
                files.take_unborn(log)
            except AlreadyExists:
                return  # somebody has begun it meanwhile
            key = file_key(session)
            documents = files.path("documents", key)
            if files.disk.look(documents) is not None:
                _move_aside(files, documents, f"documents.{key}.left")
            files.disk.unlink(log.path)
            files.disk.sync_folder(files.path("sessions"))
            log.detach()
            return
        files._grab(log, None)  # which sets a torn tail aside, and gives a last line its newline
        if "damage" in kinds:
            files.keep_copy(log, "damaged")
            files.replace_log(log, _readable(log))


def _readable(log: Log) -> Iterator[bytes]:
    """The lines of a new log with all that can be read of this one; what is missing is said to be."""
    state, last = 0, -1
    for record in _records(log):
        for draft in (*_missing(log.session, last + 1, record), redrafted(record)):
            line, state = seal(_with_extra(draft, record), state)
            yield line
        last = record.seq


def _records(log: Log) -> Iterator[Record]:
    reader = Scan()
    for line in log.lines(log.end):
        yield from reader.feed(line)
    yield from reader.finish()


def _missing(session: str, expected: int, record: Record) -> Iterator[Draft]:
    """What has to stand before a record so that a log without the records from `expected` on is intact."""
    if expected == 0 < record.seq:
        data = {"id": session, "uid": new_id()[5:], "format": FORMAT}
        yield Draft(kind="session", data=msgspec.Raw(encode(data)), at=record.at, seq=0)
        expected = 1
    seq = record.seq  # from here on there is something
    if record.kind == "compacted" and isinstance(record.data, dict):
        first = record.data.get("first")
        if type(first) is int and expected <= first < seq:
            seq = first
    if expected < seq:
        lost = {"first": expected, "last": seq - 1, "lost": True}
        yield Draft(kind="compacted", data=msgspec.Raw(encode(lost)), at=record.at, seq=seq - 1)


def _with_extra(draft: Draft, record: Record) -> bytes:
    """The line of a record without its checksum, members of newer versions before the last two."""
    body = encode(draft)
    if not record.extra or draft.seq != record.seq:
        return body
    members = msgspec.json.decode(body)
    ends = {name: members.pop(name) for name in ("at", "seq")}
    return encode({**members, **record.extra, **ends})


def _with(finding: Finding, **changes: object) -> Finding:
    return msgspec.structs.replace(finding, **changes)


# -- what stands beside them


def _drop_row(files: Files, session: str) -> None:
    """The next list makes it anew, because it compares every log with its row."""
    touched = files.catalog.use(lambda catalog: catalog.mark_open(session))
    files.catalog.use(lambda catalog: catalog.drop(session, touched=touched))
    files.catalog.use(lambda catalog: catalog.mark_open(session))
    with files._using(session) as log:
        log.detach()  # what this process knew of it no longer counts either


def _catalog(files: Files, repair: bool) -> Iterator[Finding]:
    known = files.catalog.use(lambda catalog: catalog.known())
    for session in sorted(set(known) - set(files.sessions()) - files.catalog.use(_open)):
        finding = Finding(
            kind="catalog",
            session=session,
            place=files.path("catalog.db"),
            detail="it lists a session that has no log",
            remedy="close what has the store open and delete catalog.db; it comes back",
        )
        if repair:
            _drop_row(files, session)
            finding = _with(finding, remedy="it was mended", repaired=True)
        yield finding
    if repair:
        files.settle()
    if files.catalog.in_memory and not files.catalog.newer:
        yield Finding(
            kind="catalog",
            place=files.path("catalog.db"),
            detail="it cannot be used; lists are made from the logs each time",
            remedy="see that the folder can be written and that no other program has the file locked",
        )


def _index(files: Files, repair: bool) -> Iterator[Finding]:
    searcher = files.searcher()
    detail = searcher.check()
    if detail:
        if repair:
            searcher.renew()
        yield Finding(
            kind="index",
            place=files.path("search.db"),
            detail=detail,
            remedy="it was made anew"
            if repair
            else "close what has the store open and delete search.db; it comes back",
            repaired=repair,
        )


def _open(catalog: Catalog) -> set[str]:
    return {session for session, _ in catalog.open_ids()}


def _foreign(files: Files) -> Iterator[Finding]:
    for name in sorted(set(files.disk.names(files.root)) - OURS - PASSED_OVER):
        if not _is_temporary("", name):
            yield _is_foreign(files.path(name), "not ours")
    known = {file_key(session) + ".jsonl" for session in files.sessions()}
    for name in sorted(set(files.disk.names(files.path("sessions"))) - known - PASSED_OVER):
        if is_hashed(name.removesuffix(".jsonl")):
            yield Finding(
                kind="unreadable",
                place=files.path("sessions", name),
                detail="nobody knows its session: the id is too long for the name, and no line says it",
                remedy="nothing else is lost: open it by its id, and repair it then",
            )
        elif not _is_temporary("sessions", name):
            yield _is_foreign(files.path("sessions", name), "no log of ours")


def _is_foreign(path: str, what: str) -> Finding:
    return Finding(
        kind="foreign",
        place=path,
        detail=f"{what}; it was left as it is",
        remedy="move it elsewhere: a store is a folder of its own. A log counts under its own name only",
    )


_ENDS = {"sessions": ".jsonl", "names": ".json", "state": ".json"}


def _is_temporary(kind: str, name: str) -> bool:
    """Whether a file of ours is about to be renamed to its name, or was when a crash came."""
    whole = name.removesuffix(TEMPORARY)
    if whole == name:
        return False
    if not kind:
        return whole.startswith(("hansard.json", "catalog.check."))
    return whole.endswith(_ENDS.get(kind, ""))


def _leftovers(files: Files, repair: bool) -> Iterator[Finding]:
    """What a crash left of something that was being written or taken away: it was never acknowledged."""
    folders = ["", "sessions", "names", "state"]
    for kind in ("documents", "blobs"):
        folders += [f"{kind}/{name}" for name in files.disk.names(files.path(kind)) if name != ".lock"]
    for folder in folders:
        for name in sorted(files.disk.names(files.path(folder) if folder else files.root)):
            path = files.path(folder, name) if folder else files.path(name)
            stat = files.disk.look(path) if _is_temporary(folder.partition("/")[0], name) else None
            if stat is not None and time.time() - stat.changed > STALE:
                if repair:
                    files.disk.unlink(path)
                yield _left(path, "what a crash left of a file that was being written", repair)
    for key in sorted(files.disk.names(files.path("documents"))):
        path = files.path("documents", key)
        stat = files.disk.look(path)
        log = files.path("sessions", f"{key}.jsonl")
        if stat is not None and time.time() - stat.changed > STALE and files.disk.look(log) is None:
            if repair:
                _move_aside(files, path, f"documents.{key}.left")
            yield _left(path, "documents of a session that is gone", repair)


def _move_aside(files: Files, path: str, name: str) -> None:
    """Puts a file, or a folder, where nobody takes it for something that counts, for good."""
    files.disk.make_folder(files.path("aside"))
    files.disk.rename(path, files.aside(name))
    files.disk.sync_folder(files.path("aside"))
    files.disk.sync_folder(path.rpartition("/")[0])


def _left(path: str, detail: str, repair: bool) -> Finding:
    return Finding(
        kind="leftover",
        place=path,
        detail=detail,
        remedy="it was taken away"
        if repair
        else "nothing was acknowledged; `hansard doctor --repair` takes it away",
        repaired=repair,
    )


def _blobs(files: Files, needed: dict[str, tuple[str, int]], repair: bool) -> Iterator[Finding]:
    for blob in files.blobs():
        data = files.disk.read_file(files.blob_path(blob.digest))
        if data is None or sha256(data).hexdigest() == blob.digest:
            needed.pop(blob.digest, None)
            continue
        if repair:
            _move_aside(files, files.blob_path(blob.digest), f"blobs.{blob.digest}.altered")
        yield Finding(
            kind="blob",
            place=files.blob_path(blob.digest),
            detail="what is in it is not what its name says",
            remedy="it was set aside; put the same bytes again"
            if repair
            else "put the same bytes again, or bring it back from a copy",
            repaired=repair,
        )
    for digest, (session, seq) in sorted(needed.items()):
        yield Finding(
            kind="blob",
            session=session,
            place=files.blob_path(digest),
            detail=f"record {seq} needs it, and it is not there",
            remedy="put the same bytes again, or bring it back from a copy",
        )
