"""The process that `hansard demo` kills: it records a session, and stops in the middle of a write.

Run as `python -m hansard.cli.recorder STORE`. It tells what it does on its output, a JSON line each, and
lives as long as its input is open.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import hansard

SAID: list[dict[str, Any]] = [
    {"role": "user", "content": "Add a login page to the shop."},
    {
        "role": "assistant",
        "content": "I look at the routes first.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path": "shop/urls.py"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": 'urlpatterns = [path("", views.home)]\n'},
    {"role": "assistant", "content": "There is no login yet. I add one with a form and a test."},
    {"role": "user", "content": "Good. Explain every step, please."},
]
"""What is acknowledged."""

LONG = {
    "role": "assistant",
    "content": "".join(f"Step {n}: a line of a long answer that is never finished.\n" for n in range(1, 801)),
}
"""What is being written when the process dies."""


def tell(event: str, **more: Any) -> None:
    """One line to the process that started this one."""
    print(json.dumps({"event": event, **more}), flush=True)


def stop_halfway() -> None:
    """From here on a long write puts half of its bytes into the file, and never comes back."""
    write = os.write

    def half(fd: int, data: Any) -> int:
        if len(data) < len(LONG["content"]):
            return write(fd, data)
        written = write(fd, data[: len(data) // 2])
        tell("halfway", written=written, of=len(data))
        sys.stdin.read()  # until the end
        os._exit(1)  # only if nobody killed it: whoever started it is gone

    os.write = half


def main(url: str) -> None:
    """Records, and waits for its end."""
    with hansard.open(url) as store, store.create(agent="demo", model="demo-1", activate=False) as session:
        tell("opened", session=session.id)
        for payload in SAID:
            usage = {"input_tokens": 640, "output_tokens": 48} if payload["role"] == "assistant" else None
            tell("safe", seq=session.append(payload, usage=usage).seq, payload=payload)
        stop_halfway()
        session.append(LONG)
        tell("finished")


if __name__ == "__main__":
    main(sys.argv[1])
