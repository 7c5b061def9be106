"""What the commands print with --json is what docs/schemas/ says, and nothing beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hansard.cli import COMMANDS, screen

DOCS = Path(__file__).parent.parent.parent / "docs"

EXAMPLES = {
    "": [[]],
    "ls": [["ls"], ["ls", "--limit", "1"], ["ls", "--agent", "nobody"]],
    "show": [["show", "a"], ["show", "a", "--live"], ["show", "a", "--records"]],
    "search": [["search", "one"], ["search", "nothing"], ["search", "two", "--limit", "1"]],
    "tail": [["tail", "a"], ["tail", "b", "-n", "100"]],
    "new": [["new"], ["new", "--id", "n", "--title", "Title", "--meta", "a=1"]],
    "append": [["append", "a", "text"], ["append", "a", "text", "--id", "r1"]],
    "rename": [["rename", "a", "title"]],
    "label": [["label", "a", "+x"], ["label", "a"]],
    "pin": [["pin", "a"]],
    "fork": [["fork", "a"]],
    "rm": [["rm", "a", "b", "--yes"]],
    "cleanup": [["cleanup", "--keep-last", "0", "--dry-run"], ["cleanup", "--keep-last", "0", "--yes"]],
    "export": [["export", "a"], ["export", "a", "--to", "out.md"]],
    "locks": [["locks"]],
    "doctor": [["doctor"]],
    "vacuum": [["vacuum", "a"], ["vacuum", "b", "--drop-history", "--yes"]],
    "demo": [["demo"]],
    "version": [["version"]],
}


def schema(command: str) -> dict[str, Any]:
    found = json.loads((DOCS / "schemas" / f"{command or 'hansard'}.json").read_text())
    assert isinstance(found, dict)
    return found


def closed(value: Any) -> Any:
    """The same, with objects that have nothing that is not named."""
    if isinstance(value, list):
        return [closed(item) for item in value]
    if not isinstance(value, dict):
        return value
    more = {"additionalProperties": False} if isinstance(value.get("properties"), dict) else {}
    return {name: closed(item) for name, item in value.items()} | more


@pytest.fixture
def full(begin, store, tmp_path, monkeypatch):
    """A store with everything that an output can have: usage by model, forks, documents, locks, findings."""
    monkeypatch.chdir(tmp_path)
    begin("one", {"role": "assistant", "content": "two"}, id="a", labels=["x"], meta={"n": 2**70}, agent="c")
    with store.open("a") as session:
        usage = {"input_tokens": 5, "output_tokens": 7, "cost": 0.5}
        session.append({"role": "assistant", "content": "x"}, model="gpt-5", usage=usage, id="r0")
        session.add_usage({"input_tokens": 1, "breakdown": {"system": 3}})
        session.event("app.thing", {"x": 1}, event_id="e")
    with store.fork("a", id="b") as session:
        session.checkpoint([{"role": "user", "content": "So far."}], token_count=3, summary="So")
        session.update(status="done")
    (tmp_path / "store" / "mine.txt").write_text("mine")
    with store.create("open", eager=True):
        yield


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_what_it_prints_is_what_its_schema_says(command, run, full):
    whole = schema(command)
    Draft202012Validator.check_schema(whole)
    strict = Draft202012Validator(closed(whole))
    for args in EXAMPLES[command]:
        done = run(*args, "--json")
        assert done.exit_code == 0, done.output
        texts = done.stdout.splitlines() if command == "tail" else [done.stdout]
        assert texts
        for text in texts:
            value = json.loads(text)
            Draft202012Validator(whole).validate(value)
            strict.validate(value)


def test_a_head_has_the_fields_that_the_schema_names():
    assert list(schema("ls")["$defs"]["Head"]["required"]) == sorted(screen.HEAD)


def test_an_output_that_lacks_something_does_not_pass(printed, full):
    found = printed("ls")
    del found["sessions"][0]["title"]
    assert not Draft202012Validator(schema("ls")).is_valid(found)
    found["sessions"][0]["title"] = 5
    assert not Draft202012Validator(schema("ls")).is_valid(found)
