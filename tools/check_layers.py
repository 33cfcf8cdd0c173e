#!/usr/bin/env python3
"""Checks the layers of the project by its #include and import lines (docs/design.md draws them).

Code in src/<layer> includes only its own layer and those it is said to see; a test also sees the public headers and
src/testing. Public headers include only public headers; the command, the Python module and the examples include
only public headers and their own files.
No file includes itself, however long the way round. Only src/storage talks to the system about files. A module of the
Python package imports only those that stand above it in a list, so there is no circle either; below cairn.torch they
may import torch; one of them touches files, the others leave that to it and to the engine. Prints one line per
violation, file:line first, and exits 1 when there is one.
"""

from __future__ import annotations

import ast
import re
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
    "runs": _ALL,
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
    "transform.h": "plan",
    "planner.h": "plan",
    "load_report.h": "plan",
    "layout.h": "plan",
    "group.h": "group",
    "mpi_group.h": "group",
    "tcp_group.h": "group",
    "storage.h": "storage",
    "dcp_metadata.h": "format",
    "pickle_view.h": "format",
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
    "keep.h": "runs",
}

# Headers that open, list or change files: for src/storage alone. What only tests and `cairn bench` use is excepted, and
# so is the type of a path that Python hands over.
FILE_HEADERS = {"fcntl.h", "sys/stat.h", "sys/statvfs.h", "sys/file.h", "dirent.h", "filesystem", "fstream"}
MAY_TOUCH_FILES = ("src/storage/", "src/testing/", "src/measure/", "examples/")
TAKES_PATHS = "python/src/"
# What <unistd.h> has of that, beside what everybody needs.
FILE_CALL = re.compile(
    r"(?<![\w>])::(access|fdatasync|fsync|ftruncate|link|lseek|mkdir|open|openat|pread|pwrite|read|readlink|rename|renameat"
    r"|rmdir|symlink|truncate|unlink|unlinkat|write)\("
)

# A module of the Python package sees those that stand before it.
MODULES = (
    "cairn._engine cairn._errors cairn._arrays cairn._index cairn._checkpoint cairn._converting cairn._bar "
    "cairn._plain cairn._url_files cairn cairn.torch._needs_torch cairn.torch._progress cairn.torch._report "
    "cairn.torch._stateful cairn.torch._errors cairn.torch._group cairn.torch._objects cairn.torch._convert "
    "cairn.torch._dist cairn.torch._tensors cairn.torch._places cairn.torch._install "
    "cairn.torch.planner_helpers cairn.torch.default_planner cairn.torch.filesystem "
    "cairn.torch._fsspec_filesystem cairn.torch._storage_utils cairn.torch._consolidate_hf_safetensors "
    "cairn.torch.hf_storage cairn.torch.quantized_hf_storage cairn.torch._torch_save cairn.torch._ways "
    "cairn.torch._native cairn.torch._open cairn.torch._saving cairn.torch._async cairn.torch.state_dict_saver "
    "cairn.torch.state_dict_loader cairn.torch._checkpointer cairn.torch.optimizer cairn.torch.format_utils "
    "cairn.torch cairn.torch.__main__"
).split()

# None of them touches files by itself; by what a module is seen to do so. (Streams and names of a
# torch.distributed.checkpoint.filesystem.FileSystemBase are that file system's.)
OF_OS = set(
    "access fsync link listdir makedirs mkdir open remove removedirs rename renames replace rmdir scandir stat symlink "
    "truncate unlink walk".split()
)
OF_OS_PATH = {"exists", "getmtime", "getsize", "isdir", "isfile", "islink", "lexists"}
OF_PATH = {"iterdir", "read_bytes", "read_text", "rglob", "write_bytes", "write_text"}
OF_FILES = {"glob", "mmap", "shutil", "tempfile"}  # modules

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
    may_touch = file.endswith("_test.cc") or file.startswith(MAY_TOUCH_FILES)
    takes_paths = include.name == "filesystem" and file.startswith(TAKES_PATHS)
    if include.name in FILE_HEADERS and not may_touch and not takes_paths:
        return f"<{include.name}> belongs to src/storage: files are reached through cairn/storage.h"
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
    if layer == own_layer or layer in LAYERS[own_layer]:
        return None
    if file.endswith("_test.cc") and (public or layer == "testing"):
        return None
    seen = ", ".join(sorted(LAYERS[own_layer])) or "nothing"
    return f"layer {own_layer} includes {include.name} of {layer or target}; it sees {seen}"


def file_calls_in(root: Path, file: str) -> list[str]:
    """Every call of the system about files, where there may be none."""
    if file.endswith("_test.cc") or file.startswith(MAY_TOUCH_FILES):
        return []
    lines = (root / file).read_text(encoding="utf-8").splitlines()
    called = ((at, FILE_CALL.search(line)) for at, line in enumerate(lines, 1))
    to_the_terminal = "write" if file.startswith("cli/") else ""
    return [
        f"{file}:{at}: {found[0]}...) is src/storage's to call"
        for at, found in called
        if found and found[1] != to_the_terminal
    ]


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


def imports_of(tree: ast.AST, module: str, is_package: bool) -> list[tuple[int, str]]:
    """What a module imports, with the line: dotted names, "pkg.name" for `from pkg import name`."""
    found = []
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - (node.level - 1)] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def file_calls_of(tree: ast.AST) -> list[tuple[int, str]]:
    """Where a module touches files, with the line."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        *owner, name = called.split(".")
        of = ".".join(owner)
        touches = (
            (called == "open" and "open" not in own)
            or (of in ("os", "io") and name in OF_OS)
            or (of == "os.path" and name in OF_OS_PATH)
            or (bool(of) and name in OF_PATH)
            or of in OF_FILES
        )
        if touches:
            found.append((node.lineno, called))
    return found


def check_python(root: Path) -> list[str]:
    """Every import of the Python package that goes the wrong way, and every file that is touched past the engine, as
    file:line: text."""
    problems = []
    for path in sorted((root / "python/cairn").rglob("*.py")):
        file = str(path.relative_to(root))
        module = ".".join(path.relative_to(root / "python").with_suffix("").parts).removesuffix(".__init__")
        if module not in MODULES:
            problems.append(f"{file}:1: {module} has no place in the list of modules")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for line, called in file_calls_of(tree):
            problems.append(f"{file}:{line}: {module} calls {called}; files are the engine's")
        for line, name in imports_of(tree, module, path.name == "__init__.py"):
            target = name if name in MODULES else name.rpartition(".")[0]
            if name.split(".")[0] == "torch" and not module.startswith("cairn.torch"):
                problems.append(f"{file}:{line}: {module} imports torch; only cairn.torch may")
            elif target in MODULES and target != module and MODULES.index(target) > MODULES.index(module):
                problems.append(f"{file}:{line}: {module} imports {target}, which stands below it")
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
        problems += file_calls_in(root, file)
    return problems + find_cycles(graph) + check_python(root)


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
