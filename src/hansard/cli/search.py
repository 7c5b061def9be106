"""Where something was said: `search`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from hansard.cli import screen
from hansard.cli.options import Asked, Count, asks, meant, moment, open_if_there, place, sessions
from hansard.cli.progress import Progress
from hansard.cli.screen import cells, line, paint, safe
from hansard.cli.sessions import next_page, short_ids
from hansard.errors import HansardError

if TYPE_CHECKING:
    from hansard import Hit, Hits, Store
    from hansard.cli import outputs

ROLES = ("user", "assistant", "system", "tool")
ORDERS = ("rank", "newest")


@click.command(
    epilog="""\b
Examples:
  hansard search migration
  hansard search '"database migration" postgres* -mysql'
  hansard search 登录失败 --since 2w --no-tools
  hansard search timeout --role tool --order newest
  hansard search migration --json | jq -r '.hits[].session' | uniq

\b
All words must stand in one message; case and accents make no difference. "side by side" is a phrase, begin*
the beginning of a word, -without a word that must not be there. Quote a query that has one of these.
"""
)
@click.argument("words", nargs=-1, required=True)
@click.option("--agent", metavar="NAME", help="Only sessions of this agent.")
@click.option("--workspace", metavar="FOLDER", help="Only sessions in this folder.")
@click.option("--session", metavar="REF", shell_complete=sessions, help="Only this session.")
@click.option("--role", type=click.Choice(ROLES), help="Only what this one said.")
@click.option(
    "--since", callback=moment, metavar="TIME", help="Said since: 30m, 2h, 3d, 1w, today, 2026-05-01."
)
@click.option("--until", callback=moment, metavar="TIME", help="Said before that.")
@click.option("--no-tools", is_flag=True, help="Not in what tools were given and gave back.")
@click.option("--order", type=click.Choice(ORDERS), default="rank", help="What comes first.  [default: rank]")
@click.option("--limit", type=Count(), default=20, metavar="N", help="At most N.  [default: 20]")
@click.option("--after", metavar="CURSOR", help="Go on where a page ended.")
@asks
def search(asked: Asked, *, words: Sequence[str], session: str | None, no_tools: bool, **which: Any) -> None:
    """Find what was said, in all sessions, the best matches first.

    Also what the model does not see any more: it was cleared, rewound, or summed up.
    """
    query = " ".join(words)
    with open_if_there(asked) as store:
        found: Hits | list[Hit] = []
        if store is not None:
            id = None if session is None else meant(store, session)
            found = _found(store, query, session=id, tools=not no_tools, **which)
        url = place(asked) if store is None else store.url
    following = getattr(found, "next", None)
    if asked.json:
        told: outputs.Searched = {
            "store": url,
            "query": query,
            "hits": list(map(_json, found)),
            "next": following,
        }
        screen.print_json(told)
        return
    if found:
        click.echo("\n".join(_lines(found)))
    else:
        click.echo(f"Nothing found for {line(query, 200)}", err=True)
    if following is not None:
        click.echo(f"There is more:  {next_page(following)}", err=True)


def _found(store: Store, query: str, *, after: str | None, **which: Any) -> Hits:
    with Progress("indexing what is new", unit="megabyte") as progress:

        def told(done: int, total: int) -> None:
            progress.total = max(1, total // 1_000_000)
            progress(min(done // 1_000_000, progress.total))

        try:
            return store.search(query, after=after, told=told, **which)
        except HansardError:
            raise
        except ValueError:
            if after is None:
                raise
            raise click.BadParameter(
                f"{after!r} is no cursor of this search; take the one below the page before, with the same "
                "words and options",
                param_hint="--after",
            ) from None


def _lines(hits: Sequence[Hit]) -> Iterator[str]:
    """For each hit where it is, and a line of what stands there."""
    room = screen.width()
    now = datetime.now(UTC)
    ids = [line(hit.session) for hit in hits] if room is None else short_ids([hit.session for hit in hits])
    space = min(max(map(cells, ids)), 36 if room is None else max(8, room // 4))
    for hit, id in zip(hits, ids, strict=True):
        about = f"{hit.role or 'message'} #{hit.seq}, {screen.ago(hit.at, now)}"
        about += "" if hit.live else ", no longer live"
        shown = screen.fit(id, space)
        name = paint(shown, "id") + " " * (space - cells(shown) + 2)
        left = None if room is None else room - space - 4 - cells(about)
        title = line(hit.title, 120) or "(no title)"
        if left is None or left >= 8:
            title = title if left is None else screen.fit(title, left)
            yield f"{name}{paint(title, 'strong')}  {paint(about, 'quiet')}"
        else:
            yield name + paint(screen.fit(about, (room or 80) - space - 2), "quiet")
        yield "  " + _snippet(hit, None if room is None else room - 2)


def _snippet(hit: Hit, room: int | None) -> str:
    """The line with its matches painted, as far as there is room."""
    pieces: list[str] = []
    at = 0
    for begin, end in (*hit.marks, (len(hit.snippet), len(hit.snippet))):
        for text, matched in ((hit.snippet[at:begin], False), (hit.snippet[begin:end], True)):
            shown = safe(text).replace("\n", " ").replace("\t", " ")
            if room is not None and cells(shown) > room:
                shown = screen.fit(shown, room) if room > 1 else ""
                room = 0
            elif room is not None:
                room -= cells(shown)
            pieces.append(click.style(shown, fg="red", bold=True) if matched and shown else shown)
        at = end
    return "".join(pieces)


def _json(hit: Hit) -> outputs.Hit:
    return {
        "session": hit.session,
        "seq": hit.seq,
        "role": hit.role,
        "at": hit.at,
        "title": hit.title,
        "snippet": hit.snippet,
        "marks": list(hit.marks),
        "score": hit.score,
        "live": hit.live,
    }
