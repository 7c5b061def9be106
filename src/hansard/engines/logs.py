"""One log of the file engine, as this process knows it: its file, its end, and what it says.

Here a log is opened, folded and read. Writing it, and who may, is the engine's.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence

from hansard.engines.catalog import Catalog
from hansard.engines.catalog_file import CatalogFile
from hansard.engines.disk import Disk, Stat, problem
from hansard.errors import Damaged, HansardError, ReadOnlyStore, SessionNotFound
from hansard.ids import file_key
from hansard.records import TAIL, Damage, Record, Scan, last, state_after
from hansard.views import head as heads
from hansard.views import vacuum
from hansard.views.head import Head

PIECE = 1 << 18
"""Bytes read at once."""

MARK = 1 << 16
"""Bytes of log between two places that the catalog knows."""

REFRESH = 1 << 22
"""Bytes that a log may grow before its catalog row is refreshed."""


class Log:
    """All of it is guarded by `mutex`. What a writer knows (`end`, `state`, `seq`) and what was folded
    (`folded`, …) are apart: appending folds nothing."""

    def __init__(self, session: str, path: str, disk: Disk, catalog: CatalogFile, *, readonly: bool) -> None:
        self.session = session
        self.path = path
        self.mutex = threading.RLock()
        self.fd: int | None = None
        self.inode = 0
        self.writable = not readonly
        self.depth = 0  # how often this process has the append lock
        self.busy = False  # whether a thread is between two steps; its signal handlers must not come between
        self.used = 0  # when, counted in uses of all logs
        self._disk = disk
        self._catalog = catalog
        self._readonly = readonly
        self.forget()

    def forget(self) -> None:
        """Nothing is known any more."""
        self.tail = b""  # the last bytes before `end`: a length alone is no identity
        self.end = 0  # where a writer goes on: place, checksum, last seq
        self.state = 0
        self.seq = -1
        self.floor = 0  # a failed sync never cuts below this
        self.synced = -1  # the length as of the last sync by this process
        self._unfold()

    def _unfold(self) -> None:
        self._generation = -1
        self._n: int | None = None  # its row in the catalog
        self._row: tuple[int, int] | None = None  # how far that went when it was last looked at
        self._ids: dict[str, int] = {}  # not yet in the catalog
        self._marks: list[tuple[int, int]] = []  # not yet in the catalog
        self._marked = 0
        self._anew = True  # what the catalog has of it does not count
        self.head: Head | None = None
        self._said = ""  # what a user said last, of which no preview is made yet
        self.damage: list[Damage] = []
        self.folded = 0  # how far the head goes (place, checksum, last seq), a missing last newline included
        self.folded_state = 0
        self.folded_seq = -1
        self.saved = 0  # how far the catalog's row goes

    # -- the file

    def attach(self) -> Stat:
        """Has the log open, and forgets what was known if it is not the file that it was."""
        if self.fd is not None:
            stat = self._disk.stat(self.fd)
            if stat.links:
                self.inode = stat.inode
                return stat
        self.detach()
        try:
            self.fd = self._disk.open(self.path, write=not self._readonly)
            self.writable = not self._readonly
        except FileNotFoundError:
            raise SessionNotFound(self.session) from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):  # a link or a folder is none of ours
                raise SessionNotFound(self.session) from None
            if not isinstance(problem(error, self.path), ReadOnlyStore):
                raise
            try:
                self.fd = self._disk.open(self.path)
            except FileNotFoundError:
                raise SessionNotFound(self.session) from None
            self.writable = False
        stat = self._disk.stat(self.fd)
        self.inode = stat.inode
        return stat

    def detach(self) -> None:
        """Closes the file, and with it gives its lock back."""
        if self.fd is not None:
            self._disk.close(self.fd)
        self.fd = None
        self.depth = 0
        self.forget()

    # -- folding

    def fold(self, size: int) -> Head:
        """Takes the head past all that is in the log up to `size`; `SessionNotFound` if it is no session."""
        try:
            return self._fold(size)
        except BaseException:
            self._unfold()  # some of what was read may be counted already, Ctrl-C may come anywhere
            raise

    def follow(self, records: list[Record], before: int) -> None:
        """Takes the head past messages that were just written, if it had come so far (`before`): they need
        not be read back. It keeps nothing of what is the caller's now, but texts. Anything else is folded
        when it is wanted."""
        head = self.head
        if head is None or self.folded != before or self._generation != self._catalog.generation:
            return
        for record in records:
            if record.kind != "message":
                return
        try:
            said = ""
            for record in records:
                said = heads.take_message(head, record) or said
                if record.id is not None:
                    self._ids[record.id] = record.seq
            self._said = said or self._said
            self.folded, self.folded_state, self.folded_seq = self.end, self.state, records[-1].seq
            if self.folded - self._marked >= MARK:
                self._marks.append((self.folded_seq + 1, self.folded))
                self._marked = self.folded
        except BaseException as error:
            self._unfold()  # half of it is counted: it is read back after all
            if not isinstance(error, Exception):
                raise

    def _preview(self) -> None:
        if self._said and self.head is not None:
            self.head.preview = heads.preview(self._said)
        self._said = ""

    def _fold(self, size: int) -> Head:
        self._preview()
        known = self._generation == self._catalog.generation
        if not known or (self.folded and not self.agrees(self.folded, self.folded_state, size)):
            self._unfold()
            self._begin(size)
            self._generation = self._catalog.generation  # asking for the row may have opened a new one
        if size > self.folded:
            reader = Scan(self.folded, self.folded_state, self.folded_seq)
            for piece in self._pieces(self.folded, size):
                self._take(reader, reader.feed(piece))
                if self.folded - self._marked >= MARK:
                    self._marks.append((self.folded_seq + 1, self.folded))
                    self._marked = self.folded
            end = reader.end
            rest = reader.finish()
            if reader.end > end:
                self._take(reader, rest)
                self.folded += reader.unterminated
            self.damage += reader.damage
        if self.head is None:
            raise SessionNotFound(self.session)
        return self.head

    def _take(self, reader: Scan, records: list[Record]) -> None:
        try:
            self.advance(records)
        except (HansardError, OSError):
            raise
        except Exception as error:  # one session that cannot be folded must not take the others along
            seq = 0 if self.head is None else self.head.seq
            raise Damaged(f"record {seq} of {self.path} cannot be understood: {error!r}") from error
        self.folded, self.folded_state = reader.end, reader.state or 0
        self.folded_seq = -1 if reader.seq is None else reader.seq

    def advance(self, records: Sequence[Record]) -> None:
        """Takes the head past some records."""
        if self.head is None and records:
            self.head = self._first(records[0])
            heads.advance_all(self.head, records[1:])
        elif self.head is not None:
            heads.advance_all(self.head, records)
        for record in records:
            if record.id is not None or record.kind == "compacted":
                for id in vacuum.ids(record):
                    self._ids[id] = record.seq

    def save(self, *, open: bool | None = None) -> None:
        """Writes what was folded to the catalog. A row that is new says that the log may have grown, or gone,
        unless it is known (`open`). Where somebody else has written the row since it was read,
        what they wrote is looked at first."""
        for _ in range(5):
            if self.fd is None or not self._disk.stat(self.fd).links:
                return  # it was deleted meanwhile
            if self._try_save(open=open):
                return
            self.fold(self._disk.stat(self.fd).size)

    def _try_save(self, *, open: bool | None) -> bool:
        self._preview()
        head = self.head
        if head is None or self._generation != self._catalog.generation:
            return False
        if self.saved == self.folded and not open:
            return True

        def work(catalog: Catalog) -> int | None:
            return catalog.save(
                head,
                expect=self._row,
                length=self.folded,
                state=self.folded_state,
                damage=self.damage,
                ids=self._ids.items(),
                marks=self._marks,
                anew=self._anew,
                open=open,
            )

        n = self._catalog.use(work)
        if n is None or self._generation != self._catalog.generation:
            self._generation = -1
            return False
        self._n, self._row = n, (self.folded, self.folded_state)
        self.saved, self._anew = self.folded, False
        self._ids.clear()
        self._marks.clear()
        return True

    @property
    def unsaved(self) -> int:
        """How many folded bytes the catalog does not know of."""
        return self.folded - self.saved

    def _begin(self, size: int) -> None:
        """Where folding can begin: behind what the catalog knows, if the log agrees, else at the start."""
        row = self._catalog.use(lambda catalog: catalog.row(self.session))
        if row is None or row.head is None:
            return
        self._n, self._row = row.n, (row.length, row.state)
        if self.agrees(row.length, row.state, size):
            self.head = row.head
            self.folded = self.saved = self._marked = row.length
            self.folded_state, self.folded_seq = row.state, row.head.seq
            self.damage = row.damage
            self._anew = False

    def agrees(self, length: int, state: int, size: int) -> bool:
        """Whether the log's first `length` bytes can be those that somebody folded before. A last line that
        lacks its newline is folded as if it had one."""
        assert self.fd is not None
        if not 19 < length <= size + 1:
            return False
        end = self._disk.read(self.fd, 19, length - 19)
        return state_after(end + b"\n" if length > size else end) == state

    def _first(self, record: Record) -> Head:
        if record.kind != "session":  # the first line is illegible; what follows it stays readable
            head = Head(id=self.session, seq=-1, created_at=record.when, updated_at=record.when)
            heads.advance(head, record)
            return head
        head = heads.begin(record)
        if head.id != self.session:
            raise Damaged(
                f"{self.path} is the log of session {head.id!r} under another name; rename it to "
                f"{file_key(head.id)}.jsonl, or move it out of the store"
            )
        return head

    def _pieces(self, start: int, stop: int) -> Iterator[bytes]:
        assert self.fd is not None
        while start < stop:
            piece = self._disk.read(self.fd, min(PIECE, stop - start), start)
            if not piece:
                return
            start += len(piece)
            yield piece

    def lines(self, size: int) -> Iterator[bytes]:
        """The whole lines of the first `size` bytes, newlines included."""
        begun: list[bytes] = []  # pieces of a line that has not ended yet
        for piece in self._pieces(0, size):
            *ends, rest = piece.split(b"\n")
            for end in ends:
                yield b"".join((*begun, end, b"\n"))
                begun = []
            begun.append(rest)

    def stretch(self, start: int, stop: int) -> bytes:
        """A stretch of the file."""
        return b"".join(self._pieces(start, stop))

    # -- reading

    def seq_of(self, id: str) -> int | None:
        """Where the record with this id stands. Only as far as the log was folded."""
        seq = self._ids.get(id)
        n = self._n
        if seq is None and n is not None and not self._anew:
            seq = self._catalog.use(lambda catalog: catalog.seq_of(n, id))
            if self._generation != self._catalog.generation:  # it broke; another one knows nothing yet
                assert self.fd is not None
                self.fold(self._disk.stat(self.fd).size)
                return self.seq_of(id)
        return seq

    def _places(self, fd: int, seq: int, limit: int) -> list[tuple[int, int]]:
        """Places (seq, offset) at or before a record, nearest first; the last is the beginning of the log.
        One counts only if in this very file the record before ends there."""
        with self.mutex:
            near = [mark for mark in reversed(self._marks) if mark[0] <= seq][:limit]
            n = self._n
            if len(near) < limit and n is not None and not self._anew:
                near += self._catalog.use(lambda catalog: catalog.marks(n, seq, limit - len(near)))
        sure = [place for place in near if self._begins(fd, *place)]
        return sure if sure and len(near) == limit else [*sure, (0, 0)]

    def _begins(self, fd: int, seq: int, offset: int) -> bool:
        """Whether a line begins there, behind that of the record before `seq`."""
        before = last(self._disk.read(fd, min(TAIL, offset), max(0, offset - TAIL)))
        return before is not None and before[0] == seq - 1

    def forwards(
        self, fd: int, size: int, spans: Sequence[tuple[int, int]], damage: list[Damage] | None
    ) -> Iterator[list[Record]]:
        """The records of the spans, a list at a time, from a file of its own: no lock is held meanwhile."""
        reader: Scan | None = None
        at = 0
        ready: list[Record] = []
        for a, b in spans:
            while True:
                if ready:
                    if a <= ready[0].seq and ready[-1].seq <= b:
                        yield ready
                    elif inside := [record for record in ready if a <= record.seq <= b]:
                        yield inside
                    if ready[-1].seq > b:
                        break  # the next span may begin in these
                    ready = []
                known = None if reader is None else reader.seq
                if reader is not None and (at >= size or (known is not None and known >= b)):
                    break
                if reader is None or (known is not None and known + 1 < a):
                    seq, offset = self._places(fd, a, 1)[0]
                    if reader is None or offset > at:
                        reader, at = self._reader(fd, seq, offset), offset
                seen = len(reader.damage)
                # a short span wants a short piece
                piece = self._disk.read(fd, min(PIECE if b - a > 100 else MARK, size - at), at)
                at = at + len(piece) if piece else size
                ready = reader.feed(piece)
                if at >= size:
                    ready = ready + reader.finish()
                if damage is not None:
                    damage += reader.damage[seen:]

    def backwards(
        self, fd: int, size: int, spans: Sequence[tuple[int, int]], damage: list[Damage] | None
    ) -> Iterator[list[Record]]:
        """The same, the newest first: from one known place to the next, each stretch read forwards."""
        for a, b in reversed(spans):
            stop, upto = size, b
            while stop > 0 and upto >= a:
                for seq, offset in self._places(fd, upto, 16):
                    reader = self._reader(fd, seq, offset)
                    records: list[Record] = []
                    at = offset
                    while at < stop and (reader.seq is None or reader.seq < upto):
                        piece = self._disk.read(fd, min(PIECE, stop - at), at)
                        if not piece:
                            break
                        at += len(piece)
                        records += reader.feed(piece)
                    records += reader.finish()  # the place where it ends vouches for its last record
                    if damage is not None:
                        damage += reader.damage
                    yield [record for record in reversed(records) if a <= record.seq <= upto]
                    stop, upto = offset, min(upto, seq - 1)
                    if upto < a:
                        break

    def _reader(self, fd: int, seq: int, offset: int) -> Scan:
        if offset == 0:
            return Scan()
        return Scan(offset, state_after(self._disk.read(fd, 19, offset - 19)), seq - 1)
