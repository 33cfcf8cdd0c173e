"""States to convert, and how to tell whether two of them are the same."""

from __future__ import annotations

import collections
import fractions
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64,
    torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip


def every_dtype() -> dict[str, Any]:
    torch.manual_seed(3)
    raw = torch.randint(0, 2, (24, 16), dtype=torch.uint8)
    return {str(dtype).removeprefix("torch."): raw.clone().view(dtype).clone() for dtype in DTYPES}


def rich() -> dict[str, Any]:
    """Nested tensors of many forms, plain values, and objects of classes that only Python knows."""
    torch.manual_seed(5)
    return {
        "model": {
            "embed.weight": torch.randn(50, 24),
            "layers.0.w": torch.randn(24, 24).t(),
            "layers.0.b": torch.arange(24, dtype=torch.int64),
            "scalar": torch.tensor(2.5, dtype=torch.float64),
            "empty": torch.zeros(0, 7),
            "half": torch.randn(33).to(torch.bfloat16),
        },
        "optim": {
            "state": {0: {"exp_avg": torch.randn(5, 3), "step": torch.tensor(7.0)}, 1: {"exp_avg": torch.randn(2)}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1]}],
        },
        "list": [torch.ones(3), {"deep": torch.zeros(2, 2)}, "text"],
        "pair": (torch.arange(6.0), 5),
        "none": None,
        "big": 2**70,
        "bytes": b"\x00\xff",
        "text": "snow \u2603",
        "ordered": collections.OrderedDict(a=1, b=[2, 3]),
        "fraction": fractions.Fraction(22, 7),
        "set": {1, 2},
        "size": torch.Size([2, 3]),
        "mixed": [fractions.Fraction(1, 3), (torch.ones(2, dtype=torch.int32), "0")],
    }


def from_torch_file(state: dict[str, Any]) -> dict[str, Any]:
    """What a conversion makes of a state in a torch.save file: a torch.Size is a tuple afterwards."""
    return {key: tuple(value) if isinstance(value, torch.Size) else value for key, value in state.items()}


def tensors_only(state: Any, prefix: str = "") -> dict[str, Any]:
    """The tensors that DCP makes entries of, by flat name."""
    found: dict[str, Any] = {}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    for key, value in items:
        name = f"{prefix}{key}"
        if isinstance(value, torch.Tensor):
            found[name] = value
        else:
            found.update(tensors_only(value, name + "."))
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape or a.requires_grad != b.requires_grad:
            return False
        a, b = a.detach().contiguous(), b.detach().contiguous()
        return a.numel() == 0 or bool(torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8)))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def save_dcp(state: Any, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=path, no_dist=True)


def load(path: Path, weights_only: bool = False) -> Any:
    return torch.load(path, weights_only=weights_only)
