"""The power is cut before every step that reaches the disk, and whatever was not synced by then is lost, kept
or torn, each piece by itself. What was acknowledged is there, and nothing is half done."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.proof.power import Story, recovered
from tests.proof.simulated import Machine
from tests.proof.workloads import WORKLOADS, Run

CUTS = 450
"""How many different platters of one workload are looked at, where not all are wanted."""


@pytest.mark.rule("C1", "W2", "W3", "W4", "C3")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_a_power_cut_at_any_step_takes_nothing_that_was_acknowledged(
    workload: Callable[[Run], None], request: pytest.FixtureRequest, figures: Callable[..., None]
) -> None:
    """Every step of the disk, every subset of what was not synced; by default a part of them by lot."""
    full = request.config.getoption("--full")
    story = Story()
    workload(story)
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    cuts = list(story.machine.cuts(dice=dice, subsets=256 if full else 12, tears=None if full else 2))
    cuts = [cut for cut in cuts if cut.at not in story.steady]
    possible = len(cuts)
    if not full:
        # every step once at least, then by lot
        first = {cut.at: cut for cut in reversed(cuts)}
        rest = [cut for cut in cuts if first[cut.at] is not cut]
        dice.shuffle(rest)
        cuts = [*first.values(), *rest]
    seen: set[object] = set()
    looked = 0
    for cut in cuts:
        image = story.machine.after(cut)
        acknowledged = max(i for i, ack in enumerate(story.acks) if ack.at <= cut.at)
        key = (image.tree(), acknowledged)
        if key in seen:
            continue
        seen.add(key)
        looked += 1
        machine = Machine(image, boot="boot-2")
        wrong = recovered(story, machine, cut.at, repair=dice.random() < (0.5 if full else 0.1))
        assert not wrong, f"seed {seed}, {cut}:\n" + "\n".join(wrong)
        if not full and looked >= CUTS:
            break
    figures(
        f"power-{workload.__name__}",
        steps=len(story.machine.journal),
        calls=len(story.machine.calls),
        cuts=possible,
        platters=looked,
    )
