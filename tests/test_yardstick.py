"""The gates of Session-Bench 0.3, measured on a session of a coding agent as one records it.

The table at the end of docs/format.md says how each gate is passed; here stands the proof, gate by gate, from
the bytes of the log wherever a gate asks about bytes. S2 counts as the bench does: text below members whose
name means content.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard import NewerFormat, Session
from hansard.records import FORMAT, Draft, Record, seal

PAGE = (Path(__file__).parent.parent / "docs/format.md").read_text(encoding="utf-8")
MODELS = ("gpt-5", "claude-opus-4-5")


# -- a realistic session ----------------------------------------------------------------------------


@dataclass
class Agent:
    """A coding agent at work: it is asked, thinks, calls tools, answers, and compacts when it grows long.

    What it says is made up from a fixed seed, in the sizes of recorded sessions: prompts of a line or
    two, reasoning of a paragraph, files and test output of some kilobytes. It notes what it handed over.
    """

    session: Session
    chance: random.Random = field(default_factory=lambda: random.Random(20260501))
    said: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0

    def work(self, turns: int) -> None:
        for turn in range(turns):
            self.turn(turn)
            if turn % 4 == 3:
                self.compact()

    def turn(self, number: int) -> None:
        model = MODELS[number % 2]
        self.say({"role": "user", "content": self.prose(12, 40).capitalize() + "?"})
        for _ in range(self.chance.randint(2, 5)):
            wanted = [self.call() for _ in range(self.chance.randint(1, 2))]
            thinking = {"role": "assistant", "content": None, "reasoning_content": self.prose(40, 120)}
            self.say({**thinking, "tool_calls": wanted}, model=model, usage=self.usage())
            for call in wanted:
                self.say({"role": "tool", "tool_call_id": call["id"], "content": self.output()})
        self.say(
            {"role": "assistant", "content": self.prose(60, 200), "reasoning_content": self.prose(20, 60)},
            model=model,
            usage=self.usage(),
        )

    def say(self, message: dict[str, Any], **more: Any) -> None:
        self.session.append(message, **more)
        self.said.append(message)

    def call(self) -> dict[str, Any]:
        self.calls += 1
        arguments = {"path": f"src/shop/{self.word()}.py", "start": self.chance.randint(1, 400)}
        function = {"name": self.chance.choice(["read_file", "grep", "edit", "run_tests"])}
        return {
            "id": f"call_{self.calls}",
            "type": "function",
            "function": {**function, "arguments": json.dumps(arguments)},
        }

    def output(self) -> str:
        lines = []
        for n in range(self.chance.randint(5, 60)):
            name, value = self.word(), self.word()
            lines.append(f"{n:4}\t    {name}_{n} = {value}({name!r}, {n})  # {self.prose(0, 6)}")
        return "\n".join(lines)

    def usage(self) -> dict[str, Any]:
        prompt, completion = self.chance.randint(2_000, 90_000), self.chance.randint(50, 1_500)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": prompt * 3 // 4},
            "completion_tokens_details": {"reasoning_tokens": completion // 3},
            "cost": round(prompt * 1.25e-6 + completion * 1e-5, 6),
        }

    def compact(self) -> None:
        seen = list(self.session.history())
        summary = "What was done so far: " + self.prose(80, 160)
        start = next(n for n in range(len(seen) - 1, -1, -1) if seen[n]["role"] == "user")
        self.session.checkpoint(
            [{"role": "user", "content": summary}, *seen[start:]], token_count=4_000, summary=summary
        )

    def prose(self, least: int, most: int) -> str:
        return " ".join(self.word() for _ in range(self.chance.randint(least, most)))

    def word(self) -> str:
        return self.chance.choice(WORDS)


WORDS = (
    "the login page form session cookie user password token route template test fails passes error import "
    "module function returns value handler request response für über naïve データ because after before check "
    "write read cache index query order cart price total"
).split()


@dataclass
class Recorded:
    root: Path
    id: str
    said: list[dict[str, Any]]

    @property
    def log(self) -> Path:
        return self.root / f"sessions/{self.id}.jsonl"

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Twelve turns of a coding agent, three compactions, a sliding window, a branch, a truncation."""
    root = tmp_path_factory.mktemp("yardstick") / "store"
    start = datetime(2026, 5, 1, 9, 0, tzinfo=UTC)
    ticks = iter(range(10**9))
    with hansard.open(root, clock=lambda: start + timedelta(seconds=1.7) * next(ticks)) as store:
        with store.create(agent="coder", model=MODELS[0], workspace="/srv/shop") as session:
            agent = Agent(session)
            agent.work(12)
            session.rename("A login page for the shop")
            session.add_usage(
                {"prompt_tokens": 900, "completion_tokens": 12, "cost": 0.0004}, model="gpt-5-mini"
            )
            fork = session.seq
            agent.turn(12)
            session.rewind(fork)
            session.truncate(6)
            window = list(session.history())[-4:]
            new = [
                {"role": "user", "content": "And now?"},
                {"role": "assistant", "content": "Nothing is left to do."},
            ]
            session.set_history([*window, *new])
            agent.said += new
            agent.turn(13)
            return Recorded(root, session.id, agent.said)


def bookkeeping(line: dict[str, Any]) -> bytes:
    """What a record of another kind than a message has beside the messages that are written inside it."""
    data = line["data"]
    if line["kind"] == "history":
        data = {**data, "parts": [part for part in data["parts"] if isinstance(part, list)], "summary": ""}
    return json.dumps({**line, "data": data}, ensure_ascii=False).encode()


def texts(value: Any, below: bool = False) -> Iterator[str]:
    """All text below a member whose name means content."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, below or name in CONTENT)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, below)
    elif isinstance(value, str) and below:
        yield value


CONTENT = frozenset("text content message thinking reasoning_content arguments input output result".split())


# -- signal -----------------------------------------------------------------------------------------


def grown_by_a_one_line_task(root: Path) -> tuple[int, int]:
    """(what a store grows by, what its logs grow by) when an agent is asked for one line."""

    def sizes() -> tuple[int, int]:
        files = [path for path in root.rglob("*") if path.is_file()]
        return sum(f.stat().st_size for f in files), sum(
            f.stat().st_size for f in files if f.suffix == ".jsonl"
        )

    def task() -> None:
        with (
            hansard.open(root) as store,
            store.create(agent="coder", model="gpt-5", workspace="/srv/shop") as session,
        ):
            session.append({"role": "user", "content": "Reply with exactly: ok"})
            usage = {"prompt_tokens": 9_120, "completion_tokens": 3, "cost": 0.0114}
            session.append({"role": "assistant", "content": "ok"}, usage=usage)

    task()
    before = sizes()
    task()
    after = sizes()
    return after[0] - before[0], after[1] - before[1]


def test_s1_a_one_line_task_adds_at_most_10_kb_to_the_store(tmp_path: Path) -> None:
    store, log = grown_by_a_one_line_task(tmp_path / "store")
    assert store <= 10 * 1024
    assert 0 < log <= 1024


def test_s2_content_is_at_least_a_quarter_of_the_bytes(recorded: Recorded) -> None:
    content = sum(len(text.encode()) for line in recorded.lines for text in texts(line["data"]))
    assert content / recorded.log.stat().st_size >= 0.75


def test_s3_no_bookkeeping_record_is_larger_than_25_kb(recorded: Recorded, tmp_path: Path) -> None:
    whole = [len(json.dumps(line).encode()) for line in recorded.lines if line["kind"] != "message"]
    assert max(whole) <= 25 * 1024
    assert max(len(bookkeeping(line)) for line in recorded.lines if line["kind"] != "message") <= 1024
    with hansard.open(tmp_path / "store") as store, store.create() as session:
        session.extend([{"role": "user", "content": f"{n}"} for n in range(5_000)])
        for keep in (4_000, 3_000, 2_000):
            session.truncate(keep, pairs=False)
            session.checkpoint([{"role": "user", "content": "so far"}, *session.history()[keep // 2 :]])
            session.pop(100)
            session.rewind(5_000)
        assert max(len(msgspec.json.encode(r.data)) for r in session.records(kinds="history")) <= 1024


# -- completeness -----------------------------------------------------------------------------------


def test_c1_every_record_has_a_time(recorded: Recorded) -> None:
    for line in recorded.lines:
        moment = datetime.fromisoformat(line["at"])
        assert moment.utcoffset() == timedelta(0)


def test_c2_the_model_behind_every_message_of_the_assistant_is_in_its_record(recorded: Recorded) -> None:
    lines = [
        line for line in recorded.lines if line["kind"] == "message" and line["data"]["role"] == "assistant"
    ]
    assert len(lines) > 40
    assert {line["model"] for line in lines} == set(MODELS)


def test_c2_also_where_the_caller_named_none_or_the_message_names_its_own(tmp_path: Path) -> None:
    with hansard.open(tmp_path / "store") as store, store.create(model="gpt-5") as session:
        assert session.append({"role": "assistant", "content": "hi"}).model == "gpt-5"
        told = {"role": "assistant", "content": "hi", "model": "claude-opus-4-5"}
        assert session.append(told).model == "claude-opus-4-5"
        assert store.append(session.id, {"role": "assistant", "content": "hi"}).model == "gpt-5"
        assert session.append({"role": "user", "content": "hi"}).model is None


def test_c3_token_usage_is_in_the_record_as_the_provider_gave_it(recorded: Recorded) -> None:
    answers = [line for line in recorded.lines if line["kind"] == "message" and "usage" in line]
    assert len(answers) > 40
    for line in answers:
        assert line["usage"].keys() >= {"prompt_tokens", "completion_tokens", "prompt_tokens_details"}
    with hansard.open(recorded.root) as store:
        total = store.head(recorded.id).usage
    assert total.calls == len(answers) + 1
    assert total.input_tokens == sum(line["usage"]["prompt_tokens"] for line in answers) + 900


def test_c4_cost_is_in_the_record_in_dollars_and_survives_compaction(recorded: Recorded) -> None:
    costs = [line["usage"]["cost"] for line in recorded.lines if "usage" in line]
    costs += [line["data"]["cost"] for line in recorded.lines if line["kind"] == "usage"]
    with hansard.open(recorded.root) as store:
        head = store.head(recorded.id)
    assert head.usage.cost == pytest.approx(sum(costs))
    assert set(head.usage.models) == {*MODELS, "gpt-5-mini"}


def test_c5_every_tool_call_and_its_output_are_in_the_record(recorded: Recorded) -> None:
    made: dict[str, str] = {}
    answered: dict[str, str] = {}
    for line in recorded.lines:
        if line["kind"] == "message":
            for call in line["data"].get("tool_calls", ()):
                made[call["id"]] = call["function"]["arguments"]
            if line["data"]["role"] == "tool":
                answered[line["data"]["tool_call_id"]] = line["data"]["content"]
    assert len(made) > 50
    assert all(made.values())
    assert made.keys() == answered.keys()
    assert [m["content"] for m in recorded.said if m["role"] == "tool"] == list(answered.values())


def test_c6_reasoning_stays_readable_in_every_provider_s_form(recorded: Recorded, tmp_path: Path) -> None:
    raw = recorded.log.read_text(encoding="utf-8")
    thoughts = [m["reasoning_content"] for m in recorded.said if "reasoning_content" in m]
    assert len(thoughts) > 40
    assert all(thought in raw for thought in thoughts)
    given = [
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Rome, surely", "signature": "EqQB"}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Rome, surely"}]},
        {"role": "model", "parts": [{"text": "Rome, surely", "thought": True}]},
    ]
    with hansard.open(tmp_path / "store") as store, store.create("thinker") as session:
        session.append({"role": "user", "content": "The capital of Italy?"})
        session.extend(given)
        assert list(session.history())[1:] == given
        assert (tmp_path / "store/sessions/thinker.jsonl").read_text().count("Rome, surely") == 3


def test_c7_branches_are_recoverable_from_the_log(recorded: Recorded) -> None:
    lines = recorded.lines
    back = next(line for line in lines if line["kind"] == "history" and line["data"]["op"] == "rewind")
    after = {line["seq"] for line in lines if line["kind"] == "message" and line["seq"] < back["seq"]}
    named = [part for part in back["data"]["parts"] if len(part) == 2]
    left = {seq for seq in after if seq > max(b for _, b in named)}
    assert left  # the branch that was abandoned is there still, and rewinding to it is possible
    with hansard.open(recorded.root) as store:
        tip = store.read(recorded.id).get(max(left))
    assert isinstance(tip, Record)
    assert tip.data in recorded.said


def test_c7_a_sub_agent_names_the_session_that_it_belongs_to(tmp_path: Path) -> None:
    with hansard.open(tmp_path / "store") as store:
        with store.create("parent") as session:
            session.append({"role": "user", "content": "Split this up"})
        at = datetime(2026, 5, 1, tzinfo=UTC)
        head = {"id": "child", "uid": "c0ffee", "format": FORMAT, "parent": "parent", "path": "research/1"}
        message = {"role": "user", "content": "Look it up"}
        drafts = [
            Draft(kind="session", data=msgspec.Raw(msgspec.json.encode(head)), at=at),
            Draft(
                kind="message", data=msgspec.Raw(msgspec.json.encode(message)), origin=("parent", 1), at=at
            ),
        ]
        store._engine.create("child", drafts)
        assert [child.id for child in store.list(parent="parent")] == ["child"]
        assert [head.id for head in store.list()] == ["parent"]
        child = store.head("child")
        assert (child.parent, child.path) == ("parent", "research/1")
        assert next(store.read("child").records(kinds="message")).origin == ("parent", 1)
    first = json.loads((tmp_path / "store/sessions/child.jsonl").read_bytes().splitlines()[0])
    assert (first["data"]["parent"], first["data"]["path"]) == ("parent", "research/1")


# -- stability --------------------------------------------------------------------------------------


def test_t1_a_log_of_an_older_version_of_the_library_reads_as_ever(tmp_path: Path) -> None:
    kept = Path(__file__).parent / "data/format-1.jsonl"
    hansard.open(tmp_path / "store").close()
    shutil.copy(kept, tmp_path / "store/sessions/sess_0123456789abcdef.jsonl")
    with hansard.open(tmp_path / "store", readonly=True) as store:
        view = store.read("sess_0123456789abcdef")
        assert len(list(view.records())) == len(kept.read_bytes().splitlines())
        assert view.history()
        assert not view.damage


def test_t2_a_log_says_its_format_and_no_program_s_version(recorded: Recorded) -> None:
    first = recorded.lines[0]
    assert first["kind"] == "session"
    assert type(first["data"]["format"]) is int
    assert hansard.__version__ not in first["data"].values()
    assert json.loads((recorded.root / "hansard.json").read_bytes())["format"] == first["data"]["format"]


def test_t3_the_format_that_it_says_is_the_one_that_it_has(recorded: Recorded, tmp_path: Path) -> None:
    assert recorded.lines[0]["data"]["format"] == FORMAT == 1
    read = re.search(r"^```python\n(import json, zlib\n.*?)^```$", PAGE, re.S | re.M)
    assert read is not None
    by_the_page: dict[str, Any] = {}
    exec(compile(read[1], "docs/format.md", "exec"), by_the_page)
    with hansard.open(recorded.root) as store:
        assert by_the_page["history"](recorded.log.read_bytes()) == store.read(recorded.id).history()
    data, state = b"", 0
    for line in recorded.lines:
        del line["sum"]
        if line["seq"] == 0:
            line["data"]["format"] = 2
        sealed, state = seal(json.dumps(line, separators=(",", ":")).encode(), state)
        data += sealed
    hansard.open(tmp_path / "store").close()
    (tmp_path / f"store/sessions/{recorded.id}.jsonl").write_bytes(data)
    with hansard.open(tmp_path / "store") as store, pytest.raises(NewerFormat):
        store.read(recorded.id)


# -- openness ---------------------------------------------------------------------------------------


def test_o1_a_text_editor_shows_what_was_said(recorded: Recorded) -> None:
    lines = recorded.log.read_bytes().decode("utf-8").splitlines()
    assert all(line.isprintable() for line in lines)
    for message in recorded.said:
        text = json.dumps(message.get("content") or message["reasoning_content"], ensure_ascii=False)
        assert any(text in line for line in lines)


def test_o1_jq_reads_it(recorded: Recorded) -> None:
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("jq is absent: that it reads a log was not tried")
    done = subprocess.run(
        [jq, "-c", 'select(.kind == "message").data', str(recorded.log)], capture_output=True, check=True
    )
    assert [json.loads(line) for line in done.stdout.decode().splitlines()] == recorded.said


def test_o2_one_file_has_it_all_as_it_happens_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "store/sessions/live.jsonl"
    with hansard.open(tmp_path / "store") as store, store.create("live", model="gpt-5") as session:
        agent = Agent(session)
        read = b""

        def grew() -> list[dict[str, Any]]:
            nonlocal read
            now = log.read_bytes()
            assert now.startswith(read)
            assert now.endswith(b"\n")
            added, read = now[len(read) :], now
            return [json.loads(line) for line in added.splitlines()]

        agent.turn(0)
        assert [line["data"] for line in grew() if line["kind"] == "message"] == agent.said
        session.append({"role": "user", "content": "soon"}, durable=False)
        assert [line["data"]["content"] for line in grew()] == ["soon"]
        agent.compact()
        session.rename("Live")
        session.rewind(3)
        assert [line["kind"] for line in grew()] == ["history", "meta", "history"]
        agent.turn(1)
        assert grew()


def test_o3_the_format_is_documented(recorded: Recorded) -> None:
    for line in recorded.lines:
        assert f"### `{line['kind']}`" in PAGE
        for member in line:
            assert f"| `{member}` |" in PAGE


def test_o4_a_session_stays_where_it_is(recorded: Recorded, tmp_path: Path) -> None:
    assert recorded.log.is_file()
    with hansard.open(tmp_path / "store") as store, store.create("here", workspace="/srv/a") as session:
        session.append({"role": "user", "content": "hi"})
        log = tmp_path / "store/sessions/here.jsonl"
        inode = log.stat().st_ino
        session.rename("Elsewhere")
        session.update(workspace="/srv/b", agent="other", status="done")
        session.clear()
        assert log.stat().st_ino == inode
        assert list(log.parent.iterdir()) == [log]


# -- tooling ----------------------------------------------------------------------------------------


def test_p1_a_naive_reader_gets_every_message_exactly_once(recorded: Recorded) -> None:
    assert [line["data"] for line in recorded.lines if line["kind"] == "message"] == recorded.said
    with hansard.open(recorded.root) as store:
        assert store.head(recorded.id).messages == len(recorded.said)


def test_p2_a_torn_last_write_costs_that_write_and_nothing_else(recorded: Recorded, tmp_path: Path) -> None:
    data = recorded.log.read_bytes()
    hansard.open(tmp_path / "store").close()
    log = tmp_path / f"store/sessions/{recorded.id}.jsonl"
    lines = recorded.lines
    start = data.rstrip(b"\n").rindex(b"\n") + 1
    for cut in (start, start + 1, (start + len(data)) // 2, len(data) - 2, len(data) - 1):
        log.write_bytes(data[:cut])
        for derived in (tmp_path / "store").glob("catalog*"):
            derived.unlink()
        with hansard.open(tmp_path / "store") as store:
            lost = len(lines) - len(list(store.read(recorded.id).records()))
            assert lost == (0 if cut == len(data) - 1 else 1)
            assert store.append(recorded.id, {"role": "user", "content": "on"}).seq == len(lines) - lost


def test_p3_title_folder_and_model_are_in_the_log_itself(recorded: Recorded, tmp_path: Path) -> None:
    first, *rest = recorded.lines
    assert (first["data"]["workspace"], first["data"]["model"]) == ("/srv/shop", MODELS[0])
    titles = [
        line["data"]["set"]["title"]
        for line in rest
        if line["kind"] == "meta" and "title" in line["data"]["set"]
    ]
    assert titles == ["A login page for the shop"]
    hansard.open(tmp_path / "store").close()
    shutil.copy(recorded.log, tmp_path / "store/sessions")
    with hansard.open(tmp_path / "store") as store, hansard.open(recorded.root) as original:
        assert store.head(recorded.id) == original.head(recorded.id)
        assert store.list()[0].title == "A login page for the shop"


# -- the table --------------------------------------------------------------------------------------

GATES = "S1 S2 S3 C1 C2 C3 C4 C5 C6 C7 T1 T2 T3 O1 O2 O3 O4 P1 P2 P3".split()


def test_the_page_answers_every_gate_and_each_has_a_test() -> None:
    table = PAGE.partition("## Against an outside yardstick")[2]
    assert re.findall(r"^\| ([SCTOP]\d) \|", table, re.M) == GATES
    tests = [name for name in globals() if name.startswith("test_")]
    for gate in GATES:
        assert any(name.startswith(f"test_{gate.lower()}_") for name in tests), gate


def test_the_figures_in_the_table_are_measured(recorded: Recorded, tmp_path: Path) -> None:
    table = PAGE.partition("## Against an outside yardstick")[2]

    def told(gate: str, pattern: str) -> int:
        row = next(line for line in table.splitlines() if line.startswith(f"| {gate} |"))
        found = re.search(pattern, row.replace(",", ""))
        assert found is not None, row
        return int(found[1])

    _, log = grown_by_a_one_line_task(tmp_path / "store")
    assert abs(told("S1", r"(\d+) bytes") - log) <= 40  # ids and times differ in length by some bytes
    content = sum(len(text.encode()) for line in recorded.lines for text in texts(line["data"]))
    assert abs(told("S2", r"\| (\d+) % of") - content * 100 // recorded.log.stat().st_size) <= 1
    largest = max(len(bookkeeping(line)) for line in recorded.lines if line["kind"] != "message")
    assert abs(told("S3", r"(\d+) bytes") - largest) <= 40
