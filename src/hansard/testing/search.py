"""L4: what a search finds, in what order, and what it shows of it."""

from __future__ import annotations

import random
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hansard.store import Hits, Store
from hansard.testing.chat import assistant, user
from hansard.testing.world import World, say

NOON = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)

QUIET = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "write_file", "arguments": '{"path":"a.py","text":"line one\\nneedle()"}'},
        }
    ],
}
"""A tool call whose input has a word behind an escaped newline."""


class Clock:
    """A clock that goes on by a second at each look."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def _said(store: Store, id: str, *texts: str, **head: Any) -> None:
    """A session in which a user has said these things."""
    with store.create(id, activate=False, **head) as session:
        for text in texts:
            session.append(user(text))


def _uses(given: Any) -> dict[str, Any]:
    """A model uses a tool."""
    block = {"type": "tool_use", "id": "call_1", "name": "x", "input": given}
    return {"role": "assistant", "content": [block]}


def _places(hits: Hits) -> list[tuple[str, int]]:
    return [(hit.session, hit.seq) for hit in hits]


def _finds(store: Store, query: str, **which: Any) -> set[str]:
    """The sessions in which something is found."""
    return {hit.session for hit in store.search(query, limit=None, **which)}


# -- the language


@pytest.mark.rule("L4")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("migration", {"plan", "log"}),
        ("migration database", {"plan"}),
        ("database migration", {"plan"}),
        ('"database migration"', set()),
        ('"migration of the database"', {"plan"}),
        ("migr*", {"plan", "log", "bird"}),
        ("migr", set()),
        ("migration -database", {"log"}),
        ('migr* -"of the database"', {"log", "bird"}),
        ("migr* -data*", {"log", "bird"}),
        ('"the data*"', set()),
        ('"the data"*', {"plan"}),
        ("MIGRATION", {"plan", "log"}),
        ("-migration", set()),
        ("", set()),
        ("   ", set()),
        ("*", set()),
        ('"', set()),
        ('""', set()),
        ("?!", set()),
        ("-", set()),
        ("--", set()),
    ],
)
def test_words_are_anded_quotes_are_adjacent_stars_are_prefixes_and_minus_excludes(
    world: World, query: str, found: set[str]
) -> None:
    store = world.store()
    _said(store, "plan", "We plan the migration of the database.")
    _said(store, "log", "The migration logged nothing")
    _said(store, "bird", "Birds migrate in autumn")
    assert _finds(store, query) == found


@pytest.mark.rule("L4")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("src/app.py", {"path"}),
        ("app.py", {"path"}),
        ("--verbose", {"flag"}),
        ("foo_bar", {"name"}),
        ("foo:bar", {"name"}),
        ("(verbose)", {"flag"}),
        ("a AND b", set()),
        ("NOT", set()),
        ("NEAR(run, verbose)", set()),
        ("run OR verbose", set()),
        ("prose:verbose", set()),
        ("{prose} verbose", set()),
        ("^run", {"flag"}),
        ("run + verbose", {"flag"}),
        ("'run' ; -- verbose", {"flag"}),
        ('run "verb', set()),
        ('run "verbose', {"flag"}),
    ],
)
def test_every_other_character_is_literal(world: World, query: str, found: set[str]) -> None:
    store = world.store()
    _said(store, "path", "see src/app.py, line 40")
    _said(store, "flag", "run it with --verbose")
    _said(store, "name", "def foo_bar(): pass")
    assert _finds(store, query) == found


@pytest.mark.rule("L4")
def test_no_input_is_an_error(world: World) -> None:
    store = world.store()
    _said(store, "s", "anything at all: NEAR AND 日本語 café")
    dice = random.Random(5)
    pieces = [
        '"',
        "*",
        "-",
        "(",
        ")",
        "AND",
        "OR",
        "NOT",
        "NEAR",
        ":",
        "^",
        "+",
        "\0",
        "'",
        ";",
        "\\",
        " ",
        "a",
    ]
    pieces += [
        "日",
        "é",
        "e\u0301",
        "\U0001f600",
        "\ud800",
        "\u202e",
        "any*",
        '"at all',
        "{prose}",
        "\n",
        "ß",
        "İ",
    ]
    for _ in range(300):
        store.search("".join(dice.choices(pieces, k=dice.randint(0, 12))))
    store.search("a " * 5000)
    store.search('"' * 2000 + "x" * 100_000)
    store.search(" ".join(f"w{n}" for n in range(2000)))
    store.search('"' + " ".join(f"w{n}" for n in range(2000)) + '"')


@pytest.mark.rule("L4")
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Le café est fermé", "CAFE ferme"),
        ("cafe ferme", "CAFÉ fermé"),
        (unicodedata.normalize("NFD", "crème brûlée"), "creme brulee"),
        ("creme brulee", unicodedata.normalize("NFD", "crème brûlée")),
        ("Die Straße ist naß", "STRASSE nass"),
        ("STRASSE", "straße"),
        ("İstanbul", "istanbul"),
        ("ISTANBUL", "istanbul"),
        ("ışık", "isik"),
        ("ΟΔΟΣ", "οδος"),
        ("οδος", "ΟΔΟΣ"),
        ("Łódź", "lodz"),
        ("Ærø", "aero"),
        ("МОСКВА", "москва"),
        ("ёлка", "елка"),
        ("ﬁnal ｆｕｌｌ", "final full"),
        ("שָׁלוֹם", "שלום"),
        ("مَرْحَبًا", "مرحبا"),
        ("नमस्ते दुनिया", "दुनिया"),
        ("co\u00adoperate", "cooperate"),
        ("Hansard™", "hansard"),
        ("ship it 🚀", "🚀"),
    ],
)
def test_case_and_accents_make_no_difference(world: World, text: str, query: str) -> None:
    store = world.store()
    _said(store, "s", text)
    _said(store, "other", "nothing of the kind")
    assert _finds(store, query) == {"s"}


@pytest.mark.rule("L4")
@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("用户登录失败后我们迁移了数据库", "数据库", True),
        ("用户登录失败后我们迁移了数据库", "登录", True),
        ("用户登录失败后我们迁移了数据库", "录登", False),
        ("用户登录失败后我们迁移了数据库", "登录 数据库", True),
        ("用户登录失败后我们迁移了数据库", '"迁移了数据"', True),
        ("データベースを移行した", "移行", True),
        ("データベースを移行した", "ﾃﾞｰﾀ", True),
        ("한국어로 검색합니다", "검색", True),
        ("한국어로 검색합니다", unicodedata.normalize("NFD", "검색"), True),
        ("ค้นหาข้อความ", "ข้อความ", True),
        ("用SQL查询", "sql查询", True),
        ("用SQL查询", "sql", True),
    ],
)
def test_scripts_without_spaces_are_found_by_character(
    world: World, text: str, query: str, found: bool
) -> None:
    store = world.store()
    _said(store, "s", text)
    assert bool(store.search(query)) == found


# -- what is searched


@pytest.mark.rule("L4")
def test_what_tools_were_given_and_gave_is_searched_unless_asked_otherwise(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("Write a file"))
        session.append(QUIET)
        session.append({"role": "tool", "tool_call_id": "call_1", "content": "wrote 2 lines of straw"})
    assert _places(store.search("needle")) == [("s", 2)]
    assert _places(store.search("straw")) == [("s", 3)]
    assert _places(store.search("write_file")) == [("s", 2)]
    assert [store.search(word, tools=False) for word in ("needle", "straw", "write_file")] == [[], [], []]
    assert _places(store.search("file", tools=False)) == [("s", 1)]


@pytest.mark.rule("L4")
def test_messages_of_all_forms_are_searched(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append({"role": "user", "content": [{"type": "text", "text": "alpha"}]})
        session.append({"role": "user", "parts": [{"text": "beta"}]})
        session.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": "gamma"}]})
        session.append({"note": {"of": ["delta", 42]}})
        session.append("epsilon")
        session.append(_uses({"q": "zeta"}))
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
    assert [_places(store.search(word)) for word in words] == [[("s", n)] for n in range(1, 7)]


@pytest.mark.rule("L4", "E1")
def test_events_and_output_are_not_searched(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("Hello"))
        session.event("delta", {"text": "needle"}, event_id="e", stream_id="s")
        session.output("needle")
        session.append({"text": "needle"}, kind="app.note")
        session.rename("needle")
    assert store.search("needle") == []


# -- filters


@pytest.mark.rule("L4")
def test_a_search_is_narrowed_by_agent_workspace_role_session_and_time(world: World) -> None:
    store = world.store(clock=Clock())
    _said(store, "a", "needle", agent="coder", workspace="/srv/one")
    _said(store, "b", "needle", agent="writer", workspace="/srv/two")
    with store.open("b") as session:
        session.append(assistant("a needle, too"))
    assert _finds(store, "needle", agent="coder") == {"a"}
    assert _finds(store, "needle", workspace="/srv/two/") == {"b"}
    assert _finds(store, "needle", session="b") == {"b"}
    assert _places(store.search("needle", role="assistant")) == [("b", 2)]
    last = store.search("needle", role="assistant")[0].at
    assert _places(store.search("needle", since=last)) == [("b", 2)]
    assert _places(store.search("needle", until=last, order="newest")) == [("b", 1), ("a", 1)]
    assert store.search("needle", agent="coder", session="b") == []
    assert store.search("needle", agent="nobody") == store.search("needle", session="nobody") == []


@pytest.mark.rule("L4")
def test_children_and_sessions_without_a_user_are_searched(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("Hello"))
        with session.sub("research") as child:
            child.append(assistant("a needle"))
            name = child.id
    assert _finds(store, "needle") == {name}


# -- order


@pytest.mark.rule("L4")
def test_the_newest_come_first_where_that_is_asked_for(world: World) -> None:
    store = world.store(clock=Clock())
    _said(store, "a", "needle", "needle needle")
    _said(store, "b", "a needle somewhere in a long line of words that say nothing")
    store.append("a", user("needle"), time=NOON - timedelta(days=3))
    assert _places(store.search("needle", order="newest")) == [("b", 1), ("a", 2), ("a", 1), ("a", 3)]


@pytest.mark.rule("L4")
def test_what_is_said_counts_more_than_what_a_tool_was_given_and_that_more_than_what_it_gave(
    world: World,
) -> None:
    store = world.store(clock=lambda: NOON)
    with store.create("s") as session:
        session.append(user("Hello"))
        session.append({"role": "tool", "tool_call_id": "call_1", "content": "one needle here"})
        session.append(_uses("a needle"))
        session.append(assistant("one needle here"))
        for n in range(20):
            session.append(assistant(f"hay {n} and more hay"))
    assert _places(store.search("needle")) == [("s", 4), ("s", 3), ("s", 2)]


@pytest.mark.rule("L4")
def test_new_ones_and_those_of_a_session_with_such_a_title_count_more(world: World) -> None:
    store = world.store(clock=lambda: NOON)
    for n in range(20):
        _said(store, f"hay {n}", f"hay and hay {n}")
    _said(store, "new", "we found one needle", title="x")
    _said(store, "titled", "we found one needle", title="The Needle")
    store.append("old", user("we found one needle"), create=True, time=NOON - timedelta(days=200))
    store.open("old").update(title="x")
    assert [hit.session for hit in store.search("needle")] == ["titled", "new", "old"]
    scores = [hit.score for hit in store.search("needle")]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(scores[1] * 1.5, rel=1e-6)


@pytest.mark.rule("L4")
@pytest.mark.parametrize("order", ["rank", "newest"])
def test_pages_neither_repeat_nor_skip(world: World, order: str) -> None:
    store = world.store(clock=Clock())
    for n in range(7):
        _said(store, f"s{n}", *(f"needle {'hay ' * (n + m)}" for m in range(5)))
    whole = _places(store.search("needle", order=order, limit=None))
    assert len(whole) == 35
    seen: list[tuple[str, int]] = []
    page = store.search("needle", order=order, limit=4)
    while True:
        seen += _places(page)
        if page.next is None:
            break
        page = store.search("needle", order=order, limit=4, after=page.next)
    assert seen == whole
    assert store.search("needle", limit=0) == []
    with pytest.raises(ValueError, match="limit"):
        store.search("needle", limit=-1)
    with pytest.raises(ValueError, match="order"):
        store.search("needle", order="best")
    first = store.search("needle", order=order, limit=4)
    for wrong in ("", "x", "!", first.next[:-3] if first.next else ""):
        with pytest.raises(ValueError, match="cursor"):
            store.search("needle", order=order, after=wrong)
    with pytest.raises(ValueError, match="cursor"):
        store.search("hay", order=order, after=first.next)


@pytest.mark.rule("L4")
def test_newest_pages_neither_repeat_nor_skip_while_more_is_said(world: World) -> None:
    store = world.store(clock=Clock())
    _said(store, "s", *(f"needle {n}" for n in range(10)))
    page = store.search("needle", order="newest", limit=4)
    seen = _places(page)
    while page.next is not None:
        store.append("s", user("one more needle"))
        page = store.search("needle", order="newest", limit=4, after=page.next)
        seen += _places(page)
    assert seen == [("s", n) for n in range(10, 0, -1)]


# -- what is shown


@pytest.mark.rule("L4")
def test_a_hit_says_where_and_what(world: World) -> None:
    store = world.store(clock=Clock())
    _said(store, "s", "Hello", "Where is the\n  needle in the hay?")
    (hit,) = store.search("needle hay")
    assert (hit.session, hit.seq, hit.role, hit.title, hit.live) == ("s", 2, "user", "Hello", True)
    assert hit.at == next(r.at for r in store.read("s").records() if r.seq == 2)
    assert hit.marked() == "Where is the [needle] in the [hay]?"
    assert hit.score > 0


@pytest.mark.rule("L4")
def test_a_snippet_is_cut_between_characters(world: World) -> None:
    store = world.store()
    family = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
    accented = "e\u0301\u0323"
    for n, (before, behind) in enumerate(((family, accented), (accented, family), ("用", "数"), ("x", "y"))):
        store.append(f"s{n}", user(before * 400 + " needle " + behind * 400), create=True)
    for hit in store.search("needle"):
        assert hit.marked().count("[needle]") == 1
        assert hit.snippet.startswith("…")
        assert hit.snippet.endswith("…")
        assert len(hit.snippet) < 300
        bare = hit.snippet.strip("…").replace("needle", "").replace(" ", "")
        for whole in (family, accented, "用", "数", "x", "y"):
            bare = bare.replace(whole, "")
        assert bare == ""


@pytest.mark.rule("L4")
def test_a_snippet_marks_what_was_written_and_not_what_was_typed(world: World) -> None:
    store = world.store()
    _said(store, "s", "Die Straße nach I\u0307stanbul, um 12 Uhr in der Cafe\u0301bar am 数据库")
    found = [store.search(query)[0].marked() for query in ("strasse", "istanbul", "cafe*", "据库")]
    assert [text[text.index("[") : text.index("]") + 1] for text in found] == [
        "[Straße]",
        "[I\u0307stanbul]",
        "[Cafe\u0301bar]",
        "[据库]",
    ]


@pytest.mark.rule("L4")
def test_what_the_model_does_not_see_any_more_is_found_and_marked(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("a needle"))
        session.append(user("another needle"))
        session.clear()
        session.append(user("one more needle"))
        session.rewind(1)
        session.append(user("the last needle"))
    live = {hit.seq: hit.live for hit in store.search("needle")}
    assert live == {1: True, 2: False, 4: False, 6: True}


@pytest.mark.rule("L4")
def test_what_a_change_of_the_history_wrote_is_found(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("We looked for a needle"))
        session.append(user("and found it"))
        session.checkpoint([assistant("In short: a haystack")])
    (hit,) = store.search("haystack")
    assert (hit.seq, hit.role, hit.live) == (3, "assistant", True)
    assert not store.search("needle")[0].live


# -- when


@pytest.mark.rule("L4", "W3", "W11")
def test_it_is_found_right_after_the_append_by_anyone(world: World) -> None:
    store, other = world.store(), world.other()
    with store.create("s") as session:
        for n in range(3):
            session.append(user(f"needle number{n}"), durable=n != 1)
            assert len(store.search("needle")) == n + 1
            assert _places(other.search(f"number{n}")) == [("s", n + 1)]


def _find(store: Store, query: str) -> list[int]:
    return [hit.seq for hit in store.search(query, order="newest")]


@pytest.mark.rule("L4")
def test_it_is_found_by_another_process(world: World) -> None:
    world.needs("shared")
    store = world.store()
    with store.create("s") as session:
        session.append(user("a needle"))
        session.append(user("another needle"), durable=False)
        assert world.elsewhere(_find, "needle") == [2, 1]


def _write(store: Store) -> None:
    session = store.create("s")
    session.append(user("a needle"))
    store.search("needle")
    session.append(user("another needle"))
    say()
    session.append(user("x" * 100))
    say()


@pytest.mark.rule("L4", "C1")
def test_it_is_found_after_a_crash(world: World) -> None:
    with world.beside(_write) as process:
        process.hear()
        process.kill()
    assert _find(world.store(), "needle") == [2, 1]


@pytest.mark.rule("L4")
def test_it_is_found_by_who_opens_the_store_anew(world: World) -> None:
    _said(world.store(), "s", "a needle")
    world.store().search("needle")
    store = world.reopened()
    assert _find(store, "needle") == [1]
    store.append("s", user("another needle"))
    assert _find(world.reopened(), "needle") == [2, 1]


@pytest.mark.rule("L4")
def test_it_is_gone_right_after_the_deletion(world: World) -> None:
    store, other = world.store(), world.other()
    _said(store, "s", "a needle")
    _said(store, "t", "another needle")
    assert len(store.search("needle")) == len(other.search("needle")) == 2
    store.delete("s")
    assert _finds(store, "needle") == _finds(other, "needle") == {"t"}
    _said(store, "s", "only hay")
    assert _finds(store, "needle") == {"t"}
    assert _finds(other, "hay") == {"s"}


@pytest.mark.rule("L4", "H8")
def test_what_was_vacuumed_is_gone(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("a needle"))
        session.append(user("some hay"))
        session.clear()
        session.append(user("a needle that stays"))
    assert _find(store, "needle") == [4, 1]
    store.vacuum("s", drop_history=True)
    assert _find(store, "needle") == [4]
    assert _find(store, "hay") == []
    assert store.search("needle")[0].live


@pytest.mark.rule("L4", "H7")
def test_a_fork_is_found_beside_what_it_is_a_fork_of(world: World) -> None:
    store = world.store()
    _said(store, "s", "a needle")
    with store.fork("s", id="t"):
        pass
    assert _finds(store, "needle") == {"s", "t"}
    store.delete("s")
    assert _finds(store, "needle") == {"t"}


@pytest.mark.rule("L4")
def test_each_tenant_searches_what_is_its_own(world: World) -> None:
    _said(world.store(), "s", "a needle")
    _said(world.store(namespace="tenant"), "t", "another needle")
    assert _finds(world.store(), "needle") == {"s"}
    assert _finds(world.store(namespace="tenant"), "needle") == {"t"}


@pytest.mark.rule("L4")
def test_a_store_that_is_only_read_is_searched(world: World) -> None:
    world.needs("survives")
    store = world.store()
    _said(store, "s", "a needle")
    reader = Store(world.new_engine(readonly=True))
    assert _finds(reader, "needle") == {"s"}
    store.append("s", user("another needle"))
    assert _find(reader, "needle") == [2, 1]
