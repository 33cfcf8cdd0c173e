"""The #include graph of the project: which file names which other file, and on which line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)

# Where the compiler looks, relative to the root of the project.
SEARCH_PATH = ("src", "include", "tests/probe")


@dataclass(frozen=True)
class Include:
    """One #include line. `target` is relative to the root, or None for a file outside the project."""

    line: int
    name: str
    target: str | None


def includes_of(root: Path, file: str) -> list[Include]:
    """The #include lines of `file` (relative to `root`), in order."""
    text = (root / file).read_text(encoding="utf-8", errors="replace")
    found = []
    for match in _INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(1)) + 1
        found.append(Include(line, match[1], _resolve(root, file, match[1])))
    return found


def project_files(root: Path, folders: tuple[str, ...]) -> list[str]:
    """The C++ files below `folders`, relative to `root`, sorted."""
    return sorted(
        str(path.relative_to(root))
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.suffix in (".h", ".cc")
    )


def closure(root: Path, file: str, seen: dict[str, list[Include]]) -> set[str]:
    """`file` and every project file it includes, however far down. `seen` is a cache across calls."""
    reached: set[str] = set()
    waiting = [file]
    while waiting:
        current = waiting.pop()
        if current in reached:
            continue
        reached.add(current)
        if current not in seen:
            seen[current] = includes_of(root, current)
        waiting += [include.target for include in seen[current] if include.target]
    return reached


def _resolve(root: Path, file: str, name: str) -> str | None:
    folders = [(root / file).parent, *(root / folder for folder in SEARCH_PATH)]
    for folder in folders:
        path = (folder / name).resolve()
        if path.is_file() and path.is_relative_to(root):
            return str(path.relative_to(root))
    return None
