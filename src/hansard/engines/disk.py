"""The operating system's files, folders and locks, and nothing else of the house touches them.

`Disk` has one small method for each thing that is asked of the kernel, so that a test can put another
disk under the file engine: one that forgets what was not synced, or runs full. What the bytes mean is
not known here.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import os
import random
import select
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from hansard.errors import (
    HansardError,
    ReadOnlyStore,
    StoreFull,
    StoreUnavailable,
    Unsupported,
)

LOCK_PATIENCE = 60.0
"""Seconds that a write waits for other writers of the same session before it gives up."""

S_IFMT, S_IFREG = 0o170000, 0o100000  # stat's own functions take longer than the system call

TEMPORARY = "~tmp"
"""The end of the name of a file that is about to be renamed; no file key ends so."""

_SHARED, _ALONE = fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_EX | fcntl.LOCK_NB

MANY_FOLDERS = 10_000
"""How many folders a process remembers to have made sure of."""

NETWORK_FILE_SYSTEMS = frozenset(
    "nfs nfs4 cifs smb3 smbfs afpfs webdav 9p afs ceph glusterfs fuse.glusterfs fuse.sshfs fuse.s3fs "
    "fuse.rclone fuse.davfs davfs lustre gpfs beegfs ncpfs ocfs2 gfs2 orangefs pvfs2".split()
)


class Stat(NamedTuple):
    """What is known of a file without reading it. `changed` is when its content was last written or touched,
    in seconds since 1970; `plain` whether it is a file, and not a folder, a link or a pipe."""

    size: int
    links: int
    inode: int
    changed: float = 0.0
    plain: bool = True


class UnsureError(OSError):
    """What was asked was done, and nobody knows whether it lasts."""


class Disk:
    """A real disk. Paths are text, files are descriptors, closed on exec and not to be used by a child."""

    def __init__(self) -> None:
        if sys.platform not in ("linux", "darwin"):
            raise Unsupported(f"hansard keeps files on Linux and macOS; {sys.platform} is not supported yet")
        self.inherited = False
        self._sure: set[str] = set()  # folders that are there after a power cut too
        self._resting: list[weakref.WeakMethod[Callable[[], Callable[[], None]]]] = []
        self._open: set[int] = set()
        self._process: dict[str, Any] | None = None
        _disks.add(self)

    # -- files

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        flags = (
            os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_RDWR | os.O_APPEND if write else os.O_RDONLY)
        )
        fd = os.open(path, flags | (os.O_CREAT if create else 0), 0o600)
        self._open.add(fd)
        return fd

    def close(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            os.close(fd)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def write(self, fd: int, data: bytes) -> None:
        """Adds all of the data to the end, or raises with some of it there."""
        written = self.put(fd, data)
        while written < len(data):
            written += self.put(fd, data[written:])

    def put(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        """Writes bytes once more where they stand, so that the next sync has to bring them to the disk."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            while data:
                written = os.pwrite(fd, data, offset)
                data, offset = data[written:], offset + written
        finally:
            os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    if sys.platform == "darwin":

        def sync(self, fd: int) -> None:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

    else:

        def sync(self, fd: int) -> None:
            os.fdatasync(fd)

    def stat(self, fd: int) -> Stat:
        found = os.fstat(fd)
        plain = found.st_mode & S_IFMT == S_IFREG
        return Stat(found.st_size, found.st_nlink, found.st_ino, found.st_mtime, plain)

    def extent(self, fd: int) -> tuple[int, int]:
        """How many links an open file has, and how long it is."""
        found = os.fstat(fd)
        return found.st_nlink, found.st_size

    # -- names

    def look(self, path: str) -> Stat | None:
        """What stands at a path, or None."""
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        plain = found.st_mode & S_IFMT == S_IFREG
        return Stat(found.st_size, found.st_nlink, found.st_ino, found.st_mtime, plain)

    def names(self, folder: str) -> list[str]:
        """What a folder has in it; nothing where there is no folder."""
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_folder(self, path: str) -> None:
        """The folder and all above it, durably; those that are new are private. Of one that is there nobody
        knows whether who made it came so far: once in each process that is made sure of."""
        there = self.is_folder(path)
        if there and path in self._sure:
            return
        parent = os.path.dirname(path)
        if not there:
            if parent and parent != path and not self.is_folder(parent):
                self.make_folder(parent)
            with suppress(FileExistsError):
                self.make_one(path)
        with suppress(PermissionError):  # what may be entered but not read cannot be synced
            self.sync_folder(parent)
        if len(self._sure) > MANY_FOLDERS:
            self._sure.clear()
        self._sure.add(path)

    def make_one(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def remove_one(self, path: str) -> None:
        os.rmdir(path)

    def sync_folder(self, path: str) -> None:
        fd = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that syncs folders by itself
                raise
        finally:
            os.close(fd)

    def rename(self, path: str, to: str) -> None:
        os.rename(path, to)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def touch(self, path: str) -> None:
        """Its content counts as written just now."""
        os.utime(path)

    def remove_folder(self, path: str) -> None:
        """The folder and the files in it; that it is gone may not be durable yet."""
        for name in self.names(path):
            self.unlink(f"{path}/{name}")
        with suppress(FileNotFoundError):
            self.remove_one(path)

    def absolute(self, path: str) -> str:
        return os.path.realpath(os.path.expanduser(path))

    def watch(self, folder: str) -> FolderWatch | None:
        """Listens to what changes in a folder; None where the system cannot tell, or not to one more."""
        if sys.platform != "linux":
            return None
        try:
            return FolderWatch(self, folder)
        except ImportError:
            return None
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise FileNotFoundError(error.errno, os.strerror(error.errno), folder) from error
            return None  # a limit of this user (ENOSPC, EMFILE), or a kernel without it

    # -- locks

    def lock(self, fd: int, *, shared: bool = False) -> bool:
        """Takes the lock of an open file, or says at once that somebody else has it."""
        try:
            fcntl.flock(fd, _SHARED if shared else _ALONE)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

    def wait_lock(self, fd: int, what: str, *, shared: bool = False) -> None:
        """Takes the lock, waiting a bounded time for it."""
        if self.lock(fd, shared=shared):
            return
        deadline = time.monotonic() + LOCK_PATIENCE
        pause = 0.00005
        while not self.lock(fd, shared=shared):
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"another process has had {what} locked for {LOCK_PATIENCE:.0f} s; end it if it hangs "
                    "(`fuser` names it)"
                )
            time.sleep(pause * random.random())
            pause = min(pause * 1.5, 0.004)

    # -- whole files

    def read_file(self, path: str) -> bytes | None:
        """All of a file, or None where there is none."""
        try:
            fd = self.open(path)
        except FileNotFoundError:
            return None
        try:
            pieces = []
            at = 0
            while piece := self.read(fd, 1 << 20, at):
                pieces.append(piece)
                at += len(piece)
            return b"".join(pieces)
        finally:
            self.close(fd)

    def replace(self, path: str, data: bytes, *, beside: str | None = None) -> None:
        """Puts a whole file in the place of another, durably: after a crash it is the old or the new one.
        `beside` names the file that it is written to first."""
        temporary = beside or path + TEMPORARY
        fd = self.open(temporary, write=True, create=True)
        try:
            try:
                self.truncate(fd, 0)
                self.write(fd, data)
                self.sync(fd)
            finally:
                self.close(fd)
            self.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                self.unlink(temporary)
            raise
        try:
            self.sync_folder(os.path.dirname(path))
        except OSError as error:
            raise UnsureError(error.errno, error.strerror, path) from error

    @contextmanager
    def locked(self, path: str, *, shared: bool = False) -> Iterator[None]:
        """Holds the lock of a file that exists for nothing else."""
        fd = self.open(path, write=True, create=True)
        try:
            self.wait_lock(fd, path, shared=shared)
            yield
        finally:
            self.close(fd)

    # -- the machine

    def database(self, path: str) -> str:
        """Where SQLite is to keep a database: SQLite opens its files itself."""
        return path

    def boot(self) -> str:
        """A name for the time since the machine was started; what was not synced before it may be lost."""
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                return file.read().strip()
        except OSError:
            return str(round((time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)) / 60))

    def process(self) -> dict[str, Any]:
        """Who this process is, to be told to others."""
        if self._process is not None and self._process["pid"] == os.getpid():
            return self._process
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        command = " ".join([os.path.basename(sys.argv[0] or "python"), *sys.argv[1:3]])[:80]
        pid = os.getpid()
        self._process = {
            "pid": pid,
            "started": process_start(pid),
            "host": socket.gethostname(),
            "user": user,
            "command": command,
        }
        return self._process

    def alive(self, pid: int, started: str | None) -> bool:
        """Whether a process of this machine runs still, and is the one that was meant."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except (PermissionError, OverflowError):
            pass  # somebody else's process is alive all the same
        now = process_start(pid)
        return started is None or now is None or now == started

    def network(self, path: str) -> str | None:
        """The kind of network file system that a path lies on, or None."""
        try:
            if sys.platform == "linux":
                with open("/proc/self/mountinfo") as file:
                    kind = file_system(path, file.read())
            else:
                import subprocess  # half the time that this module takes, and only wanted here

                told = subprocess.run(["/sbin/mount"], capture_output=True, text=True)
                kind = mounted(path, told.stdout)
        except OSError:
            return None
        return kind if kind in NETWORK_FILE_SYSTEMS else None

    def rest_in_forks(self, rest: Callable[[], Callable[[], None]]) -> None:
        """Has a method called before this process makes another one of itself; what that returns is called
        in both of them afterwards."""
        self._resting = [known for known in self._resting if known() is not None]
        self._resting.append(weakref.WeakMethod(rest))

    def forget(self) -> None:
        """In a forked child: lets go of what the parent holds without giving it up for the parent."""
        self.inherited = True
        for fd in self._open:
            with suppress(OSError):
                os.close(fd)
        self._open.clear()


class FolderWatch:
    """What changes in one folder, as the kernel tells it (inotify). One thread waits; any may `wake` it."""

    def __init__(self, disk: Disk, folder: str) -> None:
        from inotify_simple import INotify, flags

        self.gone = False  # whether the folder is another one now, or none
        self._disk = disk
        self._mutex = threading.RLock()
        self._flags = flags
        self._source = INotify(closefd=False)
        self._fd = self._source.fileno()
        self._ears: list[int] = [self._fd]
        disk._open.add(self._fd)
        try:
            wanted = flags.MODIFY | flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO
            self._source.add_watch(folder, wanted | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR)
            self._ears += os.pipe()
            disk._open.update(self._ears)
            os.set_blocking(self._ears[2], False)
            self._poll = select.poll()
            for fd in self._ears[:2]:
                self._poll.register(fd, select.POLLIN)
        except BaseException:
            self.close()
            raise

    def wait(self, seconds: float) -> set[str] | None:
        """The names of what has changed, as soon as anything has; None: maybe all of it. Empty after the
        time, or when it was woken."""
        ready = [fd for fd, _ in self._poll.poll(seconds * 1000)]
        if self._fd not in ready:
            return set()
        names: set[str] = set()
        everything = False
        flags = self._flags
        for event in self._source.read(timeout=0):
            if event.mask & (flags.DELETE_SELF | flags.MOVE_SELF | flags.IGNORED | flags.UNMOUNT):
                self.gone = everything = True
            elif event.mask & flags.Q_OVERFLOW:
                everything = True
            else:
                names.add(event.name)
        return None if everything else names

    def wake(self) -> None:
        """Ends a `wait`, and all that come after it."""
        with self._mutex:
            if self._ears:  # else the number of the pipe may be another file's by now
                with suppress(OSError):
                    os.write(self._ears[2], b".")

    def close(self) -> None:
        """Lets go of it."""
        with self._mutex:
            ears, self._ears = self._ears, []
            for fd in ears:
                self._disk.close(fd)


_disks: weakref.WeakSet[Disk] = weakref.WeakSet()
_forking = threading.local()


def _before_fork() -> None:
    _forking.awake = []
    for disk in list(_disks):
        for known in () if disk.inherited else list(disk._resting):
            rest = known()
            if rest is not None:
                _forking.awake.append(rest())


def _after_fork() -> None:
    while _forking.awake:
        _forking.awake.pop()()


def _after_fork_in_child() -> None:
    for disk in list(_disks):
        disk.forget()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def process_start(pid: int) -> str | None:
    """When a process began, in a form that only serves to be compared."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None


def file_system(path: str, mountinfo: str) -> str | None:
    """The type of the file system under a path, from the kernel's table of mounts.

    >>> table = "21 1 8:1 / / rw - ext4 /dev/sda rw\\n40 21 0:50 / /srv/a\\\\040b rw - nfs4 host:/x rw"
    >>> file_system("/srv/a b/c", table), file_system("/srv", table)
    ('nfs4', 'ext4')
    """
    points = []
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split(" ")[4] if fields.count(" ") >= 4 else ""
        for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            point = point.replace(octal, character)
        points.append((point, rest.split(" ")[0]))
    return _under(path, points)


def mounted(path: str, told: str) -> str | None:
    """The same from what `mount` prints on macOS.

    >>> table = "/dev/disk1s1 on / (apfs, local)\\nhost:/x on /Volumes/my share (nfs, nodev)"
    >>> mounted("/Volumes/my share/store", table), mounted("/Users", table)
    ('nfs', 'apfs')
    """
    points = []
    for line in told.splitlines():
        place, _, options = line.rpartition(" (")
        points.append((place.partition(" on ")[2], options.rstrip(")").split(",")[0]))
    return _under(path, points)


def _under(path: str, points: list[tuple[str, str]]) -> str | None:
    """What is mounted nearest above a path; of several in one place the last."""
    best, kind = -1, None
    for point, found in points:
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if point and inside and len(point) >= best:
            best, kind = len(point), found
    return kind


def problem(error: OSError, what: str) -> HansardError:
    """Our error for one of the kernel's, saying what to do about it."""
    if isinstance(error, HansardError):
        return error
    told = _problem(error, what)
    told.outcome_unknown = isinstance(error, UnsureError)
    return told


def _problem(error: OSError, what: str) -> HansardError:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"{what}: {reason}; nothing was lost, free some space and try again")
    if error.errno == errno.EROFS:
        return ReadOnlyStore(f"{what}: {reason}; open it with readonly=True to read it")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ReadOnlyStore(
            f"{what}: {reason}; see to the permissions, or name another store ($HANSARD_STORE)"
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StoreUnavailable(f"{what}: {reason}; close some sessions, or raise the limit (`ulimit -n`)")
    return StoreUnavailable(f"{what}: {reason}")
