"""States that are known from their description alone, for torch and for cairn_probe save/load."""

from __future__ import annotations

from typing import Any

import torch

Spec = dict[str, Any]

# name, dtype, shape: small ones, odd sizes, no elements, and one large enough to be aligned in the file.
TENSORS = [
    ("w", "bfloat16", (37, 24)),
    ("exp_avg", "float32", (129, 40)),
    ("large", "float32", (512, 300)),
    ("fp8", "float8_e4m3fn", (16, 16)),
    ("complex", "complex64", (7, 9)),
    ("none", "float32", (0, 3)),
]
WHOLE = [("counts", "int64", (5,)), ("scalar", "float64", ())]
OBJECTS = {"step": 7, "notes": {"name": "run", "lr": 0.125, "list": [1, "two", None, True]}}


def pattern(spec: Spec) -> torch.Tensor:
    """The whole tensor; see tests/probe/probe_save_load.cc."""
    dtype = getattr(torch, spec["dtype"])
    shape = spec["shape"]
    count = torch.Size(shape).numel() * dtype.itemsize
    k = torch.arange(count, dtype=torch.int64) * 7919 + spec["seed"] * 31
    return ((k >> 3) & 255).to(torch.uint8).view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def spec_of(ranks: int, kinds: dict[str, tuple[list[int], list[int]]], **options: Any) -> Spec:
    """Every tensor once per kind (a mesh and what its dimensions cut), and the whole ones."""
    tensors = []
    for number, (kind, (mesh, cuts)) in enumerate(kinds.items()):
        for i, (name, dtype, shape) in enumerate(TENSORS):
            tensors.append(
                {"name": f"{kind}.{name}", "dtype": dtype, "shape": list(shape), "seed": 10 * number + i,
                 "mesh": mesh, "cuts": cuts}
            )
    for i, (name, dtype, shape) in enumerate(WHOLE):
        tensors.append({"name": f"whole.{name}", "dtype": dtype, "shape": list(shape), "seed": 90 + i})
    return {"ranks": ranks, "tensors": tensors, "objects": OBJECTS, **options}


def recut(spec: Spec, ranks: int) -> Spec:
    """The same tensors on another number of ranks, each cut in another way."""
    meshes = {1: [[1]], 2: [[2], [2, 1]], 3: [[3], [1, 3]], 4: [[4], [2, 2]]}[ranks]
    tensors = []
    for i, tensor in enumerate(spec["tensors"]):
        plain = {key: tensor[key] for key in ("name", "dtype", "shape", "seed")}
        if len(tensor["shape"]) < 2 or i % 5 == 4:
            tensors.append(plain)
            continue
        mesh = meshes[i % len(meshes)]
        cuts = [[i % 2], [1 - i % 2, i % 2]][len(mesh) - 1]
        tensors.append({**plain, "mesh": mesh, "cuts": cuts})
    return {"ranks": ranks, "tensors": tensors, "objects": spec["objects"]}
