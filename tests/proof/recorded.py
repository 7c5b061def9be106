"""A workload on a real disk, every call written down: run as a program under strace.

python -m tests.proof.recorded <workload> <folder of the store> <file for the calls>
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hansard.engines.disk import Disk, Stat
from hansard.engines.files import Files
from hansard.store import Store
from tests.proof import workloads
from tests.proof.power import START, same_dice

Call = tuple[str, str, int]
"""What was asked of the disk, of which path, and how much of it."""


class Recorded(Disk):
    """A real disk that writes down what it is asked, in the words of the simulated one."""

    def __init__(self, calls: list[Call]) -> None:
        super().__init__()
        self.calls = calls
        self.paths: dict[int, str] = {}

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        self.calls.append(("create" if create else "open-to-write" if write else "open", path, 0))
        fd = super().open(path, write=write, create=create)
        self.paths[fd] = path
        return fd

    def read(self, fd: int, size: int, offset: int) -> bytes:
        self.calls.append(("read", self.paths[fd], size))
        return super().read(fd, size, offset)

    def put(self, fd: int, data: bytes) -> int:
        self.calls.append(("write", self.paths[fd], len(data)))
        return super().put(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        self.calls.append(("truncate", self.paths[fd], size))
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self.calls.append(("sync", self.paths[fd], 0))
        super().sync(fd)

    def stat(self, fd: int) -> Stat:
        self.calls.append(("stat", self.paths[fd], 0))
        return super().stat(fd)

    def extent(self, fd: int) -> tuple[int, int]:
        self.calls.append(("stat", self.paths[fd], 0))
        return super().extent(fd)

    def look(self, path: str) -> Stat | None:
        if path != ":memory:":
            self.calls.append(("look", path, 0))
        return super().look(path)

    def names(self, folder: str) -> list[str]:
        self.calls.append(("names", folder, 0))
        return super().names(folder)

    def make_one(self, path: str) -> None:
        self.calls.append(("make_one", path, 0))
        super().make_one(path)

    def remove_one(self, path: str) -> None:
        self.calls.append(("remove_one", path, 0))
        super().remove_one(path)

    def sync_folder(self, path: str) -> None:
        self.calls.append(("sync_folder", path, 0))
        super().sync_folder(path)

    def rename(self, path: str, to: str) -> None:
        self.calls.append(("rename", path, 0))
        super().rename(path, to)

    def unlink(self, path: str) -> None:
        self.calls.append(("unlink", path, 0))
        super().unlink(path)

    def touch(self, path: str) -> None:
        self.calls.append(("touch", path, 0))
        super().touch(path)

    def database(self, path: str) -> str:
        return ":memory:"

    def network(self, path: str) -> str | None:
        return None

    def watch(self, folder: str) -> None:
        return None


class OnDisk:
    """A run of a workload on a real disk."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.calls: list[Call] = []
        self.now = START
        self._open: Store | None = None

    @property
    def store(self) -> Store:
        if self._open is None:
            self._open = Store(Files(self.root, disk=Recorded(self.calls)), clock=self._clock)
        return self._open

    def _clock(self) -> datetime:
        return self.now

    def step(self, work: Callable[[], Any], *, loose: bool = False, firm: str = "") -> Any:
        self.now += timedelta(milliseconds=1)
        return work()

    def later(self, by: timedelta) -> None:
        self.now += by

    def reopen(self, *, lost: bool = False) -> None:
        if self._open is not None and lost:
            self._open._engine.disk.forget()  # type: ignore[attr-defined]
        elif self._open is not None:
            self._open.close()
        self._open = None

    def spoil(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Somebody else does it: whoever watches this process does not see it."""
        where = Path(self.root, path)
        before = subprocess.run(["cat", str(where)], capture_output=True).stdout
        raw = change(before)
        program = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_bytes(bytes.fromhex(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", program, str(where), raw.hex()], check=True)


def main(name: str, root: str, to: str) -> None:
    run = OnDisk(root)
    with same_dice(7), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(workloads, name)(run)
        seen = len(run.calls)
    with open(to, "w") as file:
        json.dump(run.calls[:seen], file)
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
