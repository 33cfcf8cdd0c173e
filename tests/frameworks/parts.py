"""States as names and bytes, to be compared bit for bit; and which of two libraries saves and which loads."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.tensor import DTensor

import cairn.torch

# Saved by, loaded by.
PAIRS = [("stock", "cairn"), ("cairn", "stock"), ("cairn", "cairn")]


def use(way: str) -> None:
    """On a rank, which is a process of its own: from here on all checkpoints go through cairn, or through stock PyTorch."""
    warnings.simplefilter("ignore")
    if way == "cairn":
        cairn.torch.install()


def saved_by(folder: Path) -> str:
    """Who wrote the checkpoints below a folder: only cairn leaves manifests."""
    descriptions = sorted(folder.rglob(".metadata"))
    manifests = {file.parent for file in folder.rglob(".cairn-manifest.*")}
    assert descriptions and manifests in (set(), {file.parent for file in descriptions})
    return "cairn" if manifests else "stock"


def parts(value: Any, at: str = "") -> dict[str, Any]:
    """All that is in a state on this rank, down to the bytes of the plain tensors that the others are made of."""
    if isinstance(value, dict):
        return {name: part for key, each in value.items() for name, part in parts(each, f"{at}.{key}").items()}
    if isinstance(value, (list, tuple)):
        return parts(dict(enumerate(value)), at)
    if isinstance(value, DTensor):
        return parts(value.to_local(), at + "|local")
    if isinstance(value, ShardedTensor):
        return parts([shard.tensor for shard in value.local_shards()], at + "|local")
    if hasattr(value, "__tensor_flatten__"):
        names, _ = value.__tensor_flatten__()
        return {key: each for name in names for key, each in parts(getattr(value, name), f"{at}|{name}").items()}
    if isinstance(value, torch.Tensor):
        return {at: bytes(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy())}
    return {at: value}


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return sorted(name for name in {*a, *b} if name not in a or name not in b or a[name] != b[name])
