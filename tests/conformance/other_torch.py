"""The face of torch.distributed.checkpoint, of whatever torch is installed, under cairn.torch: modules, names, signatures.

`make conformance TORCH=x.y` runs it with a torch of that release.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

pytest.importorskip("torch")

import torch.distributed.checkpoint as stock

import cairn.torch

MODULES = sorted(each.name for each in pkgutil.iter_modules(stock.__path__) if not each.name.startswith("_"))
# Further ones that Megatron-core, torchtitan and transformers import.
INNER = ["_consolidate_hf_safetensors", "_nested_dict", "_traverse"]


def _public(module: Any) -> list[str]:
    """What a module offers: its `__all__`, or what it defines itself."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return sorted({*getattr(module, "__all__", []), *own})


def _parameters(function: Any) -> list[tuple[Any, ...]] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [(each.name, each.kind, each.default) for each in parameters]


def _differences(at: str, theirs: Any, ours: Any) -> list[str]:
    """What a caller of torch's would trip over. Further arguments of ours are by name and have defaults."""
    if theirs is ours:
        return []
    if inspect.isclass(theirs):
        if not inspect.isclass(ours):
            return [f"{at}: not a class"]
        found = _differences(f"{at}.__init__", theirs.__init__, ours.__init__)
        for name, member in inspect.getmembers(theirs, inspect.isroutine):
            if not name.startswith("_"):
                found += _differences(f"{at}.{name}", member, getattr(ours, name, None))
        return found
    if not callable(theirs):
        return [] if type(theirs) is type(ours) else [f"{at}: {type(ours)} and not {type(theirs)}"]
    expected, got = _parameters(theirs), _parameters(ours) if callable(ours) else None
    if got is None:
        return [] if expected is None else [f"{at}: missing"]
    more = [each for each in got if each not in (expected or [])]
    is_optional = all(kind is inspect.Parameter.KEYWORD_ONLY and default is not inspect._empty for _, kind, default in more)
    same = [each for each in got if each in (expected or [])] == expected and is_optional
    return [] if same else [f"{at}{inspect.signature(ours)}, and torch's is {inspect.signature(theirs)}"]


@pytest.mark.parametrize("name", [*MODULES, *INNER])
def test_a_module_is_there(name: str) -> None:
    theirs = importlib.import_module(f"torch.distributed.checkpoint.{name}")
    ours = importlib.import_module(f"cairn.torch.{name}")
    missing = [each for each in _public(theirs) if not hasattr(ours, each)]
    assert missing == []
    found = [line for each in _public(theirs) for line in _differences(each, getattr(theirs, each), getattr(ours, each))]
    assert found == []


def test_the_names_of_the_package() -> None:
    names = [name for name in vars(stock) if not name.startswith("_")]
    assert [name for name in names if not hasattr(cairn.torch, name)] == []
    found = [line for name in names for line in _differences(name, getattr(stock, name), getattr(cairn.torch, name))]
    assert found == []


def test_it_can_be_installed() -> None:
    with cairn.torch.installed():
        assert stock.save is cairn.torch.save
    assert stock.save is not cairn.torch.save
