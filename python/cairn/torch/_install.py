"""Putting cairn's functions and classes where PyTorch keeps its own."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from . import _objects

logger = logging.getLogger("cairn")

_TORCH = "torch.distributed.checkpoint"
# A module of torch's, and cairn's of the same name. What cairn's has of cairn's goes into torch's.
_MODULES = (
    "planner_helpers default_planner filesystem _fsspec_filesystem _consolidate_hf_safetensors hf_storage "
    "quantized_hf_storage _storage_utils state_dict_saver state_dict_loader _checkpointer optimizer "
    "format_utils"
).split()
_changed: list[tuple[ModuleType, str, Any]] = []


def is_installed() -> bool:
    return bool(_changed)


def install(*, safe: bool = False) -> None:
    """From here on `torch.distributed.checkpoint` saves and loads through cairn, whoever calls it.

    Modules that took functions or classes of torch's by name before get cairn's too. Calling it twice changes
    nothing. With `safe=True` objects that are more than plain data and tensors are refused when loading.

    >>> import cairn.torch; cairn.torch.install()
    """
    _objects.set_safe(safe)
    if _changed:
        return
    replaced: dict[int, Any] = {}
    # All of them first: classes of torch's must derive from torch's own, and cairn's from those.
    pairs = [pair for name in _MODULES if (pair := _imported(name))]
    for theirs, ours in pairs:
        _install_module(theirs, ours, replaced)
    _replace_elsewhere(replaced)


def _imported(name: str) -> tuple[ModuleType, ModuleType] | None:
    try:
        return importlib.import_module(f"{_TORCH}.{name}"), importlib.import_module(f"cairn.torch.{name}")
    except ImportError as error:
        logger.warning("cairn leaves %s.%s alone: %s", _TORCH, name, error)
        return None


def _install_module(theirs: ModuleType, ours: ModuleType, replaced: dict[int, Any]) -> None:
    for key, value in vars(ours).items():
        own = callable(value) and str(getattr(value, "__module__", "")).startswith("cairn.torch.")
        if not own or key not in vars(theirs):
            continue
        original = vars(theirs)[key]
        replaced[id(original)] = (original, value)
        _change(theirs, key, value)


def _replace_elsewhere(replaced: dict[int, Any]) -> None:
    """Names under which other modules hold what was replaced: the package itself, frameworks, the user's own."""
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if not isinstance(module, ModuleType) or name.startswith("cairn."):
            continue
        for key, value in list(vars(module).items()):
            original, ours = replaced.get(id(value), (None, None))
            if original is not None and original is value:
                _change(module, key, ours)


def _change(module: ModuleType, key: str, value: Any) -> None:
    _changed.append((module, key, vars(module)[key]))
    setattr(module, key, value)


def uninstall() -> None:
    """Puts everything back. What was made meanwhile stays what it is."""
    while _changed:
        module, key, original = _changed.pop()
        setattr(module, key, original)
    _objects.set_safe(False)


@contextmanager
def installed(*, safe: bool = False) -> Iterator[None]:
    """`install` for the length of a block.

    >>> with cairn.torch.installed():
    ...     trainer.save_checkpoint()
    """
    already = is_installed()
    install(safe=safe)
    try:
        yield
    finally:
        if not already:
            uninstall()
