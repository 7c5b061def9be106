"""Puts each deliberate defect (tests/proof/defects.py) into a copy of the source, and wants red.

python -m tests.proof.mutants              all of them: make mutants
python -m tests.proof.mutants -k lease     those that have `lease` in their name or their file
python -m tests.proof.mutants --list       what there are, and what notices them

A defect that no test notices says that a promise is not proved. One that does not fit the source any more,
or whose tests fail without it too, proves nothing, and fails the run as well.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.proof.conftest import FIGURES_VARIABLE, keep
from tests.proof.defects import DEFECTS, Defect

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

PATIENCE = 180
"""Seconds that the tests of one defect may take. A test that never ends has noticed nothing."""

NOT_FROM_THERE = 99
"""How a run ends that has not imported the copy that it was to test."""

_running: set[subprocess.Popen[str]] = set()

_RUN = f"""
import sys
import hansard
if not hansard.__file__.startswith(sys.argv[1]):
    print(hansard.__file__, "was imported, and not what is in", sys.argv[1])
    sys.exit({NOT_FROM_THERE})
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


@dataclass(frozen=True)
class Outcome:
    """How the tests of a copy ended: `red` are those that failed; `trouble` says why that means nothing."""

    red: tuple[str, ...] = ()
    trouble: str = ""
    seconds: float = 0.0


def broken(defect: Defect, source: Path = SOURCE) -> str:
    """The text of the file with the defect in it; `ValueError` where it does not fit."""
    text = (source / "hansard" / defect.file).read_text(encoding="utf-8")
    times = text.count(defect.old)
    if times != 1:
        raise ValueError(f"{defect.name}: what it changes stands {times} times in {defect.file}, not once")
    return text.replace(defect.old, defect.new)


def misfit(source: Path, defect: Defect) -> str:
    """What is wrong with a defect that does not fit the source; "" for one that does."""
    try:
        broken(defect, source)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def outcome(place: Path, tests: Iterable[str], *, all_of_them: bool = False) -> Outcome:
    """Runs tests against the copy of the source in a folder, until one fails."""
    options = ["-q", "-rfE", "--tb=short", "--no-header", "-p", "no:cacheprovider", "--basetemp"]
    command = [sys.executable, "-c", _RUN, str(place / "src"), *options, str(place / "tmp")]
    beside = {
        "PYTHONPATH": str(place / "src"),  # comes before what was installed, in the processes of tests too
        "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "hypothesis"),
        FIGURES_VARIABLE: str(place / "figures"),
    }
    began = time.monotonic()
    process = subprocess.Popen(
        [*command, *([] if all_of_them else ["-x"]), *tests],
        cwd=ROOT,
        env={**os.environ, **beside},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    _running.add(process)
    try:
        told, _ = process.communicate(timeout=PATIENCE * (5 if all_of_them else 1))
    except subprocess.TimeoutExpired:
        return Outcome(trouble="its tests did not come to an end", seconds=time.monotonic() - began)
    finally:
        _end(process)
        process.wait()
        _running.discard(process)
    seconds = time.monotonic() - began
    red = tuple(re.findall(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - .*)?$", told, re.MULTILINE))
    if process.returncode == 0 and not red:
        return Outcome(seconds=seconds)
    if process.returncode == 1 and red:
        return Outcome(red=red, seconds=seconds)
    return Outcome(trouble=f"its tests did not run:\n{told[-2000:]}", seconds=seconds)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends what a test run has left running."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def without(source: Path, tests: Sequence[str]) -> Outcome:
    """How the tests end where there is no defect."""
    with tempfile.TemporaryDirectory(dir=source.parent, ignore_cleanup_errors=True) as folder:
        shutil.copytree(source, Path(folder) / "src")
        return outcome(Path(folder), tests, all_of_them=True)


def tried(source: Path, defect: Defect) -> Outcome:
    """How its tests end where there is the defect."""
    with tempfile.TemporaryDirectory(dir=source.parent, ignore_cleanup_errors=True) as folder:
        shutil.copytree(source, Path(folder) / "src")
        text = broken(defect, source)
        (Path(folder) / "src" / "hansard" / defect.file).write_text(text, encoding="utf-8")
        return outcome(Path(folder), defect.tests)


def sound(source: Path, defects: Sequence[Defect], workers: ThreadPoolExecutor, jobs: int) -> bool:
    """Whether all tests that are named are green without any defect."""
    tests = sorted({test for defect in defects for test in defect.tests})
    shares = [share for share in (tests[n::jobs] for n in range(jobs)) if share]
    found = list(workers.map(partial(without, source), shares))
    for one in found:
        for test in one.red:
            print(f"red without any defect: {test}")
        if one.trouble:
            print(one.trouble)
    well = not any(one.red or one.trouble for one in found)
    if well:
        print(f"{len(tests)} tests are green without any defect", flush=True)
    return well


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.mutants", description="Seeded faults.")
    parser.add_argument("-k", metavar="TEXT", default="", help="only those with this in their name or file")
    parser.add_argument("-j", metavar="N", type=int, default=2, help="how many are tried at once (2)")
    parser.add_argument("--list", action="store_true", help="only says which there are")
    given = parser.parse_args(arguments)
    chosen = [defect for defect in DEFECTS if given.k in defect.name or given.k in defect.file]
    if not chosen:
        print(f"no defect has {given.k!r} in its name or its file")
        return 2
    if given.list:
        for defect in chosen:
            print(f"{defect.name} ({defect.file})\n    {defect.breaks}")
            for test in defect.tests:
                print(f"    {test}")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        return judged(chosen, Path(folder), jobs=max(1, given.j), all_of_them=not given.k)


def judged(chosen: Sequence[Defect], folder: Path, *, jobs: int, all_of_them: bool) -> int:
    """Tries defects, tells of each, and keeps the figures of `all_of_them`. 0 where all were noticed."""
    began = time.monotonic()
    source = folder / "src"
    shutil.copytree(SOURCE, source)  # once, for somebody may be working on it
    stale = [told for told in map(partial(misfit, source), chosen) if told]
    if stale:
        print("\n".join(stale))
        return 1
    survived = []
    with ThreadPoolExecutor(jobs) as workers:
        try:
            if not sound(source, chosen, workers, jobs):
                return 1
            for defect, found in zip(chosen, workers.map(partial(tried, source), chosen), strict=True):
                told = found.red[0] if found.red else found.trouble or "no test notices it"
                mark = "red " if found.red else "LEFT"
                print(f"{mark} {defect.name}: {told} ({found.seconds:.1f} s)", flush=True)
                if not found.red:
                    survived.append(defect.name)
        except BaseException:  # Ctrl-C reaches this process alone
            workers.shutdown(wait=False, cancel_futures=True)
            for process in list(_running):
                _end(process)
            raise
    killed, seconds = len(chosen) - len(survived), round(time.monotonic() - began)
    print(f"{killed} of {len(chosen)} defects were noticed, in {seconds} s")
    if all_of_them:
        names = [defect.name for defect in chosen]
        keep("mutants", killed=killed, total=len(chosen), seconds=seconds, names=names, survived=survived)
    return 1 if survived else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
