"""_engine.pyi describes the compiled module: all of it, and nothing else."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from cairn import _engine

SEES = ()  # none of the sources: tests/once.py

STUB = Path(__file__).resolve().parents[2] / "python" / "cairn" / "_engine.pyi"
TREE = ast.parse(STUB.read_text())


def described(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    return {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def is_type_only(node: ast.stmt) -> bool:
    """A class that exists for type checkers alone."""
    if not isinstance(node, ast.ClassDef):
        return False
    bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
    known = described(TREE.body)
    return bool(bases & {"TypedDict", "Protocol"}) or any(
        base in known and is_type_only(known[base]) for base in bases
    )


DESCRIBED = {name: node for name, node in described(TREE.body).items() if not is_type_only(node)}


def test_the_stub_names_what_the_module_has() -> None:
    assert set(DESCRIBED) == {name for name in dir(_engine) if not name.startswith("_")}


CLASSES = [name for name, node in DESCRIBED.items() if isinstance(node, ast.ClassDef) and name != "Error"]


@pytest.mark.parametrize("name", CLASSES)
def test_the_stub_names_the_methods_of_a_class(name: str) -> None:
    node = DESCRIBED[name]
    assert isinstance(node, ast.ClassDef)
    own = {member for member in vars(getattr(_engine, name)) if not member.startswith("_")}
    public = {member for member in described(node.body) if not member.startswith("_")}
    assert public == own


FUNCTIONS = {name: (node, getattr(_engine, name)) for name, node in DESCRIBED.items() if name not in CLASSES}
FUNCTIONS.update(
    {
        f"{name}.{method}": (inner, getattr(getattr(_engine, name), method))
        for name in CLASSES
        for method, inner in described(DESCRIBED[name].body).items()  # type: ignore[attr-defined]
        if callable(getattr(getattr(_engine, name), method))
    }
)
del FUNCTIONS["Error"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_stub_names_the_parameters_of_a_function(name: str) -> None:
    node, function = FUNCTIONS[name]
    assert isinstance(node, ast.FunctionDef)
    bound = [line for line in (function.__doc__ or "").splitlines() if line.startswith(f"{node.name}(")]
    assert len(bound) == 1, "nanobind puts the signature into the docstring"
    call = ast.parse(f"def {signature_without_types(bound[0])}: ...").body[0]
    assert isinstance(call, ast.FunctionDef)
    assert [arg.arg for arg in node.args.args] == [arg.arg for arg in call.args.args]
    assert len(node.args.defaults) == len(call.args.defaults)


def signature_without_types(line: str) -> str:
    """Types are in C++'s words; quotes make anything an annotation."""
    name, rest = line.split("(", 1)
    inside, depth, parts, part = rest.rsplit(") ->", 1)[0], 0, [], ""
    for letter in inside:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    parts = [p.strip() for p in [*parts, part] if p.strip()]
    plain = [p.split(":")[0] + (" = 0" if "=" in p else "") for p in parts if p not in ("/", "*")]
    return f"{name}({', '.join(plain)})"


def test_errors_have_the_attributes_of_the_stub() -> None:
    node = DESCRIBED["Error"]
    assert isinstance(node, ast.ClassDef)
    told = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    assert told == {name for name in vars(_engine.Error) if not name.startswith("_")}
    assert inspect.isclass(_engine.Error)
