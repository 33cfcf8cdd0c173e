"""Which entries of a state know how to give and take their own."""

from __future__ import annotations

from typing import Any

import torch

_NEVER = frozenset({torch.Tensor, torch.nn.Parameter, dict, list, tuple, int, float, bool, str, bytes, type(None)})


def is_stateful(value: Any) -> bool:
    """As isinstance(value, Stateful), which takes longer than saving a small tensor."""
    if type(value) in _NEVER:
        return False
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))
