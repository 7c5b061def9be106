"""A session as a document: `export`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from hansard import formats
from hansard.cli import screen, streams
from hansard.cli.options import Asked, Refused, asks, by_id, end_with, meant, open_store, sessions
from hansard.cli.progress import Progress
from hansard.cli.screen import safe

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hansard import Record, View
    from hansard.cli import outputs


def known(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The formats there are, for the shell."""
    from click.shell_completion import CompletionItem

    with suppress(Exception):
        return [CompletionItem(name) for name in formats.names() if name.startswith(incomplete)]
    return []


@click.command(
    epilog="""\b
Examples:
  hansard export 7k2m | less
  hansard export 7k2m --to session.md
  hansard export --to session.md --force   the session opened last, anew
"""
)
@click.argument("ref", required=False, default="", shell_complete=sessions)
@click.option(
    "--format",
    "form",
    default="markdown",
    metavar="NAME",
    shell_complete=known,
    help="The form of the document.  [default: markdown]",
)
@click.option(
    "--to",
    metavar="FILE",
    type=click.Path(),
    help="Write this file, whole or not at all.  [default: print it]",
)
@click.option("--force", is_flag=True, help="Also where the file is there already.")
@by_id
@asks
def export(asked: Asked, *, ref: str, id: str | None, form: str, to: str | None, force: bool) -> None:
    """Write a session as a document: everything that was said, in order.

    REF is an id, the beginning of one, or a name (@active). Without it: the session opened last, else the
    newest.
    """
    with open_store(asked, reading=True) as store:
        view = store.read(meant(store, ref, id))
        watched = sys.stdout.isatty() and to is None  # the document itself is what goes on
        progress = Progress("exporting", unit="record", total=view.seq + 1)
        texts = formats.pieces(view.head, _counted(view, progress), form)
        told: outputs.Exported = {"store": store.url, "session": view.id, "format": form}
        if to is not None:
            with progress:
                count = _write(to, texts, force=force)
            if asked.json:
                screen.print_json({**told, "to": safe(to), "bytes": count})
            else:
                streams.told(f"{screen.size(count)} written to {safe(to)}")
        elif watched:
            _print(texts, told if asked.json else None)
        else:
            with progress:
                _print(texts, told if asked.json else None)
        damage = view.damage
    end_with(damage)


def _counted(view: View, progress: Progress) -> Iterator[Record]:
    for record in view.records():
        progress.done += 1
        yield record


def _print(texts: Iterable[str], told: Any) -> None:
    """The document, or one JSON object that has it, piece by piece."""
    if told is None:
        for text in texts:
            click.echo(text if not sys.stdout.isatty() else safe(text), nl=False)
        return
    click.echo(f'{screen.json_text(told)[:-1]},"text":"'.encode(), nl=False)
    for text in texts:
        click.echo(screen.json_text(text)[1:-1].encode(), nl=False)
    click.echo('"}')


def _write(path: str, texts: Iterable[str], *, force: bool) -> int:
    """Writes a file so that it is whole or not there; gives its bytes."""
    path = os.path.realpath(os.path.expanduser(path))
    with suppress(FileNotFoundError):
        found = os.stat(path).st_mode
        if stat.S_ISDIR(found):
            raise Refused(f"{path} is a folder; name a file in it")
        if not stat.S_ISREG(found):  # a device or a pipe is written, not replaced
            with open(path, "wb") as file:
                return sum(file.write(text.encode()) for text in texts)
        if not force:
            raise Refused(f"{path} is there already, and was left as it is; --force writes it anew")
    folder, name = os.path.split(path)
    new = os.path.join(folder, f".{name[:100]}.{os.getpid()}.new")
    try:
        with open(new, "xb") as file:
            count = sum(file.write(text.encode()) for text in texts)
            file.flush()
            os.fsync(file.fileno())
        if force:
            os.replace(new, path)
        else:
            _put(new, path)
    except FileNotFoundError:
        raise Refused(f"there is no folder {folder}; make it first") from None
    finally:
        with suppress(OSError):
            os.unlink(new)
    return count


def _put(new: str, path: str) -> None:
    """Gives a file its name, if nobody has taken that meanwhile."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise Refused(f"{path} came into being meanwhile, and was left as it is") from None
    except OSError:  # a file system without links
        os.rename(new, path)
