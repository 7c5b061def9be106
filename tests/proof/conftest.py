"""What the proofs share: a place for the figures that docs/reliability.md is made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIGURES = Path(__file__).parents[2] / "build" / "figures"
"""Where a proof leaves what it counted, one file each; `make docs` makes docs/reliability.md of them."""


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keeps what a proof has counted: `figures("storm", rounds=1000, lost=0)`."""

    def tell(proof: str, **counted: Any) -> None:
        FIGURES.mkdir(parents=True, exist_ok=True)
        told = {"proof": proof, "full": bool(request.config.getoption("--full")), "figures": counted}
        (FIGURES / f"{proof}.json").write_text(json.dumps(told, indent=1) + "\n")

    return tell
