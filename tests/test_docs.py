"""The documentation does what it shows: its programs, its consoles, and the examples in docstrings.

A ```python block is run, and a ```console block that begins with `$ hansard` is too; the blocks below one
`##` heading are one program, in their order. After the language, `no-run` means: compile it, or leave it
alone; `exit=3` means: the last command of this console ends with that code.
"""

from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"


@dataclass
class Block:
    """A fenced block: its language, the words after it, its text, and the line its text begins at."""

    language: str
    options: list[str]
    text: str
    line: int

    def program(self, path: str) -> Callable[[dict[str, object]], None]:
        # Empty lines in front make a traceback point into the page.
        code = compile("\n" * self.line + self.text, path, "exec", dont_inherit=True)
        return lambda namespace: exec(code, namespace)

    def commands(self) -> Iterator[tuple[str, int]]:
        """Each `$` line with its continuation lines, and the exit code it must have."""
        lines = iter(self.text.splitlines())
        commands = []
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\"):
                    command = f"{command[:-1]}{next(lines).strip()}"
                commands.append(command)
        wanted = next((int(o.removeprefix("exit=")) for o in self.options if o.startswith("exit=")), 0)
        codes = [0] * (len(commands) - 1) + [wanted]
        yield from zip(commands, codes, strict=True)


@dataclass
class Section:
    """What stands below one `##` heading of a page."""

    page: str
    heading: str
    blocks: list[Block] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.page}: {self.heading}"


def pages() -> list[Path]:
    return [path for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if path.exists()]


def sections(page: Path) -> Iterator[Section]:
    """The sections that have something to run."""
    section = Section(place(page), "")
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and token.tag in ("h1", "h2") and after is not None:
            if section.blocks:
                yield section
            section = Section(place(page), after.content)
        elif token.type == "fence" and token.map:
            language, *options = token.info.split() or [""]
            runnable = language == "python" or (
                language == "console" and token.content.startswith("$ hansard") and "no-run" not in options
            )
            if runnable:
                section.blocks.append(Block(language, options, token.content, token.map[0] + 1))
    if section.blocks:
        yield section


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules_with_examples() -> Iterator[str]:
    for path in sorted(SOURCE.glob("hansard/**/*.py")):
        if path.name != "__main__.py" and ">>> " in path.read_text(encoding="utf-8"):
            yield ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Move into a home, a working folder and a store that nobody has used yet."""

    def move_into(name: str) -> None:
        home, work = tmp_path / name / "home", tmp_path / name / "work"
        home.mkdir(parents=True)
        work.mkdir()
        for variable in [v for v in os.environ if v.startswith(("HANSARD_", "XDG_"))]:
            monkeypatch.delenv(variable)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("HANSARD_STORE", str(tmp_path / name / "store"))
        monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        monkeypatch.chdir(work)

    return move_into


@pytest.mark.parametrize("section", [s for page in pages() for s in sections(page)], ids=str)
def test_what_the_documentation_shows_works(section: Section, fresh_home: Callable[[str], None]) -> None:
    fresh_home("docs")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in section.blocks:
        unknown = [o for o in block.options if o != "no-run" and not o.startswith("exit=")]
        assert not unknown, f"{section.page}, line {block.line}: nobody knows what {unknown} means"
        if block.language == "python":
            run = block.program(str(ROOT / section.page))
            if "no-run" not in block.options:
                run(namespace)
            continue
        for command, code in block.commands():
            done = subprocess.run(
                command, shell=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == code, (
                f"{section.page}, line {block.line}: `{command}` ended with {done.returncode}, not {code}\n"
                f"{done.stdout}{done.stderr}"
            )


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_the_examples_in_docstrings_hold(name: str, fresh_home: Callable[[str], None]) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hansard"):
            raise
        pytest.skip(f"{name} needs {error.name}")
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for number, example in enumerate(doctest.DocTestFinder().find(module)):
        fresh_home(str(number))
        runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)
