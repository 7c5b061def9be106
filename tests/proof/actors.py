"""What the processes of the proofs do. They say what they are about to do, and what was acknowledged."""

from __future__ import annotations

import random
from typing import Any

import hansard
from tests.proof.nursery import Link

# -- what is said -----------------------------------------------------------------------------------

SIZES = (10, 200, 4_000, 60_000, 600_000, 1_500_000)
"""Characters of a message. A kill hardly ever meets a small write in its middle."""


def message(n: int) -> dict[str, Any]:
    """The message number n: whoever finds it can tell whether all of it is there."""
    rng = random.Random(n)
    size = int(rng.choice(SIZES) * rng.uniform(0.5, 1.5))
    unit = f'{n} "über" \\ \n' if size < 1000 else f"{n} and so on. "
    return {"role": "user", "content": unit * (size // len(unit) + 1), "n": n}


def numbers(history: Any) -> list[int]:
    """The messages of a history, each found to be whole."""
    for payload in history:
        assert payload == message(payload["n"])
    return [payload["n"] for payload in history]


# -- one writer that is going to be killed ----------------------------------------------------------

WORKS = {
    "appends": "append",
    "extends": "extend",
    "checkpoints": "append checkpoint truncate",
    "vacuums": "append extend checkpoint vacuum",
    "forks": "append fork append-to-fork delete",
    "a mixture": "append extend checkpoint truncate vacuum fork append-to-fork delete",
}


def write(link: Link, path: str, work: str, seed: int, first: int, forks: list[str]) -> None:
    """Goes on for ever: says what it is about to do, does it, says that it is done."""
    rng = random.Random(seed)
    fresh = iter(range(first, first + 1_000_000))
    with hansard.open(path) as store:
        # who takes records out must not be kept out by a handle of his own
        main = store.open(
            "main", exclusive="vacuum" not in WORKS[work] and rng.random() < 0.5, activate=False
        )
        while True:
            op: dict[str, Any] = {"op": rng.choice(WORKS[work].split()), "session": "main"}
            what = op["op"]
            if what in ("append-to-fork", "delete"):
                if not forks:
                    continue
                op["session"] = rng.choice(forks)
            if what in ("append", "extend", "append-to-fork", "checkpoint"):
                several = rng.randrange(2, 7) if what == "extend" else 1
                op["numbers"] = [next(fresh) for _ in range(several)]
            if what == "truncate":
                op["keep"] = rng.randrange(1, 6)
            if what == "fork":
                op["session"] = f"fork-{next(fresh)}"
            durable = rng.random() < 0.4
            said = [message(n) for n in op.get("numbers", ())]
            link.say(op)
            done: Any = None
            if what == "append":
                done = [main.append(*said, durable=durable).seq]
            elif what == "append-to-fork":
                done = [store.append(op["session"], *said, durable=durable).seq]
            elif what == "extend":
                done = [record.seq for record in main.extend(said, durable=durable)]
            elif what == "checkpoint":
                main.history(limit=1)
                main.checkpoint(said)
            elif what == "truncate":
                main.history(limit=1)
                main.truncate(op["keep"], pairs=False)
            elif what == "vacuum":
                store.vacuum("main", drop_history=True)
            elif what == "fork":
                store.fork("main", id=op["session"]).close()
                forks.append(op["session"])
            elif what == "delete":
                store.delete(op["session"])
                forks.remove(op["session"])
            link.say({"done": done})
