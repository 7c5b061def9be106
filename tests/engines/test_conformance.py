"""The contract, run against every engine of ours. The tests themselves are in hansard.testing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard.engines.files import Files
from hansard.engines.memory import Memory
from hansard.testing import World, conformance

globals().update(conformance())


@pytest.fixture(params=[Memory, Files], ids=["memory", "files"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with World(request.param, str(tmp_path / "store")) as world:
        yield world
