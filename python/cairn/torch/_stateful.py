"""Which entries of a state know how to give and take their own."""

from __future__ import annotations

from typing import Any, Callable

import torch

_NEVER = frozenset({torch.Tensor, torch.nn.Parameter, dict, list, tuple, int, float, bool, str, bytes, type(None)})


def is_stateful(value: Any) -> bool:
    """As isinstance(value, Stateful), which takes longer than saving a small tensor."""
    if type(value) in _NEVER:
        return False
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


class Failed:
    """In place of a state that could not be made on this rank: what was raised, for the step that all ranks share."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def made(make: Callable[[], Any], alone: bool = False) -> Any:
    """What `make` gives, or why it failed: other ranks are to hear of it before this one stops."""
    try:
        return make()
    except Exception as error:
        if alone:
            raise
        return Failed(error)
