#!/usr/bin/env python3
"""Write src/hansard/aio/__init__.pyi: the types of the asynchronous side, from the synchronous classes.

scripts/aio.py           writes the file
scripts/aio.py --check   fails where it is stale
"""

from __future__ import annotations

import argparse
import ast
import builtins
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "src" / "hansard" / "aio" / "__init__.pyi"
sys.path.insert(0, str(ROOT / "src"))

from hansard import aio  # noqa: E402
from hansard.aio.following import Follower  # noqa: E402
from hansard.aio.twins import twin_of, way_of  # noqa: E402
from hansard.session import Session, View  # noqa: E402
from hansard.store import Store  # noqa: E402
from hansard.store import open as open_store  # noqa: E402

HEAD = '''\
"""Written by scripts/aio.py (`make docs`) from the synchronous classes. Not to be edited."""

from __future__ import annotations

'''


class Names:
    """Where the names in annotations come from; what the twins bring with them is defined here."""

    def __init__(self) -> None:
        self.imports: set[tuple[str, str, str]] = set()
        self.aliases: dict[str, str] = {}
        self.living: list[type] = []

    def use(self, text: str, module: str) -> str:
        """Notes what an annotation needs, and gives it back."""
        for name in re.findall(r"(?<![\w.'\"])[A-Za-z_]\w*", text):
            if hasattr(builtins, name) or name in ("None", "True", "False"):
                continue
            self._note(name, module)
        return text

    def _note(self, name: str, module: str) -> None:
        found = vars(sys.modules[module]).get(name)
        source = (found.__module__, found.__qualname__) if isinstance(found, type) else None
        if source is None or source[0] == "builtins":
            source = _imported(module, name)
        if found is None and source is not None:
            found = getattr(import_module(source[0]), source[1])
        if inspect.ismodule(found):
            self.imports.add((found.__name__, "", name))
        elif isinstance(found, type) and twin_of(found) is not None:
            if found not in self.living:
                self.living.append(found)
        elif isinstance(found, type) and found.__module__ == "builtins":
            self.aliases[name] = found.__name__
        elif source is not None:
            self.imports.add((*source, name))
        else:  # defined there
            self.imports.add((module, name, name))


def _imported(module: str, name: str) -> tuple[str, str] | None:
    """Where a module imports a name from, for types only maybe."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return node.module, alias.name
    return None


def signature(function: Any, names: Names) -> str:
    """The parameters of a function, as text."""
    parts: list[str] = []
    star = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            parts.append("*")
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        star = star or prefix == "*"
        part = prefix + parameter.name
        if parameter.annotation is not parameter.empty:
            part += f": {names.use(str(parameter.annotation), function.__module__)}"
        if parameter.default is not parameter.empty:
            plain = parameter.default is None or isinstance(parameter.default, bool | int | float | str)
            default = repr(parameter.default).replace("'", '"') if plain else "..."
            part += f" = {default}" if ": " in part else f"={default}"
        parts.append(part)
    return ", ".join(parts)


def gives(function: Any, names: Names) -> str:
    text = str(function.__annotations__.get("return", "None"))
    return names.use(text, function.__module__)


def method(name: str, function: Any, own: Any, names: Names) -> str:
    way = way_of(function)
    told = gives(function, names)
    if way == "ask" and inspect.iscoroutinefunction(own):
        begin, told = "async def", told
    elif way == "stream":
        begin, told = "def", "Stream" + told[told.index("[") :]
    elif way == "open":
        begin, told = "def", f"Opening[{told}]"
    else:
        begin = "def"
    return f"{begin} {name}({signature(function, names)}) -> {told}:\n    {_doc(function)}\n"


def _doc(thing: Any) -> str:
    doc = inspect.getdoc(thing)
    if not doc:
        return "..."
    text = doc.replace("\\", "\\\\").replace("\n", "\n    ")
    return f'"""{text}"""'


def attributes(kind: type, names: Names) -> Iterator[str]:
    """What an object is given when it is made."""
    made = vars(kind).get("__init__")
    if not inspect.isfunction(made):
        return
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(made)))):
        if isinstance(node, ast.Assign):
            target, of = node.targets[0], node.value
            text = of.func.id if isinstance(of, ast.Call) and isinstance(of.func, ast.Name) else "Any"
            text = text if isinstance(vars(sys.modules[kind.__module__]).get(text), type) else "Any"
        elif isinstance(node, ast.AnnAssign):
            target, text = node.target, ast.unparse(node.annotation)
        else:
            continue
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            if text == "Any":
                names.imports.add(("typing", "Any", "Any"))
            yield f"{target.attr}: {names.use(text, kind.__module__) if text != 'Any' else text}\n"


def members(kind: type, names: Names) -> Iterator[str]:
    twin = twin_of(kind)
    yield from attributes(kind, names)
    if "__getattr__" in vars(kind):
        yield "def __getattr__(self, name: str) -> Any: ...\n"
    for name, member in vars(kind).items():
        own = inspect.getattr_static(twin, name, None)
        if name == "__enter__":
            yield "async def __aenter__(self) -> Self: ...\n"
            yield "async def __aexit__(self, *exc: object) -> None: ...\n"
        elif name == "__iter__":
            yield f"def __aiter__(self) -> Async{gives(member, names)}: ...\n"
        elif name.startswith("_"):
            continue
        elif isinstance(member, property):
            text = f"@property\ndef {name}(self) -> {gives(member.fget, names)}:\n    "
            yield text + f"{_doc(member)}\n"
        elif inspect.isfunction(member):
            yield method(name, member, own, names)


def written() -> str:
    """The file, as it should be."""
    names = Names()
    names.living += [View, Session, Store]
    classes: list[str] = []
    done: list[type] = []
    while waiting := [kind for kind in names.living if kind not in done]:
        for kind in waiting:
            done.append(kind)
            twin = twin_of(kind)
            if twin is Follower:
                continue
            bases = [base.__name__ for base in kind.__bases__ if base is not object and twin_of(base)]
            for base in kind.__bases__:
                if base is not object and twin_of(base) and base not in names.living:
                    names.living.append(base)
            body = "\n".join(members(kind, names)).replace("\n", "\n    ").rstrip()
            doc = "" if not kind.__doc__ else _doc(kind)
            classes.append(f"class {kind.__name__}({', '.join(bases)}):\n    {doc}\n\n    {body or '...'}\n")
    opening = f"def open({signature(open_store, names)}) -> Opening[Store]:\n    {_doc(open_store)}\n"
    over = f"def over(store: hansard.store.Store) -> Store:\n    {_doc(aio.over)}\n"
    body = "\n".join([*classes, opening, over])
    imports = {one for one in names.imports if re.search(rf"\b{one[2]}\b", body)}
    imports.add(("typing", "Self", "Self"))
    lines = ["import hansard.store\n"]
    for module, found, name in sorted(imports):
        begin, known = (f"from {module} import {found}", found) if found else (f"import {module}", module)
        lines.append(begin + (f" as {name}\n" if name != known else "\n"))
    lines += ["from hansard.aio.following import Follower as Follower\n"]
    lines += [f"from hansard.aio.twins import {name} as {name}\n" for name in ("Opening", "Stream")]
    aliases = [f"{name} = {of}\n" for name, of in sorted(names.aliases.items())]
    told = "\n".join(["".join(sorted(set(lines))), "".join(aliases), *classes, opening, over])
    shown = [kind.__name__ for kind in done if not kind.__name__.startswith("_")]
    exported = sorted({"Follower", "Opening", "Stream", "open", "over", *shown})
    told += f"\n__all__ = {exported!r}\n".replace("'", '"')
    return formatted(HEAD + told)


def formatted(text: str) -> str:
    import subprocess

    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--select", "I", "--fix", "-q"], ["format", "-q"]):
        done = subprocess.run(
            [str(ruff), *command, "--stdin-filename", str(PAGE), "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        if done.returncode and not done.stdout:
            raise SystemExit(f"{done.stderr}\n{text}")
        text = done.stdout
    return text


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--check", action="store_true", help="fail where the file is stale")
    wanted = written()
    if not options.parse_args().check:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        print(f"{PAGE.relative_to(ROOT)} is stale: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
