"""A reader of logs that shares nothing with the library: what docs/format.md says, and strictly.

It gives what counts and where that ends. A log may end in what is left of one write that was cut short;
anything else that does not count is damage, and no death of a process may ever cause that.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

END = re.compile(rb',"sum":"([0-9a-f]{8})"}')

Line = dict[str, Any]


@dataclass
class Log:
    """What a log says."""

    records: list[Line] = field(default_factory=list)
    end: int = 0
    """The length of all that counts."""
    torn: bytes = b""
    """What stands behind that."""
    seed: int = 0
    """What the checksum of the next line goes on from."""

    @property
    def uid(self) -> str:
        """Tells the session from another one of the same id."""
        return str(self.records[0]["data"]["uid"])

    @property
    def last(self) -> int:
        """The number of the last record."""
        return int(self.records[-1]["seq"])

    def messages(self) -> dict[int, Any]:
        """Everything that was said and is still there, by the number of its record."""
        return {line["seq"]: line["data"] for line in self.records if line["kind"] == "message"}

    def taken_out(self) -> list[range]:
        """The numbers of the records that were taken out on purpose."""
        gone = [line for line in self.records if line["kind"] == "compacted"]
        return [range(line["data"]["first"], line["seq"] + 1) for line in gone]

    def count(self) -> int:
        """How many messages there ever were."""
        n = 0
        for line in self.records:
            n = line["data"]["head"]["messages"] if line["kind"] == "compacted" else n
            n += line["kind"] == "message"
        return n

    def title(self) -> str:
        """What somebody called it last, or nothing."""
        title = str(self.records[0]["data"].get("title") or "")
        for line in self.records:
            if line["kind"] == "meta":
                title = line["data"].get("set", {}).get("title", title)
        return title

    def history(self, upto: int | None = None) -> list[Any]:
        """What the model sees, or saw just after a record."""
        said: dict[tuple[int, ...], Any] = {}
        seen: list[tuple[int, ...]] = []
        for line in self.records:
            seq = line["seq"]
            if upto is not None and seq > upto:
                break
            if line["kind"] == "message":
                said[seq,] = line["data"]
                seen.append((seq,))
            elif line["kind"] == "history":
                seen, n = [], 0
                for part in line["data"]["parts"]:
                    if isinstance(part, dict):
                        said[seq, n] = part["message"]
                        part, n = [seq, n, n], n + 1
                    *of, first, final = part
                    seen += [(*of, k) for k in range(first, final + 1)]
        return [said[place] for place in seen if place in said]


def read(raw: bytes, seed: int = 0, last: int = -1) -> Log:
    """What the bytes of a log say; `AssertionError` where they are damaged. With `seed` and `last` those that
    follow the record of this number."""
    log = Log(seed=seed)
    at = 0
    batch: list[Line] = []
    while at < len(raw):
        stop = raw.find(b"\n", at)
        text = raw[at:stop] if stop >= 0 else raw[at:]
        found = END.fullmatch(text, max(0, len(text) - 18))
        claimed = int(found[1], 16) if found else -1
        if claimed != crc32(text[:-18], seed):
            assert stop < 0, f"the line at {at} is damaged: {text[:60]!r} … {text[-60:]!r}"
            break  # a piece of a line
        line = json.loads(text)
        at += len(text) + (stop >= 0)
        seed = crc32(text[-18:] + b"\n", claimed)
        _in_order(line, last)
        last = line["seq"]
        first, n = line.get("batch", (last, 1))
        batch.append(line)
        assert first + len(batch) == last + 1, f"record {last} stands where more of a batch should"
        assert n == 1 or all(one["batch"] == [first, n] for one in batch), f"record {last} is of another one"
        if len(batch) == n:
            log.records += batch
            batch = []
            log.end, log.seed = at, seed
    log.torn = raw[log.end :]
    return log


def _in_order(line: Line, last: int) -> None:
    names, seq = list(line), line["seq"]
    assert [names[0], *names[-3:]] == ["kind", "at", "seq", "sum"], f"record {seq} has members {names}"
    assert (line["kind"] == "session") == (seq == 0), f"record {seq} is of kind {line['kind']}"
    begins = line["data"]["first"] if line["kind"] == "compacted" else seq
    assert begins == last + 1, f"record {begins} follows record {last}"


def logs(root: Path) -> dict[str, Log]:
    """All sessions of a store, by their ids. What has no whole first line is none."""
    found = {}
    for path in sorted((root / "sessions").glob("*.jsonl")):
        log = read(path.read_bytes())
        if log.records:
            id = str(log.records[0]["data"]["id"])
            assert id not in found
            found[id] = log
    return found
