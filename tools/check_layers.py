#!/usr/bin/env python3
"""Checks the layers of the project by its #include lines (docs/design.md draws them).

Code in src/<layer> includes only its own layer and those below it. Public headers include only public
headers; the command, the Python module and the examples include only public headers and their own files.
No file includes itself, however long the way round. Prints one line per violation, file:line first, and
exits 1 when there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from includes import Include, includes_of, project_files

# What each layer may see, besides itself.
LAYERS: dict[str, set[str]] = {
    "base": set(),
    "tensor": {"base"},
    "device": {"tensor", "base"},
    "group": {"base"},
    "state": {"tensor", "base"},
    "plan": {"state", "tensor", "base"},
    "format": {"state", "tensor", "base"},
    "storage": {"format", "plan", "device", "state", "tensor", "base"},
    "engine": {"plan", "format", "storage", "group", "device", "state", "tensor", "base"},
}

# The layer a public header speaks for; the ones not named here are the engine's.
PUBLIC: dict[str, str] = {
    "error.h": "base",
    "glob.h": "base",
    "limits.h": "base",
    "source.h": "base",
    "version.h": "base",
    "tensor.h": "tensor",
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
    "checkpoint_storage.h": "storage",
    "hugging_face.h": "storage",
}

FACES = ("cli", "python/src", "examples")  # they see the public headers only
FOLDERS = ("src", "include", *FACES)


def layer_of(file: str) -> str:
    """The layer a file of src/ or include/cairn/ belongs to; "" for any other file."""
    parts = file.split("/")
    if parts[:2] == ["include", "cairn"]:
        return PUBLIC.get(parts[-1], "engine")
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
    for face in FACES:
        if file.startswith(face + "/"):
            own = target.startswith(face + "/")
            return None if public or own else f"{face} includes {include.name}, which is not a public header"
    own_layer, layer = layer_of(file), layer_of(target)
    if own_layer not in LAYERS:
        return f"{own_layer or 'src'} is not a layer: {', '.join(LAYERS)} are"
    if layer == own_layer or layer in LAYERS[own_layer]:
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
