"""What is written, byte by byte, and that docs/format.md is enough to read it.

The readers in Python and JavaScript that the page shows are taken out of it and read logs that the library
wrote, whole, torn and damaged. A log that was written once stays readable for ever, and what a newer
version adds survives being read by this one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

import hansard
from hansard import NewerFormat, Record, Session, Store
from hansard.ids import file_key, id_of
from hansard.records import Scan, seal
from hansard.views.history import fold

PAGE = (Path(__file__).parent.parent / "docs/format.md").read_text(encoding="utf-8")
GOLDEN = Path(__file__).parent / "data/format-1.jsonl"
SESSION = "sess_0123456789abcdef"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


# -- the readers of the page ------------------------------------------------------------------------


def block(language: str, says: str) -> str:
    """The one block of code on the page that says this."""
    found = [text for text in re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.S | re.M) if says in text]
    assert len(found) == 1, f"docs/format.md has {len(found)} blocks of {language} with {says!r}"
    return str(found[0])


@pytest.fixture(scope="session")
def in_python() -> dict[str, Any]:
    """The reader in Python, as a reader of the page has it."""
    text = block("python", "def records")
    assert len([line for line in text.splitlines() if line.strip()]) <= 30
    assert set(re.findall(r"^(?:import|from) (.+)$", text, re.M)) == {"json, zlib"}
    names: dict[str, Any] = {}
    exec(compile(text, "docs/format.md", "exec"), names)
    return names


RUN = """
for (const [path, lengths] of JSON.parse(require("node:fs").readFileSync(0, "utf8"))) {
  const log = require("node:fs").readFileSync(path);
  const read = (part) => ({ records: [...records(part)], history: history(part) });
  console.log(JSON.stringify(lengths.map((length) => read(log.subarray(0, length)))));
}
"""


def in_javascript(*logs: tuple[Path, list[int]]) -> list[list[dict[str, Any]]]:
    """What the reader in JavaScript makes of the first so many bytes of some logs, in one run of node."""
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        pytest.skip("node is absent: the reader in JavaScript was not run")
    given = json.dumps([(str(path), lengths) for path, lengths in logs])
    done = subprocess.run(
        [node, "-e", block("javascript", "function* records") + RUN],
        input=given,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


MEMBERS = "kind data id turn model usage shape batch seq".split()


def plain(record: Record) -> dict[str, Any]:
    """A record of the library with the members that any JSON reader has."""
    found: dict[str, Any] = json.loads(msgspec.json.encode({name: getattr(record, name) for name in MEMBERS}))
    return found


def outlined(line: dict[str, Any]) -> dict[str, Any]:
    """The same members of a line that was read from the page's description alone."""
    return {name: line.get(name) for name in MEMBERS}


# -- logs that the library writes -------------------------------------------------------------------

TOOL_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
}
TOOL_RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "app.py\ntemplates/\n"}


def plain_talk(session: Session) -> None:
    session.append(user("Build a login page"), id="request-1")
    session.extend([TOOL_CALL, TOOL_RESULT], usages=[{"prompt_tokens": 812, "cost": 0.0021}, None])
    session.append(assistant("Done"), model="gpt-5")


def every_text(session: Session) -> None:
    for text in (
        "",
        "a\nb\r\nc\0",
        "line\u2028and\u2029next\x85",
        "👩‍👩‍👧‍👦 修复 e\u0301",
        '{"sum":"00000000"}\n',
        "\\",
    ):
        session.append(user(text))
    session.append({"deep": [[[{"": [1.5, -2, True, None, 2**53]}]]], "__proto__": 1, "10": 2, "9": 1})


def checkpoints(session: Session) -> None:
    plain_talk(session)
    session.checkpoint([user("So far: a page."), assistant("Done")], token_count=31, summary="A page")
    session.append(user("Now the tests"))
    session.checkpoint([user("So far: a page."), user("Be brief."), user("Now the tests")])
    session.append(assistant("3 tests"))


def truncations(session: Session) -> None:
    plain_talk(session)
    session.truncate(2)
    session.append(user("more"))
    session.pop()
    session.truncate(0)
    session.append(user("anew"))
    session.clear()
    session.extend([user("and"), assistant("again")])


def branches(session: Session) -> None:
    plain_talk(session)
    session.checkpoint([user("short")])
    session.append(assistant("on it"))
    session.rewind(4)
    session.append(user("another way"))
    session.rewind(6)
    session.rewind(8)


def whole_lists(session: Session) -> None:
    said = [user(str(n)) for n in range(6)]
    session.set_history(said[:4])
    session.set_history(said)
    session.set_history([*said[2:], user("6")])
    session.set_history([said[5], user("edited"), said[3], said[3], user("new"), assistant("last")])
    session.set_history([])
    session.set_history([user("anew")])


def facts_of_all_kinds(session: Session) -> None:
    session.append(user("hi"), time=datetime(2026, 1, 1, tzinfo=UTC), shape="openai", turn="t1")
    session.rename("A title")
    session.update(status="done", meta={"ticket": None}, unset=["title"])
    session.label("a", "b")
    session.add_usage({"input_tokens": 3, "cost": 0.01}, model="gpt-5-mini")
    session.append({"url": "https://example.org"}, kind="shop.ticket")
    session.extend([user("one"), user("two"), user("three")])


STORIES = [plain_talk, every_text, checkpoints, truncations, branches, whole_lists, facts_of_all_kinds]


@pytest.fixture(params=STORIES, ids=lambda story: str(story.__name__))
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log in a store of its own, as the library leaves it."""
    return written(tmp_path / "store", request.param)


def written(root: Path, story: Any) -> Path:
    with hansard.open(root) as store, store.create(SESSION, model="gpt-5") as session:
        story(session)
    return root / f"sessions/{SESSION}.jsonl"


def as_the_library_reads(log: Path, data: bytes) -> tuple[list[dict[str, Any]], list[Any]]:
    """What `records()` and `history()` give when the log has these bytes."""
    root = log.parent.parent
    log.write_bytes(data)
    for derived in root.glob("catalog*"):
        derived.unlink()
    with hansard.open(root) as store:
        view = store.read(SESSION)
        return [plain(record) for record in view.records()], list(view.history())


def same(one: list[Any], other: list[Any]) -> bool:
    """Equal as JSON: the order of members does not count, and no float is taken for an integer."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


@pytest.mark.rule("H9")
def test_the_reader_in_python_reads_what_the_library_wrote(told: Path, in_python: dict[str, Any]) -> None:
    data = told.read_bytes()
    records, history = as_the_library_reads(told, data)
    assert same([outlined(line) for line in in_python["records"](data)], records)
    assert same(in_python["history"](data), history)


@pytest.mark.rule("H9")
def test_the_reader_in_javascript_reads_what_the_library_wrote(told: Path) -> None:
    data = told.read_bytes()
    records, history = as_the_library_reads(told, data)
    [[read]] = in_javascript((told, [len(data)]))
    assert [outlined(line) for line in read["records"]] == records
    assert read["history"] == history


def last_write(data: bytes) -> int:
    """Where the last write of a log begins: its last line, or the first line of its last batch."""
    lines = data.splitlines(keepends=True)
    batch = json.loads(lines[-1]).get("batch", [0, 1])
    return len(data) - sum(map(len, lines[-batch[1] :]))


@pytest.mark.rule("C1")
@pytest.mark.parametrize("story", [plain_talk, checkpoints, branches, whole_lists, facts_of_all_kinds])
def test_a_torn_tail_is_read_alike_wherever_it_was_cut(
    story: Any, tmp_path: Path, in_python: dict[str, Any]
) -> None:
    log = written(tmp_path / "store", story)
    data = log.read_bytes()
    start = last_write(data)
    cuts = sorted({*range(start, len(data) + 1, 7), *range(len(data) - 20, len(data) + 1)})
    before = len(list(in_python["records"](data[:start])))
    for cut in cuts:
        records, history = as_the_library_reads(log, data[:cut])
        assert len(records) == before or cut >= len(data) - 1, f"cut at {cut} of {len(data)}"
        assert same([outlined(line) for line in in_python["records"](data[:cut])], records), cut
        assert same(in_python["history"](data[:cut]), history), cut
    log.write_bytes(data)
    for cut, read in zip(cuts, in_javascript((log, cuts))[0], strict=True):
        assert [outlined(line) for line in read["records"]] == [
            outlined(line) for line in in_python["records"](data[:cut])
        ], cut
        assert read["history"] == in_python["history"](data[:cut]), cut


@pytest.mark.rule("C1")
def test_a_log_cut_anywhere_at_all_is_read_alike(tmp_path: Path, in_python: dict[str, Any]) -> None:
    data = GOLDEN.read_bytes()
    for cut in range(len(data) + 1):
        reader = Scan()
        records = reader.feed(data[:cut]) + reader.finish()
        assert not reader.damage, f"cut at {cut}"
        assert [line["seq"] for line in in_python["records"](data[:cut])] == [r.seq for r in records], cut
        assert in_python["history"](data[:cut]) == fold(records), cut


@pytest.mark.rule("C1")
def test_a_torn_batch_is_not_there_at_all(tmp_path: Path, in_python: dict[str, Any]) -> None:
    log = written(tmp_path / "store", facts_of_all_kinds)
    data = log.read_bytes()
    lines = data.splitlines(keepends=True)
    assert [json.loads(line).get("batch") for line in lines[-3:]] == [[7, 3]] * 3
    for left in (1, 2):
        torn = b"".join(lines[: len(lines) - 3 + left])
        records, history = as_the_library_reads(log, torn)
        assert records[-1]["seq"] == 6
        assert same([outlined(line) for line in in_python["records"](torn)], records)
        assert in_python["history"](torn) == history
        log.write_bytes(torn)
        [[read]] = in_javascript((log, [len(torn)]))
        assert [line["seq"] for line in read["records"]] == [record["seq"] for record in records]


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    lines = data.splitlines(keepends=True)
    middle = len(lines) // 2

    def instead(*those: bytes, at: int = middle, count: int = 1) -> bytes:
        return b"".join([*lines[:at], *those, *lines[at + count :]])

    yield "a line emptied", instead(b"\n")
    yield "an empty line between", instead(b"\n", count=0)
    yield "garbage between", instead(b"\xff\xfe garbage { \n", count=0)
    yield "a value between", instead(b"null\n", b"[1]\n", b'{"seq":1}\n', count=0)
    yield "zeros", instead(b"\0" * (len(lines[middle]) - 1) + b"\n")
    yield "a line altered", instead(lines[middle].replace(b'"at":"2', b'"at":"3'))
    yield "a sum altered", instead(lines[middle][:-11] + b'00000000"}\n')
    yield "a line twice", instead(lines[middle], lines[middle])
    yield "ends as on Windows", data.replace(b"\n", b"\r\n")
    yield "spaces at an end", instead(lines[middle].replace(b"\n", b"  \n"))
    yield "the same log once more", data + data
    yield "the first line illegible", b"{" + data
    yield "the last line altered", instead(lines[-1].replace(b'"at":"2', b'"at":"3'), at=len(lines) - 1)
    for n, line in enumerate(lines):
        if b'"batch"' in line:
            yield f"an empty line in a batch, before line {n}", instead(b"\n", at=n, count=0)
            yield f"line {n} of a batch altered", instead(line.replace(b'"at":"2', b'"at":"3'), at=n)


@pytest.mark.rule("C2")
@pytest.mark.parametrize("story", [plain_talk, checkpoints, branches, facts_of_all_kinds])
def test_the_readers_go_on_after_damage_as_the_library_does(
    story: Any, tmp_path: Path, in_python: dict[str, Any]
) -> None:
    log = written(tmp_path / "store", story)
    broken = list(damages(log.read_bytes()))
    expected = []
    for number, (name, data) in enumerate(broken):
        records, history = as_the_library_reads(log, data)
        assert len(records) > 1, name
        assert same([outlined(line) for line in in_python["records"](data)], records), name
        assert same(in_python["history"](data), history), name
        expected.append((records, history))
        (tmp_path / f"{number}.jsonl").write_bytes(data)
    reads = in_javascript(*((tmp_path / f"{n}.jsonl", [len(data)]) for n, (_, data) in enumerate(broken)))
    for (name, _), (records, history), [read] in zip(broken, expected, reads, strict=True):
        assert [outlined(line) for line in read["records"]] == records, name
        assert read["history"] == history, name


@pytest.mark.rule("C2")
def test_where_a_line_is_gone_or_lost_its_end_the_library_saves_one_record_more(
    tmp_path: Path, in_python: dict[str, Any]
) -> None:
    log = written(tmp_path / "store", every_text)
    lines = log.read_bytes().splitlines(keepends=True)
    gone = b"".join(lines[:3] + lines[4:])
    glued = b"".join([*lines[:3], lines[3].rstrip(b"\n"), *lines[4:]])
    for data, simple, better in (
        (gone, [0, 1, 2, 5, 6, 7], [0, 1, 2, 4, 5, 6, 7]),
        (glued, [0, 1, 2, 5, 6, 7], range(8)),
    ):
        records, _ = as_the_library_reads(log, data)
        assert [record["seq"] for record in records] == list(better)
        assert [line["seq"] for line in in_python["records"](data)] == simple


def test_the_readers_refuse_what_must_be_understood(in_python: dict[str, Any], tmp_path: Path) -> None:
    data = resealed(
        [*lines_of(GOLDEN), {"kind": "!folded", "data": 1, "at": "2026-05-01T12:00:00Z", "seq": 99}]
    )
    with pytest.raises(AssertionError, match="!folded"):
        in_python["history"](data)
    log = tmp_path / "newer.jsonl"
    log.write_bytes(data)
    with pytest.raises(AssertionError, match="!folded"):
        in_javascript((log, [len(data)]))


# -- the page ---------------------------------------------------------------------------------------


def test_the_page_shows_the_golden_log() -> None:
    assert block("jsonl", SESSION) == GOLDEN.read_text(encoding="utf-8")


def test_the_history_that_the_page_gives_for_it_is_right(in_python: dict[str, Any]) -> None:
    shown = re.findall(r"^\| (\d+) \| (.+?) \|$", PAGE.partition("## History")[2], re.M)
    assert len(shown) >= 5
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    for seq, messages in shown:
        data = b"".join(lines[: int(seq) + 1])
        texts = [message["content"] for message in in_python["history"](data)]
        told = [None if part == "the call" else part.strip("“”") for part in messages.split(" · ")]
        assert [text and text.strip().replace("\n", " ") for text in texts] == [
            part and part.strip() for part in (told if messages != "nothing" else [])
        ], f"after record {seq}"


def test_the_sums_of_the_worked_example_are_right() -> None:
    assert "`cbf43926`" in PAGE
    assert f"{crc32(b'123456789'):08x}" == "cbf43926"
    first, second = block("text", '"id":"demo"').splitlines()
    assert sealed([first.rpartition(',"sum":')[0] + "}", second.rpartition(',"sum":')[0] + "}"]) == (
        f"{first}\n{second}\n".encode()
    )
    front = first.rpartition(',"sum":')[0].encode()
    assert f"the {len(front)} bytes" in PAGE
    assert f"`{crc32(front):08x}`" in PAGE
    whole = f"{first}\n".encode()
    assert f"the {len(whole)} bytes" in PAGE
    assert f"`{crc32(whole):08x}`" in PAGE
    assert crc32(whole) == crc32(whole[len(front) :], crc32(front))
    behind = second.rpartition(',"sum":')[0].encode()
    assert f"`{crc32(behind, crc32(whole)):08x}`" in PAGE


def test_every_member_and_kind_is_on_the_page() -> None:
    names = [field.encode_name for field in msgspec.structs.fields(Record)]
    for name in [name for name in names if name != "*extra"]:
        assert f"`{name}`" in PAGE, name
    for kind in "session meta message history turn block end usage event output compacted".split():
        assert f"`{kind}`" in PAGE, kind


KEYS = re.findall(
    r"^\| `(.+?)` \| `(\S+)` \|$", PAGE.partition("### File keys")[2].partition("\n## ")[0], re.M
)


@pytest.mark.rule("I2")
@pytest.mark.parametrize(("id", "key"), KEYS)
def test_the_file_keys_of_the_page_are_right(id: str, key: str) -> None:
    assert file_key(id) == key
    assert id_of(key) == id


@pytest.mark.rule("I2")
def test_file_keys_follow_from_the_rule_on_the_page() -> None:
    def by_the_page(id: str) -> str:
        key = ""
        for place, character in enumerate(id):
            inner = 0 < place < len(id) - 1
            if character in "abcdefghijklmnopqrstuvwxyz0123456789_-" or (character == "." and inner):
                key += character
            else:
                key += "".join(f"={byte:02x}" for byte in character.encode())
        if len(key) > 180:
            key = key[:100] + "=~" + hashlib.sha256(id.encode()).hexdigest()
        return key

    assert len(KEYS) >= 6
    ids = [id for id, _ in KEYS]
    ids += [
        "a" * 180,
        "a" * 181,
        "ü" * 30,
        "ü" * 31,
        "x" * 512,
        "a.b",
        ".a",
        "a.",
        ".",
        "..",
        "=",
        "a=2fb",
        "=~",
        "con",
    ]
    for id in ids:
        assert file_key(id) == by_the_page(id), id
        assert id_of(file_key(id)) in (id, None)
    assert len({file_key(id).casefold() for id in ids}) == len(set(ids))


# -- golden -----------------------------------------------------------------------------------------


def tell_the_golden_story(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every kind that is written today, at set times."""
    monkeypatch.setattr(os, "urandom", lambda length: (b"\x5e\xed" * length)[:length])
    now = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)

    def later() -> None:
        nonlocal now
        now += timedelta(seconds=2.5)

    with hansard.open(root, clock=lambda: now, new_id=lambda: SESSION) as store:
        session = store.create(agent="coder", model="gpt-5", workspace="/srv/shop", labels=["web"])
        with session:
            session.append(user("Build a login page – für alle 🙂"), id="request-1")
            later()
            looks = {**TOOL_CALL, "reasoning_content": "First look at what is there."}
            session.extend([looks, TOOL_RESULT], usages=[{"prompt_tokens": 812, "cost": 0.0021}, None])
            later()
            session.append(
                assistant("Done: templates/login.html"), usage={"prompt_tokens": 874, "cost": 0.0031}
            )
            later()
            session.update(status="waiting", meta={"ticket": 42})
            later()
            session.append(user("Now the tests"), time=datetime(2026, 5, 1, 11, 59, tzinfo=UTC))
            later()
            session.checkpoint(
                [user("So far: the page is built."), user("Now the tests")],
                token_count=31,
                summary="Page built",
            )
            later()
            session.append(assistant("3 tests, all pass"))
            later()
            session.pop()
            later()
            session.add_usage({"input_tokens": 200, "output_tokens": 12, "cost": 0.0004}, model="gpt-5-mini")
            later()
            session.append({"url": "https://example.org/42"}, kind="shop.ticket")
            later()
            session.update(unset=["status"])
            later()
            session.rewind(4)
            later()
            session.set_history([assistant("Done: templates/login.html"), user("Ship it")])
            later()
            session.event("task.progress", {"percent": 80}, event_id="event-1", stream_id="stream-1")
            session.output(b"\x1b[32mok\x1b[0m\n")
            session.output(b"\xff\xfe")
    return root / f"sessions/{SESSION}.jsonl"


def test_a_session_with_set_times_is_written_as_exactly_these_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tell_the_golden_story(tmp_path / "store", monkeypatch).read_bytes() == GOLDEN.read_bytes()


def golden_store(root: Path, data: bytes | None = None) -> Store:
    """A store whose one log was not written by this process."""
    hansard.open(root).close()
    (root / f"sessions/{SESSION}.jsonl").write_bytes(GOLDEN.read_bytes() if data is None else data)
    for derived in root.glob("catalog*"):
        derived.unlink()
    return hansard.open(root)


def test_what_was_written_once_is_read_for_ever(tmp_path: Path) -> None:
    with golden_store(tmp_path / "store") as store:
        view = store.read(SESSION)
        assert not view.damage
        assert [record.seq for record in view.records()] == list(range(19))
        assert view.history() == [assistant("Done: templates/login.html"), user("Ship it")]
        head = store.head(SESSION)
        assert head.title == "Build a login page – für alle 🙂"
        assert head.preview == "Ship it"
        assert (head.agent, head.model, head.workspace) == ("coder", "gpt-5", "/srv/shop")
        assert (head.status, head.labels, head.meta) == ("active", ["web"], {"ticket": 42})
        assert (head.messages, head.token_count, head.summary) == (7, None, "")
        assert (head.created_at, head.updated_at) == (
            datetime(2026, 5, 1, 12, 0, tzinfo=UTC),
            datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC),
        )
        assert (head.usage.calls, head.usage.input_tokens, head.usage.output_tokens) == (3, 1886, 12)
        assert head.usage.cost == pytest.approx(0.0056)
        assert store.list() == [head]


def test_a_line_has_its_members_in_order_and_ends_in_time_seq_and_sum() -> None:
    order = [field.encode_name for field in msgspec.structs.fields(Record)]
    for line in lines_of(GOLDEN):
        assert list(line) == [name for name in order if name in line]
        assert next(iter(line)) == "kind"
        assert list(line)[-3:] == ["at", "seq", "sum"]


def test_a_line_is_compact_utf_8_without_escapes_that_it_does_not_need() -> None:
    data = GOLDEN.read_bytes()
    assert "für alle 🙂".encode() in data
    for line in data.splitlines():
        assert json.dumps(json.loads(line), ensure_ascii=False, separators=(",", ":")).encode() == line


# -- what newer versions add ------------------------------------------------------------------------


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_bytes().splitlines()]


def sealed(bodies: list[str]) -> bytes:
    data, state = b"", 0
    for body in bodies:
        line, state = seal(body.encode(), state)
        data += line
    return data


def resealed(lines: list[dict[str, Any]]) -> bytes:
    """These records as a log, with the sums that belong to them."""
    for line in lines:
        line.pop("sum", None)
    return sealed([json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines])


def newer() -> list[dict[str, Any]]:
    """The golden log as a newer version of format 1 might have written it: kinds, members and fields more.
    Each record has another one behind it, so that all numbers are twice what they were."""
    lines = []
    for line in lines_of(GOLDEN):
        at, seq = line.pop("at"), line.pop("seq")
        line.pop("batch", None)
        for part in line["data"].get("parts", ()) if line["kind"] == "history" else ():
            if isinstance(part, list):
                part[:] = [2 * n for n in part] if len(part) == 2 else [2 * part[0], *part[1:]]
        lines.append({**line, "priority": {"of": [1, 2]}, "at": at, "seq": 2 * seq})
        lines.append({"kind": "mood", "data": {"of": seq}, "at": at, "seq": 2 * seq + 1})
    lines[0]["data"] |= {"colour": "blue"}
    next(line for line in lines if line["kind"] == "meta")["data"]["set"]["mood"] = ["good"]
    dream = next(line for line in lines if line["kind"] == "history")["data"]
    dream |= {"op": "dream", "reason": {"of": "it"}}
    dream["parts"] += [{"picture": 1}, [1, 2, 3, 4]]
    return lines


@pytest.mark.rule("W14")
def test_what_this_version_does_not_know_is_carried_along_and_changes_nothing(
    tmp_path: Path, in_python: dict[str, Any]
) -> None:
    given = newer()
    with golden_store(tmp_path / "store", resealed(given)) as store:
        view = store.read(SESSION)
        records = list(view.records())
        assert not view.damage
        assert [record.seq for record in records] == list(range(38))
        assert {record.kind for record in records[1::2]} == {"mood"}
        assert all(record.extra == {"priority": {"of": [1, 2]}} for record in records[::2])
        assert records[3].data == {"of": 1}
        with golden_store(tmp_path / "as-it-was") as before:
            assert view.history() == before.read(SESSION).history()
            old, new = before.head(SESSION), store.head(SESSION)
        assert new.other == {"colour": "blue", "mood": ["good"]}
        for field in "title preview agent model workspace labels meta messages usage updated_at".split():
            assert getattr(new, field) == getattr(old, field), field
        with store.open(SESSION) as session:
            session.append(user("on"))
            assert session.history() == [assistant("Done: templates/login.html"), user("Ship it"), user("on")]
    log = tmp_path / f"store/sessions/{SESSION}.jsonl"
    assert log.read_bytes().startswith(resealed(newer()))


@pytest.mark.rule("W14")
def test_a_kind_that_must_be_understood_is_refused_for_reading_and_writing(tmp_path: Path) -> None:
    lines = lines_of(GOLDEN)
    lines.append({"kind": "!folded", "data": {}, "at": "2026-05-01T13:00:00Z", "seq": 19})
    with golden_store(tmp_path / "store", resealed(lines)) as store:
        for attempt in (
            lambda: list(store.read(SESSION).records()),
            lambda: store.read(SESSION).history(),
            lambda: store.head(SESSION),
            lambda: store.append(SESSION, user("on")),
            lambda: store.open(SESSION),
        ):
            with pytest.raises(NewerFormat, match="!folded"):
                attempt()
        assert store.doctor()
    log = tmp_path / f"store/sessions/{SESSION}.jsonl"
    assert log.read_bytes() == resealed(lines)


@pytest.mark.rule("W14")
def test_one_that_was_never_committed_is_a_torn_tail_like_any_other(tmp_path: Path) -> None:
    torn = b'{"kind":"!folded","data":{},"at":"2026-05-01T13:00:00Z","seq":19,"sum":"00000000"}\n'
    with golden_store(tmp_path / "store", GOLDEN.read_bytes() + torn) as store:
        assert len(list(store.read(SESSION).records())) == 19
        assert store.append(SESSION, user("on")).seq == 19


@pytest.mark.rule("W14")
@pytest.mark.parametrize("version", [2, 10**20, "1", 1.0, 1.5, True, None, 0, -1])
def test_a_log_in_a_newer_format_or_in_none_is_refused(version: Any, tmp_path: Path) -> None:
    lines = lines_of(GOLDEN)
    lines[0]["data"]["format"] = version
    with golden_store(tmp_path / "store", resealed(lines)) as store:
        with pytest.raises(NewerFormat, match="format"):
            store.read(SESSION)
        with pytest.raises(NewerFormat, match="format"):
            store.append(SESSION, user("on"))
        assert store.list() == []
        assert [finding.session for finding in store.doctor().findings] == [SESSION]


@pytest.mark.rule("W14")
def test_a_folder_in_a_newer_format_is_not_written_and_can_be_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    golden_store(root).close()
    facts = json.loads((root / "hansard.json").read_text())
    assert facts["format"] == 1
    (root / "hansard.json").write_text(json.dumps({**facts, "format": 2, "colour": "blue"}))
    with pytest.raises(NewerFormat):
        hansard.open(root)
    with hansard.open(root, readonly=True) as store:
        assert len(store.read(SESSION).history()) == 2


# -- the folder -------------------------------------------------------------------------------------


@pytest.mark.rule("C3")
def test_what_a_writer_in_another_language_says_is_listed_by_all_who_have_the_store_open(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    with golden_store(root) as store:
        assert store.list()[0].preview == "Ship it"
        (root / "catalog.check").write_bytes(b"")
        lines = lines_of(GOLDEN)
        lines.append(
            {"kind": "message", "data": user("from outside"), "at": "2026-05-01T13:00:00Z", "seq": 19}
        )
        added = resealed(lines)[len(GOLDEN.read_bytes()) :]
        with (root / f"sessions/{SESSION}.jsonl").open("ab") as log:
            log.write(added)
        assert store.list()[0].preview == "from outside"
        assert not (root / "catalog.check").exists()


def test_the_folder_has_what_the_page_says_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "store"
    log = written(root, plain_talk)
    log.write_bytes(log.read_bytes() + b"torn")
    with hansard.open(root) as store, store.open(SESSION) as session:
        session.append(user("on"))
        assert json.loads((root / f"locks/{SESSION}.lock").read_text())["session"] == SESSION
        assert json.loads((root / "names/active.json").read_text()) == {
            "format": 1, "name": "active", "names": {"active": SESSION}, "uids": {"active": session.head.uid}
        }  # fmt: skip
        listed = PAGE.partition("## The folder")[2].partition("```text\n")[2].partition("```")[0]
        for path in root.iterdir():
            assert f" {path.name} " in re.sub(r"[,/\n]", " ", listed), path.name
        modes = {path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")] if path.is_dir()}
        assert modes == {0o700}
        assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o600}
        [aside] = (root / "aside").iterdir()
        assert aside.read_bytes() == b"torn"
        assert re.fullmatch(rf"\d{{8}}T\d{{6}}\.\d{{6}}Z\.{SESSION}\.torn", aside.name)
