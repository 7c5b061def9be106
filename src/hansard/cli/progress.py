"""What a person sees who has to wait: after half a second a line that says what goes on, and how far."""

from __future__ import annotations

import os
import sys
import threading
from time import monotonic
from types import TracebackType

from hansard.cli import streams
from hansard.cli.screen import cells, fit, plural

PATIENCE = 0.5
"""Seconds in which nobody wonders."""

BAR = 20


class Progress:
    """Draws while the block runs, on the terminal beside the output; nothing where there is none.

    `done` is set by whoever works, of `total` where that is known; the line is gone when the block is left.
    """

    def __init__(self, what: str, *, unit: str = "", total: int | None = None) -> None:
        self.what = what
        self.unit = unit
        self.total = total
        self.done = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._drawn = 0

    def __call__(self, done: int) -> None:
        """How far it is."""
        self.done = done

    def __enter__(self) -> Progress:
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread = threading.Thread(target=self._draw, args=(monotonic(),), daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            if self._drawn:
                streams.told(f"\r{' ' * self._drawn}\r", newline=False)

    def _draw(self, begun: float) -> None:
        pause = PATIENCE
        while not self._ended.wait(pause):
            pause = 0.1
            shown = fit(self.line(monotonic() - begun), max(8, _columns() - 1))
            space = " " * max(0, self._drawn - cells(shown))
            self._drawn = max(self._drawn, cells(shown))
            streams.told(f"\r{shown}{space}", newline=False)

    def line(self, seconds: float) -> str:
        """What is shown after so many seconds."""
        if self.total:
            part = min(1.0, self.done / self.total)
            bar = ("#" * int(part * BAR)).ljust(BAR, ".")
            return f"{self.what} [{bar}] {part:.0%}  {plural(self.done, self.unit)}"
        if self.done:
            return f"{self.what} … {plural(self.done, self.unit)}"
        return f"{self.what} … {seconds:.0f} s"


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
