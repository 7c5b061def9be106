#!/usr/bin/env python3
"""Write docs/commands.md from the help texts of the command, and docs/schemas/ from what it prints.

scripts/commands.py           writes the page, and a JSON Schema for each command
scripts/commands.py --check   fails where one of them is stale
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from hansard.cli import COMMANDS, main
from hansard.cli.outputs import OUTPUTS

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "commands.md"
SCHEMAS = DOCS / "schemas"

DRAFT = "https://json-schema.org/draft/2020-12/schema"

COMMON = ("--store", "--json", "--help", "-h")
"""Options of every command, which the introduction tells of."""

INTRODUCTION = """\
# The commands

Every command of `hansard`, from its help text. How they are used together is in
[the command](guide/command.md). All of them take `--store`, `--json` and `--help`. What each prints with
`--json` is described by a JSON Schema in [schemas/](schemas/).

| exit code | |
|---|---|
| 0 | done |
| 1 | refused, or not found |
| 2 | wrong usage |
| 3 | busy: somebody else has the session open |
| 4 | damaged: something that was written cannot be read, or not be trusted |
| 130 | interrupted |

This page is written by `make docs`.
"""


def schema(command: str, output: Any) -> str:
    """The schema of what a command prints, in a file of its own that needs no other."""
    made = folded(msgspec.json.schema(output))
    parts = made["$defs"]
    name = made["$ref"].rpartition("/")[2]
    top = parts.pop(name)
    title = f"hansard {command} --json" if command else "hansard --json"
    whole = {"$schema": DRAFT, **top, "title": title}
    if parts:
        whole["$defs"] = dict(sorted(parts.items()))
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def folded(value: Any) -> Any:
    """The same, descriptions on one line."""
    if isinstance(value, dict):
        return {
            name: " ".join(item.split()) if name == "description" and isinstance(item, str) else folded(item)
            for name, item in value.items()
        }
    return [folded(item) for item in value] if isinstance(value, list) else value


def paragraphs(text: str) -> Iterator[str]:
    """A help text: its paragraphs, each on one line; what stands below a \\b as it is."""
    for part in text.strip().split("\n\n"):
        if part.startswith("\b\n"):
            title, _, examples = part.removeprefix("\b\n").partition("\n")
            if examples.startswith("  "):
                yield f"{title}\n\n```sh\n{_outdented(examples)}\n```"
            else:
                yield "\n".join(part.removeprefix("\b\n").splitlines())
        else:
            yield " ".join(part.split())


def _outdented(text: str) -> str:
    return "\n".join(line.removeprefix("  ") for line in text.splitlines())


def section(name: str, command: click.Command) -> Iterator[str]:
    with click.Context(command, info_name=f"hansard {name}".strip(), max_content_width=100) as ctx:
        yield f"## {ctx.info_name}"
        yield f"```text\n{' '.join([str(ctx.info_name), *command.collect_usage_pieces(ctx)])}\n```"
        yield from paragraphs(command.help or "")
        told = [
            record
            for param in command.get_params(ctx)
            if isinstance(param, click.Option)
            and (not name or param.opts[0] not in COMMON)
            and (record := param.get_help_record(ctx))
        ]
        if told:
            yield "\n".join(["| option | |", "|---|---|", *(row(left, right) for left, right in told)])
    yield from paragraphs(command.epilog or "")
    yield f"With `--json`: [the schema](schemas/{file_name(name)})."


def row(option: str, told: str) -> str:
    left, right = (" ".join(text.split()).replace("|", "\\|") for text in (option, told))
    return f"| `{left}` | {right} |"


def file_name(command: str) -> str:
    return f"{command or 'hansard'}.json"


def page() -> str:
    parts = [INTRODUCTION.strip()]
    with click.Context(main, info_name="hansard") as ctx:
        parts += section("", main)
        for name in COMMANDS:
            command = main.get_command(ctx, name)
            assert command is not None
            parts += section(name, command)
    return "\n\n".join(parts) + "\n"


def files() -> dict[Path, str]:
    """Everything that is to stand in docs/."""
    missing = {"", *COMMANDS} ^ set(OUTPUTS)
    if missing:
        raise SystemExit(f"hansard.cli.outputs and the commands differ in {', '.join(sorted(missing))}")
    return {PAGE: page()} | {
        SCHEMAS / file_name(command): schema(command, output) for command, output in OUTPUTS.items()
    }


def run() -> None:
    parser = argparse.ArgumentParser(description="Write docs/commands.md and docs/schemas/, or check them.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something is stale")
    check = parser.parse_args().check
    wanted = files()
    found = {
        path: path.read_text(encoding="utf-8") for path in [PAGE, *SCHEMAS.glob("*.json")] if path.exists()
    }
    stale = sorted(
        path.relative_to(DOCS.parent).as_posix() for path in wanted if found.get(path) != wanted[path]
    )
    stale += sorted(path.relative_to(DOCS.parent).as_posix() for path in found.keys() - wanted.keys())
    if check:
        if stale:
            raise SystemExit(f"stale: {', '.join(stale)}; run `make docs`")
        return
    SCHEMAS.mkdir(exist_ok=True)
    for path in found.keys() - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    run()
