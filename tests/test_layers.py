"""What imports alone cannot say: who may touch the file system, and who may not store anything.

That no import points upward is checked by import-linter; see `[tool.importlinter]` in pyproject.toml.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "hansard"

FILES = {"fcntl", "io", "mmap", "os", "pathlib", "shutil", "tempfile"}
OUTSIDE = FILES | {"socket", "sqlite3", "subprocess"}
STORAGE = {"fcntl", "hansard.engines", "mmap", "psycopg", "psycopg_pool", "sqlite3"}
EDGES = ("cli", "server", "formats", "adapters")


def modules(*rooms: str) -> list[str]:
    """The files of these rooms, relative to the package; a room may be a module or a folder."""
    found = [path for room in rooms for path in [PACKAGE / f"{room}.py", *PACKAGE.glob(f"{room}/**/*.py")]]
    return sorted(path.relative_to(PACKAGE).as_posix() for path in found if path.exists())


def imports(tree: ast.Module, module: str) -> Iterator[str]:
    """Everything that is imported anywhere in the module, by absolute name, also lazily."""
    package = ["hansard", *Path(module).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*here, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def trespasses(module: str, forbidden: set[str]) -> set[str]:
    """What the module imports, or calls, of what it must not."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    found = {bad for name in imports(tree, module) for bad in forbidden if f"{name}.".startswith(f"{bad}.")}
    if "io" in forbidden and any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
        for node in ast.walk(tree)
    ):
        found.add("open()")
    return found


@pytest.mark.parametrize("module", [name for name in modules("engines") if name != "engines/disk.py"])
def test_of_the_engines_only_disk_touches_the_file_system(module: str) -> None:
    assert not trespasses(module, FILES), f"{module}: ask hansard.engines.disk instead"


@pytest.mark.parametrize("module", modules("views", "records", "messages"))
def test_records_and_views_touch_nothing_outside(module: str) -> None:
    assert not trespasses(module, OUTSIDE), f"{module}: records in, value out; the caller does the I/O"


@pytest.mark.parametrize("module", modules(*EDGES))
def test_edges_store_nothing(module: str) -> None:
    assert not trespasses(module, STORAGE), f"{module}: go through hansard.open() and the store"
