"""Formats are found by name, those of installed packages too, and what is wrong with one is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hansard
from hansard import Unsupported
from hansard.formats import names, pieces, render

SAID = [{"role": "user", "content": "Build a login page"}]

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with one format on the path: a module and the metadata that pip writes."""
    made: list[str] = []

    def install(name: str, target: str, source: str, *, distribution: str = "acme-formats") -> Path:
        site = tmp_path / distribution
        info = site / f"{distribution.replace('-', '_')}-1.5.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[hansard.formats]\n{name} = {target}\n")
        module = target.partition(":")[0]
        (site / f"{module}.py").write_text(source)
        made.append(module)
        monkeypatch.syspath_prepend(str(site))
        return site

    yield install
    for module in made:
        sys.modules.pop(module, None)


def test_markdown_is_the_format_that_is_taken_when_none_is_named() -> None:
    assert "markdown" in names()
    assert render(None, SAID) == render(None, SAID, format="markdown")


def test_the_pieces_joined_are_the_text() -> None:
    assert "".join(pieces(None, SAID, "markdown")) == render(None, SAID)


def test_an_unknown_format_is_refused_at_once_and_those_that_exist_are_named(install: Install) -> None:
    install("acme", "acme_a", "pieces = None")
    with pytest.raises(Unsupported, match=r"no format 'wordstar'; there are: acme, markdown"):
        pieces(None, SAID, "wordstar")


def test_a_package_brings_a_format_as_a_function(install: Install) -> None:
    install(
        "shout", "acme_b:shout", "def shout(head, records):\n    for r in records: yield r['content'].upper()"
    )
    assert "shout" in names()
    assert render(None, SAID, "shout") == "BUILD A LOGIN PAGE"


def test_a_package_brings_a_format_as_a_module_like_our_own(install: Install) -> None:
    install("count", "acme_c", "def pieces(head, records):\n    yield str(len(list(records)))")
    assert render(None, SAID, "count") == "1"


def test_a_format_streams(install: Install) -> None:
    install("each", "acme_d:each", "def each(head, records):\n    for r in records: yield r")
    taken: list[str] = []

    def records() -> Iterator[str]:
        for text in ("a", "b"):
            taken.append(text)
            yield text

    stream = pieces(None, records(), "each")
    assert next(stream) == "a"
    assert taken == ["a"]


@pytest.mark.parametrize(
    ("target", "source", "told"),
    [
        ("acme_e", "import no_such_module_anywhere", "ModuleNotFoundError"),
        ("acme_f", "def (", "SyntaxError"),
        ("acme_g:gone", "", "AttributeError"),
        ("acme_h", "raise RuntimeError('boom')", "RuntimeError: boom"),
        ("acme_i", "", "no format"),
    ],
)
def test_a_format_that_cannot_be_loaded_names_the_package_it_is_from(
    install: Install, target: str, source: str, told: str
) -> None:
    install("acme", target, source)
    with pytest.raises(Unsupported, match=told) as caught:
        pieces(None, SAID, "acme")
    assert "acme-formats 1.5" in str(caught.value)


def test_a_broken_package_does_not_keep_other_formats_from_working(install: Install) -> None:
    install("acme", "acme_j", "raise RuntimeError")
    assert "Build a login page" in render(None, SAID, "markdown")
    assert names() == ["acme", "markdown"]


def test_no_package_can_hide_a_format_of_ours(install: Install) -> None:
    install("markdown", "acme_k:hide", "def hide(head, records):\n    yield 'hidden'")
    assert "Build a login page" in render(None, SAID, "markdown")
    assert names().count("markdown") == 1


def test_hansard_has_the_formats_and_loads_them_only_when_asked() -> None:
    program = (
        "import hansard, sys\n"
        "assert not [name for name in sys.modules if name.startswith('hansard.formats')]\n"
        "assert hansard.formats.render(None, []).startswith('# ')\n"
        "assert 'markdown_it' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={"PYTHONPATH": str(Path(hansard.__file__).parents[1])},
    )
