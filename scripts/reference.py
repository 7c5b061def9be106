#!/usr/bin/env python3
"""Write docs/reference.md: every public class and function with its signature and docstring.

scripts/reference.py           writes the page
scripts/reference.py --check   fails where the page is stale, or something public has no docstring
"""

from __future__ import annotations

import argparse
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import hansard
from hansard import errors
from hansard.best_effort import BestEffortDocuments, BestEffortSession, BestEffortStore
from hansard.blobs import Blobs
from hansard.documents import Document, Documents
from hansard.names import Names
from hansard.state import State

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"

INTRODUCTION = """\
# Reference

Every name that `import hansard` gives, from the docstrings. What each call promises, and what holds after a
crash or beside other processes, is in [the contract](contract.md); `hansard.aio` has the same names, awaited.

This page is written by `make docs`.
"""

FUNCTIONS = [hansard.open, hansard.default_path, hansard.workspace]
CLASSES: list[type] = [
    hansard.Store,
    hansard.View,
    hansard.Session,
    hansard.Follower,
    hansard.Cursor,
    Names,
    State,
    Documents,
    Document,
    Blobs,
    hansard.Blob,
    BestEffortStore,
    BestEffortSession,
    BestEffortDocuments,
    hansard.Dropped,
    hansard.Head,
    hansard.Record,
    hansard.History,
    hansard.TurnView,
    hansard.TurnItem,
    hansard.Page,
    hansard.Hits,
    hansard.Hit,
    hansard.Usage,
    hansard.UsageLine,
    hansard.Holder,
    hansard.Finding,
    hansard.Report,
    hansard.Damage,
    hansard.Cleanup,
    hansard.Vacuumed,
]


def signature(name: str, function: Any, *, method: bool = False) -> str:
    """A signature as it is written, without the noise of where a type lives."""
    found = inspect.signature(function)
    parameters = list(found.parameters.values())[1 if method else 0 :]
    text = str(found.replace(parameters=parameters))
    text = re.sub(r"<object object at 0x[0-9a-f]+>|UNSET", "…", text)
    text = re.sub(r"\b(?:datetime|typing|collections\.abc|hansard(?:\.\w+)*)\.", "", text)
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return name + text.replace("_List[", "list[")


def paragraph(thing: Any, what: str) -> str:
    found = inspect.getdoc(thing)
    if not found:
        raise SystemExit(f"{what} is public and has no docstring")
    return found.partition("\n>>>")[0].strip()


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class itself has that is public, in the order in which it is written."""
    for name, member in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member


def example(thing: Any) -> list[str]:
    _, found, rest = (inspect.getdoc(thing) or "").partition("\n>>>")
    return ["```pycon", f">>>{rest}".rstrip(), "```", ""] if found else []


def of_class(kind: type) -> list[str]:
    bases = [base.__name__ for base in kind.__bases__ if base.__module__.startswith("hansard")]
    title = kind.__name__ + (f"({', '.join(bases)})" if bases else "")
    lines = [f"## {title}", "", paragraph(kind, kind.__name__), "", *example(kind)]
    if issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        fields = ", ".join(f"`{field}`" for field in kind.__struct_fields__ if field in hints)
        lines += [f"Fields: {fields}.", ""]
    for name, member in members(kind):
        what = f"{kind.__name__}.{name}"
        if isinstance(member, property):
            lines += [f"**`{name}`** — {paragraph(member.fget, what)}", ""]
        else:
            lines += [f"**`{signature(name, member, method=True)}`**", "", paragraph(member, what), ""]
    return lines


def page() -> str:
    lines = [INTRODUCTION, "## Functions", ""]
    for function in FUNCTIONS:
        lines += [f"**`{signature('hansard.' + function.__name__, function)}`**", ""]
        lines += [paragraph(function, function.__name__), "", *example(function)]
    for kind in CLASSES:
        lines += of_class(kind)
    lines += ["## Errors", "", "| | is also | |", "|---|---|---|"]
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.HansardError):
            also = ", ".join(
                f"`{base.__name__}`" for base in error.__bases__ if base.__module__ == "builtins"
            )
            said = " ".join(paragraph(error, name).split())
            lines.append(f"| `{name}` | {also} | {said} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/reference.md, or check it.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page is stale")
    wanted = page()
    if not parser.parse_args().check:
        PAGE.write_text(wanted, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        raise SystemExit("docs/reference.md is stale: run `make docs`")


if __name__ == "__main__":
    main()
