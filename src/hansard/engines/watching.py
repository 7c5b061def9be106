"""Watching a folder of logs: one thread tells all who want to know which sessions changed.

The kernel tells it where it can; elsewhere the thread looks, often after something happened and less often
when nothing does. What is new in a log is found out by whoever is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hansard.engines.disk import Disk, FolderWatch, Stat
from hansard.ids import file_key

Changed = Callable[[str | None], None]

TICK = 1.0
"""Seconds between two looks whether the folder is still the one that is watched."""

QUICK, SLOW = 0.005, 0.04
"""Seconds between two looks at the logs where the kernel does not tell."""

SHARE = 4
"""A look at the logs that took long is not repeated before so many times its length has passed."""

SHARE_SLOWEST = 0.06
"""Seconds that single logs wait for the next look, however many they are."""


class Watcher:
    """Of one engine. Its thread runs as long as anybody watches."""

    def __init__(self, disk: Disk, folder: str, session_of: Callable[[str], str | None]) -> None:
        self._disk = disk
        self._folder = folder
        self._session_of = session_of
        self._mutex = threading.RLock()  # a follower that is forgotten leaves wherever the collector runs
        self._all: list[Changed] = []
        self._some: dict[str, list[Changed]] = {}  # by the name of the log
        self._sessions: dict[str, str] = {}  # what a log was once found to be; a deleted one does not say
        self._round: _Round | None = None

    def watch(self, changed: Changed, session: str | None) -> Callable[[], None]:
        """Whatever changes from now on is told. Returns what ends that."""
        name = None if session is None else f"{file_key(session)}.jsonl"
        with self._mutex:
            if name is not None:
                self._sessions[name] = session or ""
            listeners = self._all if name is None else self._some.setdefault(name, [])
            listeners.append(changed)
            try:
                if self._round is None:
                    self._round = _Round(self)
                else:
                    self._round.look_also_at(name)
            except BaseException:
                self._leave(name, changed)
                raise

        def end() -> None:
            if self._disk.inherited:
                return
            with self._mutex:
                self._leave(name, changed)

        return end

    def _leave(self, name: str | None, changed: Changed) -> None:
        listeners = self._all if name is None else self._some.get(name, [])
        if changed in listeners:
            listeners.remove(changed)
        if name is not None and not listeners:
            self._some.pop(name, None)
        if not self._all and not self._some and self._round is not None:
            self._round.end()
            self._round = None
            self._sessions.clear()

    def close(self) -> None:
        """Ends it for all, who are told a last time: they find the engine closed."""
        self.tell(None)
        with self._mutex:
            self._all.clear()
            self._some.clear()
            ending, self._round = self._round, None
            if ending is not None:
                ending.end()
        if ending is not None and ending.thread is not threading.current_thread():
            ending.thread.join(TICK)

    def tell(self, name: str | None) -> None:
        """A log changed, or None: maybe any."""
        if name is None:
            with self._mutex:
                everybody = list(self._all)
                single = [(self._sessions[name], list(told)) for name, told in list(self._some.items())]
            for changed in everybody:
                _call(changed, None)
            for session, told in single:
                for changed in told:
                    _call(changed, session)
            return
        with self._mutex:
            listeners = [*self._some.get(name, ()), *self._all]
            known = self._sessions.get(name)
        if not listeners or not name.endswith(".jsonl"):
            return
        found = known or self._session_of(name)
        if found is None:
            return
        if "=~" in name:
            self._sessions[name] = found
        for changed in listeners:
            _call(changed, found)

    def names(self) -> tuple[list[str], bool]:
        """The logs that somebody wants to know of, and whether that is all of them."""
        with self._mutex:
            if not self._all:
                return list(self._some), False
        return [name for name in self._disk.names(self._folder) if name.endswith(".jsonl")], True


class _Round:
    """The thread, from the first who watches to the last."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._disk = watcher._disk
        self._folder = watcher._folder
        self._over = threading.Event()
        self._seen: dict[str, tuple[int, int] | None] = {}
        self._here: Stat | None = None
        self._source = self._listen()
        if self._source is None:
            self._look(watcher._all, list(watcher._some))
        self.thread = threading.Thread(target=self._run, name="hansard-watch", daemon=True)
        self.thread.start()

    def end(self) -> None:
        self._over.set()
        source = self._source  # the thread may let go of it meanwhile
        if source is not None:
            source.wake()

    def look_also_at(self, name: str | None) -> None:
        """Somebody watches more than was watched until now."""
        if self._source is None:
            self._look(name is None, [] if name is None else [name])

    def _listen(self) -> FolderWatch | None:
        self._here = self._disk.look(self._folder)
        try:
            return self._disk.watch(self._folder)
        except FileNotFoundError:
            return None

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                if self._source is not None:
                    self._hear(self._source)
                else:
                    self._look_now_and_then()
        finally:
            if self._source is not None:
                self._source.close()

    def _hear(self, source: FolderWatch) -> None:
        """Until the folder is another one."""
        while not self._over.is_set():
            names = source.wait(TICK)
            if names is None:
                self._watcher.tell(None)
            else:
                for name in names:
                    self._watcher.tell(name)
            if source.gone or (not names and not self._is_still_here()):
                break
        else:
            return
        self._source = None
        source.close()
        self._begin_anew()

    def _is_still_here(self) -> bool:
        found = self._disk.look(self._folder)
        return found is not None and self._here is not None and found.inode == self._here.inode

    def _begin_anew(self) -> None:
        self._source = self._listen()
        if self._over.is_set() and self._source is not None:
            return
        self._seen.clear()
        if self._source is None:
            self._changes()
        self._watcher.tell(None)

    def _look_now_and_then(self) -> None:
        """Until the kernel tells: often when something has just happened, else less often."""
        pause, again = QUICK, time.monotonic() + TICK
        while not self._over.wait(pause):
            began = time.monotonic()
            changes, everything = self._changes()
            for name in changes:
                self._watcher.tell(name)
            pause = QUICK if changes else min(pause * 1.5, SLOW)
            took = SHARE * (time.monotonic() - began)
            pause = max(pause, took if everything else min(took, SHARE_SLOWEST))
            if time.monotonic() > again:
                again = time.monotonic() + TICK
                self._source = self._listen()
                if self._source is not None:
                    self._watcher.tell(None)
                    return

    def _look(self, everything: object, names: list[str]) -> None:
        """Takes note of how the logs are now."""
        if everything:
            names = [name for name in self._disk.names(self._folder) if name.endswith(".jsonl")]
        for name in names:
            self._seen.setdefault(name, self._state(name))

    def _changes(self) -> tuple[list[str], bool]:
        """The logs that are not as they were at the last look."""
        names, everything = self._watcher.names()
        seen, changed = self._seen, []
        for name in [*names, *(seen.keys() - names if everything else ())]:
            state = self._state(name)
            if seen.get(name) != state:
                changed.append(name)
            if state is None and everything:
                seen.pop(name, None)
            else:
                seen[name] = state
        return changed, everything

    def _state(self, name: str) -> tuple[int, int] | None:
        try:
            found = self._disk.look(f"{self._folder}/{name}")
        except OSError:
            return None
        return None if found is None else (found.inode, found.size)


def _call(changed: Changed, session: str | None) -> None:
    """One who fails must not keep the others from being told."""
    try:
        changed(session)
    except Exception as error:
        threading.excepthook(
            threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
        )
