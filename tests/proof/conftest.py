"""What the proofs share: a place for the figures that docs/reliability.md is made of."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIGURES_VARIABLE = "HANSARD_FIGURES"
"""The environment variable that names another place for figures: of what is broken on purpose none count."""

FIGURES = Path(os.environ.get(FIGURES_VARIABLE) or Path(__file__).parents[2] / "build" / "figures")
"""Where a proof leaves what it counted, one file each; `make docs` makes docs/reliability.md of them."""


def keep(proof: str, *, full: bool = False, **counted: Any) -> None:
    """Keeps what a proof has counted."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    told = {"proof": proof, "full": full, "figures": counted}
    (FIGURES / f"{proof}.json").write_text(json.dumps(told, indent=1) + "\n")


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keeps what a proof has counted: `figures("storm", rounds=1000, lost=0)`."""

    def tell(proof: str, **counted: Any) -> None:
        keep(proof, full=bool(request.config.getoption("--full")), **counted)

    return tell
