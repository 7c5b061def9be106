"""I1 to I5: what an id is, what a reference, a prefix and a name mean."""

from __future__ import annotations

import pytest

from hansard.testing.world import World


def _histories(store, id):
    return [list(store.read(id).history())]


@pytest.mark.rule("I2")
def test_two_ids_that_differ_only_in_case_are_different_sessions(world: World) -> None:
    store = world.store()
    for id in ("Task", "task"):
        store.append(id, {"role": "user", "content": id}, create=True)
    assert world.elsewhere(_histories, "task") == [[{"role": "user", "content": "task"}]]
