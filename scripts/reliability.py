"""Write docs/reliability.md: what is promised, what is assumed, and the figures that the proofs have counted.

The figures come from the last run of the proofs (build/figures/, left by `make test` and `make mutants`) and
are kept in docs/reliability.json; nobody types one. `--check` fails where the page is not made of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
COUNTED = ROOT / "build" / "figures"
KEPT = ROOT / "docs" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"

Figures = dict[str, dict[str, Any]]

INTRODUCTION = """\
# Reliability

What may be relied on, what that relies on itself, and how it is proved. Every figure on this page was counted by
a test; `make test` counts them, `make test FULL=1` goes through everything instead of a part by lot, `make docs`
writes them here.

## What is promised

- **When a write returns, it survives a power cut.** That holds for messages, batches, changes of the history,
  documents, state, names, blobs, forks, deletions and vacuums alike. With `durable=False` a power cut may take the
  last of what was said, the death of the process may not.
- **All or nothing.** After a crash at any moment a write is there wholly or not at all, and no reader ever sees a
  part of one.
- **What raised was not done**, unless the error says `outcome_unknown`; then repeating with the same `id` is safe.
- **Nobody is overwritten.** Any number of processes and threads may write; what each was told is in the log once.
- **Nothing is silently dropped.** What cannot be read is told with its place, all around it stays readable, and
  nothing is mended without a copy of what was there.
- **One holder.** At most one handle has the lease of a session, and where several want it one gets it.

## What is assumed

- **Of the disk**: that what `fdatasync` and `fsync` acknowledged stays. A disk that lies about its cache loses what
  everybody lost who wrote to it. Writes that were not synced may arrive in any order, in part, by sectors, or only as
  a length; so may new names, renames and removals.
- **Of the file system**: that `rename` replaces a name in one step, that syncing a folder makes the names in it last,
  and that a file whose sync failed may have lost anything since the sync before. ext4, XFS, Btrfs and APFS do.
- **Of the kernel**: that `flock` holds between all processes of one machine, that it frees a lock when its holder
  dies, and that a write with `O_APPEND` goes to the end. File systems across a network are refused for that.
- **Of SQLite**: nothing. The catalog is derived; a lost, old or damaged one costs time.
- **Of memory and processor**: that they do not err. Bytes that rot on the disk are found by checksum; those that were
  wrong before they were written are not.
"""

SECTIONS: list[tuple[str, str, str]] = [
    (
        "power",
        "Power cuts",
        """\
A simulated disk under the file engine remembers what was synced and what was not. Each workload below runs on it; the
power is cut before every step that reaches the disk, and whatever is unsynced then is lost, kept or torn, each piece
by itself: all subsets of up to eight, of more each one lost, each one kept and subsets by lot, each write cut at several
lengths and at sectors. A store that shares nothing with the first one opens what is left: all that was acknowledged is
there, nothing is half done, `doctor` says exactly what follows from the bytes, the next write works, and a second
power cut takes none of it. *Steps* change the disk, *platters* are the different disks that were looked at of all
the *cuts* that are possible.""",
    ),
    (
        "faults",
        "Failing calls",
        """\
Each call to the disk fails once, with EIO, ENOSPC, EACCES or EMFILE, or does less than was asked; a sync that failed
claims success when it is repeated, and what it lost stays lost. What was acknowledged is there, what raised was not
done or says that it cannot know, the process goes on working, and a power cut afterwards takes nothing.""",
    ),
    (
        "calls",
        "The kernel's view",
        """\
A simulation proves nothing about what it does not resemble. The same workloads run on a real disk under `strace`: the
calls that the simulated disk is asked are those that the kernel sees, one by one.""",
    ),
    (
        "kills",
        "SIGKILL",
        """\
Processes that write are killed wherever they are, and what they were told is looked for by a reader that shares no code
with the writer.""",
    ),
    (
        "storm",
        "Storms",
        """\
Many processes and threads at once, some of them killed, cancelled or forked: everything exactly once and in order, the
catalog equal to the logs, no reader ever with half a write, no two holders of a lease, no round without one.""",
    ),
    (
        "fuzz",
        "Damage",
        """\
Logs, catalogs, documents, names and locks are damaged by lot: bits, cuts, swapped and doubled lines, NULs, line ends,
huge lines, foreign files. Only our own errors come out, no good record is lost, the damage is located, and a repair
keeps a copy of whatever it replaces.""",
    ),
    (
        "mutants",
        "Seeded faults",
        """\
A proof that cannot fail is none. `make mutants` puts deliberate defects into the engine, one at a time, and wants a test
to turn red for each.""",
    ),
]


def counted() -> Figures:
    """What the last runs have counted."""
    found = {}
    for path in sorted(COUNTED.glob("*.json")):
        told = json.loads(path.read_text())
        found[told["proof"]] = {"full": told["full"], **told["figures"]}
    return found


def page(figures: Figures) -> str:
    """The page that these figures make."""
    parts = [INTRODUCTION]
    for prefix, title, text in SECTIONS:
        members = {
            name: told
            for name, told in sorted(figures.items())
            if name == prefix or name.startswith(prefix + "-")
        }
        if members:
            parts.append(f"## {title}\n\n{text}\n\n" + "\n".join(table(prefix, members)) + "\n")
    return "\n".join(parts)


def table(prefix: str, members: Figures) -> Iterator[str]:
    """One row for each proof, where they count the same things a column for each of them."""
    flat = {name: dict(flattened(told)) for name, told in members.items()}
    columns = list(dict.fromkeys(column for told in flat.values() for column in told))
    if len(flat) > 1 and all(set(told) == set(columns) for told in flat.values()):
        yield f"| | {' | '.join(columns)} |"
        yield "|---" * (len(columns) + 1) + "|"
        for name, told in flat.items():
            yield f"| {label(prefix, name)} | {' | '.join(told[column] for column in columns)} |"
        return
    yield "| | |"
    yield "|---|---|"
    for name, told in flat.items():
        yield f"| {label(prefix, name)} | {', '.join(f'{what} {n}' for what, n in told.items())} |"


def label(prefix: str, name: str) -> str:
    return name.removeprefix(prefix).removeprefix("-").replace("-", " ").replace("_", " ") or "all"


def flattened(told: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in told.items():
        if name == "full":
            continue
        if isinstance(value, Mapping):
            yield from flattened(value, f"{above}{name}: ")
        elif not isinstance(value, list):
            yield above + name, f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something is amiss")
    check = parser.parse_args().check
    kept: Figures = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if not check:
        for name, told in counted().items():
            if not (kept.get(name, {}).get("full") and not told["full"]):  # a whole run counts for more
                kept[name] = told
        KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
        PAGE.write_text(page(kept), encoding="utf-8")
        return
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page(kept):
        raise SystemExit("docs/reliability.md is not made of docs/reliability.json: run `make docs`")


if __name__ == "__main__":
    main()
