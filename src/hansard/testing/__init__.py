"""The contract of an engine, as tests that anybody can run against an engine of their own.

Each test is a plain pytest function that takes a fixture named `world`: the engine under test, at a place of
its own. A test module with these lines runs them all:

    import pytest
    from hansard.testing import World, conformance
    from mine import MyEngine

    globals().update(conformance())

    @pytest.fixture
    def world(tmp_path):
        with World(MyEngine, str(tmp_path / "store")) as world:
            yield world

`MyEngine(place)` opens the engine at a place that is there only for this test; called twice with the same
place, it gives two engines over the same sessions, if they outlive an engine (the capability `survives`).
With `shared` it is also opened in other processes, so it has to be importable there. A test that needs what
an engine does not claim is skipped, and says what it needs.

Register the marker `rule(id, ...)`: it names the rules of docs/contract.md that a test proves.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from hansard.testing.world import Elsewhere, World, hear, say

__all__ = ["Elsewhere", "World", "conformance", "hear", "say"]


def conformance() -> dict[str, Callable[..., Any]]:
    """Every test of the suite by its name, to be put into the namespace of a test module."""
    names = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    pytest.register_assert_rewrite(*(name for name in names if name not in sys.modules))
    found: dict[str, Callable[..., Any]] = {}
    for name in names:
        for test, function in vars(import_module(name)).items():
            if test.startswith("test_") and function.__module__ == name:
                if test in found:
                    raise ValueError(f"{test} is written in {name} and in {found[test].__module__}")
                found[test] = function
    return found
