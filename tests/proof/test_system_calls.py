"""The simulated disk is asked what the real one is asked, and that is what the kernel sees: without this a
power cut on the simulated one would prove nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.proof.power import Story, same_dice
from tests.proof.simulated import ROOT
from tests.proof.workloads import WORKLOADS, Run

ROOTS = Path(__file__).parents[2]

TRACED = (
    "openat,pread64,write,ftruncate,fdatasync,fsync,fstat,newfstatat,lstat,statx,getdents64,mkdir,mkdirat,"
    "rmdir,unlink,unlinkat,rename,renameat,renameat2,utimensat"
)

Call = tuple[str, str, int]


def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is absent: what the kernel sees was not compared with what is recorded")
    if subprocess.run([found, "-o", "/dev/null", "true"], capture_output=True).returncode:
        pytest.skip("strace may not trace here: what the kernel sees was not compared with what is recorded")
    return found


def on_a_real_disk(workload: Callable[[Run], None], place: Path) -> tuple[list[Call], list[Call]]:
    """What the disk was asked, and what the kernel saw of it."""
    root, calls, trace = place / "store", place / "calls.json", place / "trace"
    program = [sys.executable, "-m", "tests.proof.recorded", workload.__name__, str(root), str(calls)]
    traced = [strace(), "-y", "-s", "0", "-o", str(trace), "-e", f"trace={TRACED}"]
    done = subprocess.run([*traced, *program], cwd=ROOTS, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    recorded: list[Call] = [(call, path, size) for call, path, size in json.loads(calls.read_text())]
    return recorded, list(seen_by_kernel(trace.read_text(), str(root)))


def seen_by_kernel(trace: str, root: str) -> Iterator[Call]:
    """The calls of a trace that concern the store, in our words."""
    folder = ""  # that was opened last, to be listed or synced
    for line in trace.splitlines():
        found = re.match(r"(\w+)\((.*)\)\s+= (-?\d+)", line)
        if found is None:
            continue
        call, arguments, gave = found.groups()
        paths = re.findall(r"^\d+<([^>]*)>", arguments) or re.findall(r'"([^"]*)"', arguments)
        path = (paths or [""])[0].removesuffix("(deleted)")
        above = path == str(Path(root).parent) and (call == "fsync" or "O_DIRECTORY" in arguments)
        if not above and path != root and not path.startswith(root + "/"):
            continue
        numbers = re.findall(r", (\d+)", arguments)
        match call:
            case "openat" if "O_DIRECTORY" in arguments:
                folder = path if int(gave) >= 0 else ""
            case "openat" if "O_CREAT" in arguments:
                yield "create", path, 0
            case "openat" if "O_RDWR" in arguments:
                yield "open-to-write", path, 0
            case "openat":
                yield "open", path, 0
            case "getdents64" if folder:
                yield "names", path, 0
                folder = ""
            case "fsync":
                yield "sync_folder", path, 0
                folder = ""
            case "pread64":
                yield "read", path, int(numbers[-2])
            case "write":
                yield "write", path, int(numbers[-1])
            case "ftruncate":
                yield "truncate", path, int(numbers[-1])
            case "fdatasync":
                yield "sync", path, 0
            case "mkdir" | "mkdirat":
                yield "make_one", path, 0
            case "rmdir":
                yield "remove_one", path, 0
            case "unlink" | "unlinkat":
                yield "unlink", path, 0
            case "rename" | "renameat" | "renameat2":
                yield "rename", path, 0
            case "utimensat":
                yield "touch", path, 0
            case "lstat":
                yield "look", path, 0
            case "newfstatat" if "AT_SYMLINK_NOFOLLOW" in arguments:
                yield "look", path, 0
            case "fstat" | "newfstatat" if path != folder and re.match(r"\d+<", arguments):
                yield "stat", path, 0


def plainly(calls: list[Call], root: str) -> list[Call]:
    """Calls with what differs from run to run left out: moments, random names, who holds a lock."""
    told = []
    for call, path, size in calls:
        path = "/" if path == str(Path(root).parent) else path.replace(root, "", 1)
        path = re.sub(r"\d{8}T\d{6}\.\d+Z", "MOMENT", path)
        path = re.sub(r"\.[0-9a-z]{16}~tmp$", ".RANDOM~tmp", path)
        told.append((call, path, 0 if path.startswith("/locks/") else size))
    return told


def seen(calls: list[Call]) -> list[Call]:
    """Without what is no call of its own: a folder that is not there is not listed, and where links lead to
    is found out by looking at the root."""
    return [
        (call, path, size) for call, path, size in calls if call != "names" and (call, path) != ("look", "")
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")
@pytest.mark.rule("W2", "C1")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_what_is_simulated_is_what_the_kernel_sees(
    workload: Callable[[Run], None], tmp_path: Path, figures: Callable[..., None]
) -> None:
    recorded, by_kernel = on_a_real_disk(workload, tmp_path)
    root = str(tmp_path / "store")
    assert seen(plainly(recorded, root)) == seen(plainly(by_kernel, root))
    story: Any = Story(known=_Whatever())
    with same_dice(7), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        workload(story)
    simulated = plainly(story.machine.calls, ROOT)
    assert simulated == plainly(recorded, root)
    figures(f"calls-{workload.__name__}", calls=len(by_kernel))


class _Whatever(list[Any]):
    """What each step did is of no interest here."""

    def __getitem__(self, at: Any) -> Any:
        from tests.proof.power import Ack

        return Ack(0, {}, {})
