"""cairn.torch translates: planning, writing, reading and publishing are the engine's (files: tools/check_layers.py)."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python/cairn/torch"
LINES = 2_500

MODULES = {"pickle", "threading"}
OF_OS = {"PathLike", "fspath", "fsdecode", "fsencode"}  # what a path is, and no more
# Where one of these is meant, and why.
MEANT = {
    ("_convert", "pickle"): "what a caller's own planner leaves in a description is stored as stock stores it",
    ("_async", "threading"): "a future needs a thread that waits, and the interpreter waits for it",
    ("_dist", "os.register_at_fork"): "a forked child has none of its parent's connections",
    ("hf_storage", "loop over items"): "objects, and files of two ranks, are refused with torch's words",
    ("_torch_save", "loop over items"): "a planner of the caller's own reads a file of torch.save through its coordinator",
}


def told(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        yield from MODULES & {name.split(".")[0] for name in names}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
        yield "open"
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id == "os" and node.attr not in OF_OS:
            yield f"os.{node.attr}"
    if isinstance(node, (ast.For, ast.comprehension)) and of_a_plan(node.iter):
        yield "loop over items"


def of_a_plan(looped: ast.AST) -> bool:
    """`plan.items`, or a variable of that name; not the method of a dict."""
    called = {id(node.func) for node in ast.walk(looped) if isinstance(node, ast.Call)}
    for node in ast.walk(looped):
        if isinstance(node, ast.Attribute) and node.attr == "items" and id(node) not in called:
            return True
        if isinstance(node, ast.Name) and node.id == "items":
            return True
    return False


def test_the_package_does_by_itself_what_is_listed_and_no_more() -> None:
    found = {
        (file.stem, what)
        for file in PACKAGE.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for what in told(node)
    }
    assert found == set(MEANT)
    assert len(MEANT) <= 5


def test_what_is_looked_for_is_found() -> None:
    source = "import pickle\nfrom threading import Lock\nopen('x')\nos.remove('x')\nfor i in plan.items: pass\n[i for i in items]"
    found = [what for node in ast.walk(ast.parse(source)) for what in told(node)]
    assert sorted(found) == ["loop over items"] * 2 + ["open", "os.remove", "pickle", "threading"]
    fine = "os.fspath(x)\nfor k, v in d.items(): pass\nengine.read(plan.items)"
    assert [what for node in ast.walk(ast.parse(fine)) for what in told(node)] == []


def lines_of_code(source: str) -> int:
    """Without blank lines, comments and docstrings."""
    strings = {
        node.body[0].lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False)
    }
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        docstring = token.type == tokenize.STRING and token.start[0] in strings
        if token.type not in empty and not docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def test_the_package_is_small() -> None:
    files = {file.name: lines_of_code(file.read_text()) for file in PACKAGE.glob("*.py")}
    assert sum(files.values()) <= LINES, sorted(files.items(), key=lambda each: -each[1])
