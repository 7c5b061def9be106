"""What the whole thing is for, in a few seconds: `demo`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import click

from hansard import messages
from hansard.cli import screen, streams
from hansard.cli.options import Asked, asks, open_store
from hansard.cli.screen import line, paint, plural, safe, size

if TYPE_CHECKING:
    from hansard import Finding, Store

FAILED = 4

AFTER = {"role": "user", "content": "The machine went down. Please go on where you were."}
"""What is said once the session is resumed."""


class Death(NamedTuple):
    """What the recorder had told when it was killed, and how far it had come with the last write."""

    pid: int
    session: str
    safe: list[Any]  # the messages of which it was told that they are on disk
    written: int
    of: int


@click.command(
    epilog="""\b
Examples:
  hansard demo
  hansard demo --store ~/try-hansard
"""
)
@asks
def demo(asked: Asked) -> None:
    """Kill a process in the middle of a write, and see what is left.

    Another process records a session and is killed with SIGKILL while half of a message is on disk. Then the
    session is resumed. It is kept in --store or $HANSARD_STORE, else in a new folder that is named.
    """
    chosen = asked.store or os.environ.get("HANSARD_STORE", "").strip()
    where = Asked(chosen or tempfile.mkdtemp(prefix="hansard-demo-"), asked.json)
    with open_store(where, create=True) as store:
        if not store.url.startswith("file:"):
            raise click.BadParameter(
                "the demonstration needs a store in files: a folder", param_hint="--store"
            )
        folder = unquote(store.url.removeprefix("file:"))
        _perform(store, folder, kept=bool(chosen), asked=asked)


class Voice(NamedTuple):
    """Tells a person what happens; says nothing where a program is listening."""

    silent: bool

    def say(self, text: str = "", style: str = "", indent: str = "") -> None:
        """Words, broken where the terminal ends."""
        room = screen.width()
        for part in screen.wrap(text, room and room - len(indent)):
            self.line(indent + paint(part, style))

    def line(self, text: str) -> None:
        """Something to copy, or that fits."""
        if not self.silent:
            click.echo(text)


def _perform(store: Store, folder: str, *, kept: bool, asked: Asked) -> None:
    voice = Voice(silent=asked.json)
    step, inside = "strong", "   "
    voice.say(f"The store is {safe(folder)}")
    voice.say()
    voice.say("1. Another process records a session. What is shown here is on disk:", step)
    death = _kill_a_recorder(folder, voice)
    voice.say()
    voice.say(
        f"2. It is killed (SIGKILL, process {death.pid}) in the middle of writing the next message.", step
    )
    torn = _finding(store, "torn", death.session)
    voice.say(
        f"{size(death.written)} of {size(death.of)} are in the log, a line without an end:", indent=inside
    )
    voice.line(inside + safe(torn.place if torn else folder))
    voice.say()
    voice.say("3. This process resumes the session; nobody holds it any more.", step)
    with store.open(death.session, activate=False) as session:
        found = list(session.history())
        same = found == death.safe
        voice.say(
            f"{plural(len(death.safe), 'message')} had been acknowledged, {len(found):,} in the history: "
            + ("all there, none half." if same else "NOT the same."),
            "good" if same else "bad",
            inside,
        )
        voice.say()
        voice.say("4. It goes on. The half line is taken out of the log, and kept:", step)
        session.append(AFTER)
        now = list(session.history())
    aside = _finding(store, "aside", death.session)
    voice.line(inside + safe(aside.place if aside else "nowhere"))
    _show(AFTER, voice)
    voice.say()
    good = same and now == [*death.safe, AFTER] and torn is not None and aside is not None
    if good:
        voice.say("Nothing that was acknowledged is lost, and nothing half is shown.", "good")
    else:
        streams.told(paint("hansard: ", "bad") + "that is not as it should be; see `hansard doctor`")
    option = "" if kept and asked.store is None else f" --store {screen.word(folder)}"
    voice.say()
    voice.say("Look for yourself:")
    command = "hansard" if shutil.which("hansard") else screen.word(sys.argv[0])
    voice.line(f"  {command} show {death.session}{option}")
    voice.line(f"  {command} doctor{option}")
    voice.line(f"  tail -n 2 {screen.word(f'{folder}/sessions/{death.session}.jsonl')}")
    if not kept:
        voice.say("It stays until you remove it:")
        voice.line(f"  rm -r {screen.word(folder)}")
    if asked.json:
        screen.print_json(
            {
                "store": store.url,
                "session": death.session,
                "killed": {"pid": death.pid, "signal": "SIGKILL"},
                "write": {"bytes": death.of, "written": death.written},
                "acknowledged": len(death.safe),
                "found": len(found),
                "torn": None if torn is None else torn.place,
                "aside": None if aside is None else aside.place,
                "ok": good,
            }
        )
    if not good:
        click.get_current_context().exit(FAILED)


def _kill_a_recorder(folder: str, voice: Voice) -> Death:
    """Starts the recorder, listens until it stands in the middle of a write, and kills it there."""
    with _recorder(folder) as child:
        session, safe, written, of = "", [], 0, 0
        assert child.stdout is not None
        for told in map(json.loads, child.stdout):
            match told["event"]:
                case "opened":
                    session = told["session"]
                case "safe":
                    safe.append(told["payload"])
                    _show(told["payload"], voice)
                case "halfway":
                    written, of = told["written"], told["of"]
                    child.send_signal(signal.SIGKILL)
                    break
        code = child.wait()
        if code != -signal.SIGKILL:
            reason = child.stderr.read().strip().rpartition("\n")[2] if child.stderr is not None else ""
            raise click.ClickException(
                screen.line(f"the recording process ended by itself ({code}): {reason}")
            )
        return Death(child.pid, session, safe, written, of)


@contextmanager
def _recorder(folder: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "hansard.cli.recorder", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    with child:
        try:
            yield child
        finally:
            child.kill()


def _finding(store: Store, kind: str, session: str) -> Finding | None:
    """The newest of what `doctor` says of this kind about this session."""
    found = [f for f in store.doctor().findings if f.kind == kind and session in (f.session or f.place)]
    return max(found, key=lambda finding: finding.place, default=None)


def _show(payload: Any, voice: Voice) -> None:
    """One message on one line."""
    message = messages.read(payload)
    said = " ".join(
        {"call": f"→ {part.name} {part.text}", "result": f"← {part.text}"}.get(part.kind, part.text)
        for part in message.parts
    )
    room = (screen.width() or 100) - 14
    style = message.role if message.role in ("user", "assistant") else "tool"
    voice.line(f"   {paint(message.role.ljust(9), style)}  {screen.fit(line(said), room)}")
