"""What is said about a session, beside what is said in it: `rename`, `label` and `pin`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from hansard.cli import screen
from hansard.cli.options import Asked, asks, by_id, first_of, first_session, meant, open_store, sessions

if TYPE_CHECKING:
    from hansard import Head, Session
    from hansard.cli import outputs


@click.command(
    epilog="""\b
Examples:
  hansard rename 7k2m "The login page"
  hansard rename @active "What we decided about the migration"
"""
)
@click.argument("words", metavar="REF TITLE", nargs=-1, shell_complete=first_session)
@by_id
@asks
def rename(asked: Asked, *, words: Sequence[str], id: str | None) -> None:
    """Give a session a title, which stays whatever is said later."""
    ref, texts = first_of(words, id)
    title = " ".join(texts)
    if not title.strip():
        raise click.UsageError("there is no title; give one behind the REF")
    _change(asked, ref, id, lambda session: session.rename(title), lambda head: screen.line(head.title))


class Labels(click.Command):
    """Takes `-x` as a label that is taken off, where it is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_signed(args)))


def _signed(args: Sequence[str]) -> Iterator[str]:
    before = ""
    for place, arg in enumerate(args):
        if arg == "--":
            yield from args[place:]
            return
        value = before in ("--id", "--store", "--add", "--remove")
        if not value and len(arg) > 1 and arg[0] == "-" and arg[1] != "-" and arg != "-h":
            arg = f"--remove={arg[1:]}"
        yield arg
        before = arg


@click.command(
    cls=Labels,
    epilog="""\b
Examples:
  hansard label 7k2m +review -draft
  hansard label @active --add +1 --remove draft
  hansard label 7k2m             which ones it has
""",
)
@click.argument("words", metavar="REF [+LABEL | -LABEL]...", nargs=-1, shell_complete=first_session)
@click.option("--add", metavar="LABEL", multiple=True, help="Put this one on; repeatable.")
@click.option("--remove", metavar="LABEL", multiple=True, help="Take this one off; repeatable.")
@by_id
@asks
def label(
    asked: Asked, *, words: Sequence[str], add: Sequence[str], remove: Sequence[str], id: str | None
) -> None:
    """Put labels on a session (+x, or just x), and take them off (-x).

    It prints those that it has then; `hansard ls --label x` lists the sessions that have one.
    """
    ref, texts = first_of(words, id)
    more = [*add, *(text.removeprefix("+") for text in texts)]
    if not all(name.strip() for name in (*more, *remove)):
        raise click.UsageError("a label is blank")

    def work(session: Session) -> None:
        if more or remove:
            session.label(*more, remove=remove)

    _change(asked, ref, id, work, lambda head: "\n".join(screen.line(name) for name in head.labels))


@click.command(
    epilog="""\b
Examples:
  hansard pin 7k2m
  hansard pin 7k2m --off
"""
)
@click.argument("ref", required=False, default="", shell_complete=sessions)
@click.option("--off", is_flag=True, help="Unpin it.")
@by_id
@asks
def pin(asked: Asked, *, ref: str, off: bool, id: str | None) -> None:
    """Pin a session: no cleanup takes it away."""
    _change(
        asked,
        ref,
        id,
        lambda session: session.pin(not off),
        lambda head: "pinned" if head.pinned else "not pinned",
    )


def _change(
    asked: Asked, ref: str, id: str | None, work: Callable[[Session], object], told: Callable[[Head], str]
) -> None:
    """Does it beside whoever has the session open, and says how it is then."""
    with open_store(asked) as store:
        exact = meant(store, ref, id, needed=True)
        with store.open(exact, exclusive=False, activate=False) as session:
            work(session)
            session.refresh()
            head = session.head
        if asked.json:
            changed: outputs.Changed = {
                "store": store.url,
                "session": head.id,
                "head": screen.head_json(head),
            }
            screen.print_json(changed)
        elif said := told(head):
            click.echo(said)
