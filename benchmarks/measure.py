"""What the benchmarks share: a sample, a median, a folder that goes away, realistic messages."""

from __future__ import annotations

import gc
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One measured thing. `ratio` compares it with the raw limit of the same run; `target` is what it must
    reach: at least that where `more` is better, at most that where it is not."""

    section: str
    name: str
    value: float
    unit: str
    limit: float | None = None
    ratio: float | None = None
    target: float | None = None
    more: bool = True
    spread: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.target is None:
            return None
        measured = self.value if self.ratio is None else self.ratio
        return measured >= self.target if self.more else measured <= self.target


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on the disk that the working directory is on, so that a sync is a sync."""
    path = Path(tempfile.mkdtemp(prefix=".bench-", dir="."))
    try:
        yield path.resolve()
    finally:
        shutil.rmtree(path, ignore_errors=True)


def timed(work: Callable[[], Any]) -> float:
    """Seconds that something takes once."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def best(work: Callable[[], Any], times: int = 7) -> float:
    """The median of several runs, with the collector out of the way."""
    gc.collect()
    return statistics.median(timed(work) for _ in range(times))


def alternate(
    one: Callable[[], float], other: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    """Two things measured in turns, so that the machine's moods strike both."""
    first: list[float] = []
    second: list[float] = []
    for _ in range(rounds):
        first.append(one())
        second.append(other())
    return first, second


def spread(samples: list[float]) -> float:
    """How far the middle half of the samples lies apart, as a part of the median."""
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / middle


def messages(n: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """A coding agent's messages, 1.3 KB on average: prompts, prose, tool calls and what tools say."""
    dice = random.Random(seed)
    words = (
        "the session log keeps every record in order and never edits one file test error path line".split()
    )

    def prose(size: int) -> str:
        return " ".join(dice.choices(words, k=size))

    for i in range(n):
        match i % 4:
            case 0:
                yield {"role": "user", "content": f"Step {i}: {prose(20)}"}
            case 1:
                call = {
                    "name": "bash",
                    "arguments": '{"command":"pytest -q tests/' + prose(4).replace(" ", "_") + '"}',
                }
                yield {
                    "role": "assistant",
                    "content": prose(40),
                    "tool_calls": [{"id": f"call_{i}", "type": "function", "function": call}],
                }
            case 2:
                yield {
                    "role": "tool",
                    "tool_call_id": f"call_{i - 1}",
                    "content": prose(dice.randint(100, 1200)),
                }
            case _:
                yield {"role": "assistant", "content": prose(dice.randint(30, 120))}
