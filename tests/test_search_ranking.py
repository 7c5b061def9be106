"""Forty questions to a fixed set of sessions, and what is to stand first. The formula: docs/search.md."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)

# Days ago, the id, and what was said: > by the user, < by the model, $ given to a tool, = given by it.
SESSIONS = """
1 migration
> Plan the migration of the users table to PostgreSQL 18
< The migration needs three steps: a dump, a new schema, and a switch of the connection string.
$ psql -c "ALTER TABLE users ADD COLUMN tenant_id uuid"
= ALTER TABLE
< Done. The migration of the users table ran in 4 seconds; no row was lost.
3 login
> Build a login page with two-factor authentication
< I added app/login.tsx and a TOTP check. The session cookie is HttpOnly.
$ pytest -q tests/test_login.py
= FAILED tests/test_login.py::test_totp - AssertionError: expected 200, got 401
< The test failed because the clock of the fixture was frozen; I fixed the fixture.
5 flaky
> Why is test_totp flaky on CI?
< The clock skew on the runners is larger than the TOTP window of 30 seconds.
= runner-7: clock skew 41s
90 oldplan
> Should we migrate to MySQL?
< I would not. A migration to MySQL would cost us JSONB and partial indexes, and a migration back is costly.
2 cafe
> Übersetze die Speisekarte des Cafés „Zur Straße“ ins Englische
< The menu of the café: apple strudel, crème brûlée, a pot of tea.
4 chinese
> 用户登录失败后应该显示什么错误信息？
< 登录失败时显示“用户名或密码错误”，不要透露用户是否存在。数据库里只记录失败次数。
6 japanese
> データベースの移行計画を作成してください
< 移行計画を作成しました。まずバックアップを取ります。
7 korean
> 검색 색인을 다시 만들어 주세요
< 검색 색인을 다시 만들었습니다.
8 docker
> The docker image is 2 GB, make it smaller
$ docker build --target runtime -t app .
= Step 4/9 : RUN pip install --no-cache-dir -r requirements.txt
= ERROR: Could not find a version that satisfies the requirement torch==9.9
< A multi-stage build brings the docker image down to 180 MB.
9 regex
> Explain this: ^(?:[a-z0-9]+)@example\\.com$
< It matches an address of example.com with lower case letters and digits before the @.
10 budget
> What did the agents cost last month?
< $412.80 in all: $300 for the coder, $112.80 for the reviewer.
11 kafka
> Our Kafka consumer lags behind
< The lag comes from max.poll.records; set it to 100. The consumer group rebalances too often as well.
= GROUP orders TOPIC payments LAG 90211
12 refactor
> Rename get_user_name to username everywhere
$ rg -l get_user_name src/ | xargs sed -i s/get_user_name/username/g
= src/api/users.py src/web/profile.tsx
< Renamed it in two files.
13 unicode
> Emoji break our parser 🚀
< The parser splits surrogate pairs. I use \\X of the regex module now, so 🚀 stays whole.
14 secrets
> rotate the API keys
< I rotated the keys of Stripe and of the mailer; the old ones expire on Friday.
$ vault kv put secret/stripe key=…
15 deploy
> Deploy version 2.4.1 to staging, not to production
< Version 2.4.1 runs on staging. Production still has 2.4.0.
= deployed 2.4.1 to staging in 38 s
16 noise
> Say something long
< Rome was not built in a day, and neither was this login; the migration of birds, a docker, a sailor, a café.
40 memoryleak
> The worker leaks memory
< heap snapshots show that listeners are never removed: a classic memory leak in EventEmitter.
$ node --inspect --heap-prof worker.js
= heap used 1.9 GB
17 turkish
> İstanbul ofisi için ışık planı
< Işık planı hazır: İstanbul ofisi, 3. kat.
18 greek
> Πού είναι η οδός Ερμού;
< Η ΟΔΟΣ ΕΡΜΟΥ είναι στο κέντρο της Αθήνας.
19 sql
> Why is this query slow: SELECT * FROM orders WHERE created_at::date = now()::date
< The cast keeps the index on created_at from being used; compare with a range.
= Seq Scan on orders (cost=0.00..431.00 rows=1)
20 index
> Create an index on orders
$ psql -c "CREATE INDEX orders_created_at ON orders (created_at)"
= CREATE INDEX
"""

QUERIES = [
    ("migration", "migration", 1),
    ("migration of the users table", "migration", 1),
    ('"migration of the users table ran"', "migration", 5),
    ("migration mysql", "oldplan", 2),
    ("migrate", "oldplan", 1),
    ("migration -mysql birds", "noise", 2),
    ("birds", "noise", 2),
    ("migrat* plan", "migration", 1),
    ("login page", "login", 1),
    ("two-factor", "login", 1),
    ("TOTP", "flaky", 1),
    ("test_totp", "flaky", 1),
    ("assertionerror", "login", 4),
    ("clock skew", "flaky", 2),
    ("tests/test_login.py", "login", 3),
    ("401", "login", 4),
    ("strasse", "cafe", 1),
    ("creme brulee", "cafe", 2),
    ("CAFES", "cafe", 1),
    ("登录失败", "chinese", 1),
    ("数据库", "chinese", 2),
    ("密码错误", "chinese", 2),
    ("移行計画", "japanese", 1),
    ("バックアップ", "japanese", 2),
    ("색인", "korean", 2),
    ("docker image", "docker", 1),
    ("docker build", "docker", 5),
    ("torch==9.9", "docker", 4),
    ("--no-cache-dir", "docker", 3),
    ("@example.com", "regex", 1),
    ("$412.80", "budget", 2),
    ("consumer lag", "kafka", 2),
    ("90211", "kafka", 3),
    ("get_user_name", "refactor", 1),
    ("🚀", "unicode", 1),
    ("stripe", "secrets", 2),
    ("2.4.1 production", "deploy", 1),
    ("memory leak", "memoryleak", 2),
    ("istanbul isik", "turkish", 1),
    ("οδοσ", "greek", 1),
    ("created_at index", "sql", 2),
    ("seq scan", "sql", 3),
    ('"create index"', "index", 3),
]


def _messages(lines: list[str]) -> Iterator[dict[str, Any]]:
    for n, line in enumerate(lines):
        text = line[2:]
        match line[0]:
            case ">":
                yield {"role": "user", "content": text}
            case "<":
                yield {"role": "assistant", "content": text}
            case "$":
                block = {"type": "tool_use", "id": f"t{n}", "name": "bash", "input": {"command": text}}
                yield {"role": "assistant", "content": [block]}
            case _:
                yield {"role": "tool", "tool_call_id": f"t{n - 1}", "content": text}


@pytest.fixture(scope="module", params=["memory", "files"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[hansard.Store]:
    place: str | Path = "memory:" if request.param == "memory" else tmp_path_factory.mktemp("store")
    with hansard.open(place, clock=lambda: NOW) as store:
        lines: list[str] = []
        for line in [*SESSIONS.strip().split("\n"), "0 end"]:
            if line[0].isdigit():
                if lines:
                    days, id = lines[0].split()
                    at = NOW - timedelta(days=int(days))
                    for n, message in enumerate(_messages(lines[1:])):
                        store.append(id, message, create=True, time=at + timedelta(minutes=n))
                lines = []
            lines.append(line)
        yield store


@pytest.mark.rule("L4")
@pytest.mark.parametrize(("query", "session", "seq"), QUERIES, ids=[query for query, *_ in QUERIES])
def test_what_is_meant_stands_first(store: hansard.Store, query: str, session: str, seq: int) -> None:
    first = store.search(query)[0]
    assert (first.session, first.seq) == (session, seq), first.marked()


@pytest.mark.rule("L4")
def test_the_formula_is_the_one_of_the_page(store: hansard.Store) -> None:
    """As docs/search.md has it, by hand."""
    from math import log

    from hansard.views.folding import WORDS, fold
    from hansard.views.search import read

    lengths = {
        (id, record.seq): sum(len(WORDS.findall(fold(text))) for text in read(record)[0])
        for id in {head.id for head in store.list(limit=None)}
        for record in store.read(id).records(kinds=["message"])
    }
    n = len(lengths)
    hit = next(hit for hit in store.search("lag") if hit.seq == 2)
    having = len(store.search("lag", limit=None))
    rarity = log((n - having + 0.5) / (having + 0.5))
    often = 4.0 * 1  # once, in prose
    around = 1.2 * (1 - 0.75 + 0.75 * lengths["kafka", 2] / (sum(lengths.values()) / n))
    age = (NOW - hit.at) / timedelta(days=30)
    wanted = rarity * often * 2.2 / (often + around) * (1 + 0.5 * 2**-age)
    assert hit.score == pytest.approx(wanted, rel=1e-6)
