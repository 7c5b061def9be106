#!/usr/bin/env python3
"""Write docs/contract.md: every rule of the contract, and the tests that prove it.

scripts/contract.py           writes the page
scripts/contract.py --check   fails where a built rule has no test, a marker names no rule,
                              or the page is stale

The rules are in docs/rules.toml; a test names those that it proves with `@pytest.mark.rule("W3", "H5")`.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "docs" / "rules.toml"
PAGE = ROOT / "docs" / "contract.md"

INTRODUCTION = """\
# The contract

What every operation does, on every engine: one suite checks all of it, and where an engine cannot, it says
so by a capability. Below each rule stand the tests that prove it.

This page is written by `make docs`, from `docs/rules.toml` and the `rule` markers of the tests.
"""


@dataclass(frozen=True)
class Rule:
    """One promise; `later` is the part of a built one that is not there yet."""

    id: str
    section: str
    status: str
    text: str
    later: str = ""

    def __post_init__(self) -> None:
        if self.status not in ("built", "later"):
            raise SystemExit(f'docs/rules.toml: {self.id} has status "{self.status}", not "built" or "later"')


@dataclass(frozen=True, order=True)
class Proof:
    """One test, however many engines and parameters it runs with."""

    file: str
    sentence: str


Proofs = Mapping[str, Set[Proof]]


def read_rules() -> dict[str, Rule]:
    rules = [Rule(**entry) for entry in tomllib.loads(RULES.read_text(encoding="utf-8"))["rule"]]
    by_id = {rule.id: rule for rule in rules}
    if len(by_id) != len(rules):
        raise SystemExit("docs/rules.toml: two rules have the same id")
    return by_id


class Collected:
    """A pytest plugin that notes which test names which rule, and runs none."""

    def __init__(self) -> None:
        self.proofs: dict[str, set[Proof]] = defaultdict(set)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for marker in item.iter_markers("rule"):
                for rule in marker.args:
                    self.proofs[rule].add(proof_of(item))


def proof_of(item: pytest.Item) -> Proof:
    """A test is named after where it is written: a suite's once, not once for each engine that runs it."""
    function = inspect.unwrap(getattr(item, "function", None) or item.runtest)
    module = sys.modules.get(function.__module__)
    written = Path(getattr(module, "__file__", None) or item.path)
    ours = any(written.is_relative_to(ROOT / room) for room in ("src", "tests"))
    if not ours:  # a state machine of hypothesis, whose test is the class
        return Proof(place(item.path), sentence_of(item.parent.name if item.parent else item.name))
    return Proof(place(written), sentence_of(function.__name__))


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def sentence_of(name: str) -> str:
    if name.startswith("Test"):
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removeprefix("Test")).lower()
    return name.removeprefix("test_").replace("_", " ")


def collect() -> Proofs:
    os.chdir(ROOT)
    collected, output = Collected(), io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider"], plugins=[collected])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"{output.getvalue()}\nThe tests cannot be collected, so no rule can be checked.")
    return collected.proofs


def page(rules: Iterable[Rule], proofs: Proofs) -> str:
    parts = [INTRODUCTION]
    for section, members in groupby(rules, key=lambda rule: rule.section):
        parts.append(f"## {section}\n")
        parts += [entry(rule, proofs.get(rule.id, set())) for rule in members]
    return "\n".join(parts)


def entry(rule: Rule, proofs: Set[Proof]) -> str:
    lines = [f"### {rule.id}", "", rule.text.strip(), ""]
    if rule.later:
        lines += [f"*Not yet built: {rule.later}.*", ""]
    if rule.status == "later":
        lines += ["*Not yet built.*", ""]
    elif not proofs:
        lines += ["*No test proves it yet.*", ""]
    tests = [f"- {proof.sentence} ([{proof.file}](../{proof.file}))" for proof in sorted(proofs)]
    return "\n".join([*lines, *tests, ""] if tests else lines)


def problems(rules: Mapping[str, Rule], proofs: Proofs) -> list[str]:
    unproved = [
        f"{rule.id} is built, but no test proves it"
        for rule in rules.values()
        if rule.status == "built" and not proofs.get(rule.id)
    ]
    if unproved:
        unproved.append(
            '(mark a test with @pytest.mark.rule("…"), or say status = "later" in docs/rules.toml)'
        )
    unknown = [
        f'{proof.file}: "{proof.sentence}" names the rule {name}, which is not in docs/rules.toml'
        for name in proofs
        if name not in rules
        for proof in sorted(proofs[name])
    ]
    return unproved + unknown


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/contract.md, or check it.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something is amiss")
    check = parser.parse_args().check

    rules, proofs = read_rules(), collect()
    wanted = page(rules.values(), proofs)
    if not check:
        PAGE.write_text(wanted, encoding="utf-8")
        return
    found = problems(rules, proofs)
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        found.append("docs/contract.md is stale: run `make docs`")
    if found:
        raise SystemExit("\n  ".join(["The contract and its tests disagree:", *found]))


if __name__ == "__main__":
    main()
