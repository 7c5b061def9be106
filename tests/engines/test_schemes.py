"""Engines of other distributions: how they are found, and what is said where one is of no use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hansard
from hansard.engines import schemes
from hansard.engines.files import Files
from hansard.engines.memory import Memory
from hansard.errors import HansardError, NotAStore, Unsupported

Install = Callable[..., None]

MEMORY = """
from hansard.engines.memory import Memory

made = []

class Kept(Memory):
    def __init__(self, url):
        super().__init__()
        self.url = url

def make(url, *, readonly, create):
    made.append((url, readonly, create))
    return Kept(url)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a distribution on the path: one module, and its entry point."""

    def put(scheme: str, module: str, source: str, *, value: str = "", name: str = "") -> None:
        name = name or f"acme-{module}"
        place = tmp_path / name
        facts = place / f"{name.replace('-', '_')}-2.5.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
        (facts / "entry_points.txt").write_text(
            f"[hansard.engines]\n{scheme} = {value or f'{module}:make'}\n"
        )
        (place / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(place)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return put


def _refused(url: str, *parts: str) -> HansardError:
    with pytest.raises(Unsupported) as caught:
        hansard.open(url)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def test_an_installed_engine_is_opened_by_its_scheme(install: Install) -> None:
    install("acme", "acme_good", MEMORY)
    with hansard.open("acme:here") as store:
        assert store.url == "acme:here"
        with store.create() as session:
            session.append({"role": "user", "content": "Hello"})
        assert store.head(session.id).title == "Hello"


def test_the_engine_is_given_the_url_as_it_stands_and_what_was_asked_for(install: Install) -> None:
    install("acme", "acme_url", MEMORY)
    url = "acme://host/a%20b?size=3&colour=#red"
    hansard.open(url, readonly=True, create=False).close()
    from acme_url import made  # type: ignore[import-not-found]

    assert made == [(url, True, False)]


def test_stores_of_one_url_share_an_engine_that_is_closed_with_the_last(install: Install) -> None:
    install("acme", "acme_shared", MEMORY)
    one, two = hansard.open("acme:one"), hansard.open("acme:one")
    assert one._engine is two._engine
    assert hansard.open("acme:one", readonly=True)._engine is not one._engine
    assert hansard.open("acme:two")._engine is not one._engine
    one.close()
    two.append("s", {"role": "user", "content": "still open"}, create=True)
    assert not two._engine.closed
    two.close()
    assert two._engine.closed
    with hansard.open("acme:one") as three:
        assert three.list() == []


def test_an_installed_engine_has_namespaces(install: Install) -> None:
    install("acme", "acme_tenants", MEMORY)
    with hansard.open("acme:one") as store, hansard.open("acme:one", namespace="tenant") as tenant:
        tenant.append("s", {"role": "user", "content": "Hello"}, create=True)
        assert [head.id for head in tenant.list()] == ["s"]
        assert store.list() == []


def test_a_scheme_of_ours_cannot_be_hidden(install: Install, tmp_path: Path) -> None:
    for scheme in schemes.OURS:
        install(scheme, f"acme_{scheme}", "raise ZeroDivisionError")
    with hansard.open(f"file:{tmp_path / 'store'}") as store:
        assert isinstance(store._engine, Files)
    with hansard.open("memory:mine") as store:
        assert isinstance(store._engine, Memory)


@pytest.mark.parametrize("start", ["file:", "file://", "file://localhost", "file://LOCALHOST/"])
def test_a_file_url_may_name_this_host(tmp_path: Path, start: str) -> None:
    with hansard.open(f"{start}{tmp_path}/a%20store?network=yes") as store:
        store.append("s", {"role": "user", "content": "Hello"}, create=True)
        assert store.url == f"file:{tmp_path}/a%20store"
    assert (tmp_path / "a store" / "hansard.json").exists()


@pytest.mark.parametrize("url", ["file://server/srv/agents", "file://srv", "file://127.0.0.1/srv"])
def test_a_folder_on_another_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="lies on a host"):
        hansard.open(url)


def test_a_path_that_begins_with_two_slashes_names_no_host(tmp_path: Path) -> None:
    with hansard.open(f"/{tmp_path}/store") as store:
        store.append("s", {"role": "user", "content": "Hello"}, create=True)
    with hansard.open(store.url, create=False) as again:
        assert [head.id for head in again.list()] == ["s"]


def test_a_scheme_that_nobody_has_is_refused_and_all_that_there_are_are_named(install: Install) -> None:
    install("acme", "acme_fine", MEMORY)
    _refused("nothing:here", "nothing:", "file:", "memory:", "acme:", "acme-acme_fine 2.5")


def test_an_error_of_an_engine_comes_through_as_it_is(install: Install) -> None:
    source = "from hansard import NotAStore\ndef make(url, *, readonly, create): raise NotAStore('not here')"
    install("acme", "acme_error", source)
    with pytest.raises(NotAStore, match=r"^not here$"):
        hansard.open("acme:x")


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("", "AttributeError"),
        ("make = 7", "int cannot be called"),
        ("def make(url): ...", "unexpected keyword argument 'readonly'"),
        ("def make(*, url, readonly, create): ...", "too many positional arguments"),
        ("def make(url, *, readonly, create): ...", "its NoneType is no engine"),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused_with_the_cause(
    install: Install, source: str, cause: str
) -> None:
    install("acme", "acme_bad", source)
    _refused("acme:x", "acme:", "acme-acme_bad 2.5", cause)


def test_what_does_not_fulfil_the_protocol_is_refused_with_what_it_lacks(install: Install) -> None:
    older = MEMORY.replace(
        "        self.url = url\n",
        "        self.url = url\n        self.sweep_blobs = None\n\n"
        "    def append(self, session, drafts, *, expect=None, durable=True, lease=None): ...\n",
    )
    install("acme", "acme_older", older)
    _refused("acme:x", "acme-acme_older 2.5", "Kept", "append(): ", "'uid'", "sweep_blobs(): ")
    install("bare", "acme_bare", "class make:\n    def __init__(self, url, *, readonly, create): ...")
    _refused("bare:x", "acme-acme_bare 2.5", "it has no 'url'", "it has no 'append'", "it has no 'closed'")


def test_a_scheme_that_two_distributions_have_is_refused(install: Install) -> None:
    install("acme", "acme_one", MEMORY)
    install("acme", "acme_two", MEMORY)
    _refused("acme:x", "acme-acme_one 2.5 and acme-acme_two 2.5")


def test_our_own_schemes_look_for_no_other(tmp_path: Path) -> None:
    program = (
        "import sys, hansard\n"
        f"for url in ('memory:', {str(tmp_path / 'store')!r}): hansard.open(url).close()\n"
        "assert 'importlib.metadata' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
