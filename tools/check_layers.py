#!/usr/bin/env python3
"""Checks the layers of the project by its #include lines (docs/design.md draws them).

Code in src/<layer> includes only its own layer and those it is said to see; a test also sees the public headers and
src/testing. Public headers include only public headers; the command, the Python module and the examples include
only public headers and their own files.
No file includes itself, however long the way round. Prints one line per violation, file:line first, and
exits 1 when there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from includes import Include, includes_of, project_files

# What each layer may see, besides itself.
_VALUES = {"state", "tensor", "base"}
_READING = {"format", "storage", "plan", "device"} | _VALUES
_LIVES = {"checkpoint", "reading", "group"} | _READING
_TOP = {"save", "load"} | _LIVES
_ALL = {"background", "convert", "upkeep"} | _TOP
LAYERS: dict[str, set[str]] = {
    "base": set(),
    "tensor": {"base"},
    "state": {"tensor", "base"},
    "device": {"tensor", "base"},
    "storage": {"base"},
    "group": {"base"},
    "format": _VALUES,
    "plan": _VALUES,
    "reading": _READING,
    "checkpoint": {"reading"} | _READING,
    "save": _LIVES,
    "load": _LIVES,
    "background": _TOP,
    "convert": _TOP,
    "upkeep": _TOP,
    # Not in the library: what `cairn bench` measures, and what only tests use.
    "measure": _ALL,
    "testing": _ALL,
}

# The layer a public header speaks for.
PUBLIC: dict[str, str] = {
    "error.h": "base",
    "glob.h": "base",
    "limits.h": "base",
    "source.h": "base",
    "version.h": "base",
    "tensor.h": "tensor",
    "selection.h": "tensor",
    "dlpack.h": "tensor",
    "dequantize.h": "tensor",
    "device.h": "device",
    "state_dict.h": "state",
    "metadata.h": "state",  # plain values that plan and format share
    "plan.h": "plan",
    "plan_steps.h": "plan",
    "planner.h": "plan",
    "load_report.h": "plan",
    "layout.h": "plan",
    "group.h": "group",
    "mpi_group.h": "group",
    "storage.h": "storage",
    "dcp_metadata.h": "format",
    "checkpoint_storage.h": "reading",  # the interfaces of save and load
    "hugging_face.h": "reading",
    "checkpoint.h": "checkpoint",
    "cairn.h": "checkpoint",
    "optimizer.h": "load",
    "torch_save.h": "load",
    "async.h": "background",
    "staging.h": "background",
    "convert.h": "convert",
    "verify.h": "upkeep",
    "gc.h": "upkeep",
}

# They see the public headers, and what stands here.
FACES: dict[str, set[str]] = {"cli": {"measure"}, "python/src": set(), "examples": set()}
FOLDERS = ("src", "include", *FACES)


def layer_of(file: str) -> str:
    """The layer a file of src/ or include/cairn/ belongs to; "" for any other file."""
    parts = file.split("/")
    if parts[:2] == ["include", "cairn"]:
        return PUBLIC.get(parts[-1], "")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return ""


def problem_with(file: str, include: Include) -> str | None:
    """Why `file` may not have this include; None when it may."""
    target = include.target or _named(include.name)
    if target is None:
        return None
    public = target.startswith("include/cairn/")
    if file.startswith("include/"):
        return None if public else f"a public header includes {include.name}, which is not public"
    for face, sees in FACES.items():
        if file.startswith(face + "/"):
            own = target.startswith(face + "/") or layer_of(target) in sees
            return None if public or own else f"{face} includes {include.name}, which is not a public header"
    own_layer, layer = layer_of(file), layer_of(target)
    if own_layer not in LAYERS:
        return f"{own_layer or 'src'} is not a layer: {', '.join(LAYERS)} are"
    if layer == own_layer or layer in LAYERS[own_layer] or (file.endswith("_test.cc") and (public or layer == "testing")):
        return None
    sees = ", ".join(sorted(LAYERS[own_layer])) or "nothing"
    return f"layer {own_layer} includes {include.name} of {layer or target}; it sees {sees}"


def find_cycles(graph: dict[str, list[Include]]) -> list[str]:
    """One line for each #include that closes a circle, by a depth-first walk."""
    problems = []
    done: set[str] = set()
    for start in graph:
        if start in done:
            continue
        path = [start]  # the files being walked, outermost first
        steps = [iter(graph[start])]
        while path:
            include = next(steps[-1], None)
            if include is None:
                done.add(path.pop())
                steps.pop()
            elif include.target in path:
                circle = [*path[path.index(include.target) :], include.target]
                problems.append(f"{path[-1]}:{include.line}: include cycle: {' -> '.join(circle)}")
            elif include.target in graph and include.target not in done:
                path.append(include.target)
                steps.append(iter(graph[include.target]))
    return problems


def check(root: Path) -> list[str]:
    """Every violation below `root`, as file:line: text."""
    root = root.resolve()
    graph = {file: includes_of(root, file) for file in project_files(root, FOLDERS)}
    problems = []
    for file, includes in graph.items():
        for include in includes:
            problem = problem_with(file, include)
            if problem:
                problems.append(f"{file}:{include.line}: {problem}")
    return problems + find_cycles(graph)


def _named(name: str) -> str | None:
    """The project file an include means by its name alone, there or not."""
    first, _, rest = name.partition("/")
    if not rest:
        return None
    if first == "cairn":
        return f"include/{name}"
    return f"src/{name}" if first in LAYERS else None


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
