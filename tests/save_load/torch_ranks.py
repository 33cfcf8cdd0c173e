"""Real torch on four gloo ranks: saves and loads a list of cases, each on some of the ranks.

A case is {"op": "save" | "load", "path": ..., "spec": ..., "writer": {...}, "zstd": ..., "collectives": ...}; its
spec's ranks are the first ranks of the job. The kind of a tensor is the first part of its name: "sharded" is a
ShardedTensor, "dtensor..." a DTensor, all else plain.
"""

from __future__ import annotations

import copy
import os
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor, init_from_local_shards
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.tensor import DeviceMesh, DTensor, Replicate
from torch.distributed.tensor import Shard as ShardPlacement
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from states import Spec, pattern

WORLD = 4


class Job:
    """What the ranks of one process share: subgroups and meshes, made in the same order on all ranks."""

    def __init__(self) -> None:
        self.groups = {n: dist.new_group(list(range(n))) for n in (1, 2, 4)}
        shapes = [[1], [2], [4], [1, 1], [1, 2], [2, 1], [2, 2]]
        self.meshes = {}
        for shape in shapes:
            count = torch.Size(shape).numel()
            self.meshes[tuple(shape)] = DeviceMesh("cpu", torch.arange(count).reshape(shape))

    def part(self, spec: Spec, filled: bool, group: Any) -> Any:
        whole = pattern(spec)
        if not filled:
            whole = torch.zeros_like(whole.view(torch.uint8) if whole.dim() else whole.reshape(1).view(torch.uint8))
            whole = whole.view(getattr(torch, spec["dtype"])).reshape(spec["shape"])
        kind = spec["name"].split(".")[0]
        if kind == "sharded":
            rows = list(whole.chunk(dist.get_world_size(group)))
            rank = dist.get_rank(group)
            shards = []
            if rank < len(rows) and rows[rank].numel():
                offset = [sum(len(r) for r in rows[:rank])] + [0] * (whole.dim() - 1)
                shards = [Shard.from_tensor_and_offsets(rows[rank].clone(), offset, rank)]
            return init_from_local_shards(shards, *whole.size(), process_group=group)
        if not kind.startswith("dtensor"):
            return whole
        mesh = self.meshes[tuple(spec["mesh"])]
        placements = [Replicate() if cut < 0 else ShardPlacement(cut) for cut in spec["cuts"]]
        size, offset = compute_local_shape_and_global_offset(whole.shape, mesh, placements)
        local = whole
        for dim, (start, length) in enumerate(zip(offset, size)):
            local = local.narrow(dim, min(start, local.size(dim)), length)
        return DTensor.from_local(
            local.contiguous().clone(), mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
        )

    def state(self, spec: Spec, filled: bool, group: Any) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for tensor in spec["tensors"]:
            kind, name = tensor["name"].split(".")
            if kind == "sharded" and 0 in tensor["shape"]:
                continue  # torch has no ShardedTensor without elements
            state.setdefault(kind, {})[name] = self.part(tensor, filled, group)
        state.update(copy.deepcopy(spec["objects"]) if filled else emptied(spec["objects"]))
        return state

    def run(self, case: dict[str, Any]) -> None:
        spec = case["spec"]
        group = self.groups[spec["ranks"]]
        if dist.get_rank() >= spec["ranks"]:
            return
        extensions = [ZStandard()] if case.get("zstd") else None
        if case["op"] == "save":
            writer = dcp.FileSystemWriter(case["path"], _extensions=extensions, **case.get("writer", {}))
            dcp.save(self.state(spec, True, group), storage_writer=writer, process_group=group,
                     use_collectives=case.get("collectives", True))
            return
        state = self.state(spec, False, group)
        dcp.load(state, checkpoint_id=case["path"], process_group=group)
        expected = self.state(spec, True, group)
        for kind, entries in expected.items():
            if not isinstance(entries, dict) or kind == "notes":
                assert state[kind] == entries, kind
                continue
            for name, value in entries.items():
                assert bytes_of(state[kind][name]) == bytes_of(value), f"{kind}.{name}"


def emptied(objects: Any) -> Any:
    """The same entries with nothing in them."""
    return {key: emptied(value) for key, value in objects.items()} if isinstance(objects, dict) else None


def bytes_of(value: Any) -> list[bytes]:
    tensors = [value]
    if isinstance(value, DTensor):
        tensors = [value.to_local()]
    elif isinstance(value, ShardedTensor):
        tensors = [shard.tensor for shard in value.local_shards()]
    return [t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b"" for t in tensors]


def work(rank: int, cases: list[dict[str, Any]], store: str, failures: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    job = Job()
    for case in cases:
        try:
            job.run(case)
        except BaseException:
            failures.put(f"{case['path']}: {traceback.format_exc()[-3000:]}")
        dist.barrier()
    dist.destroy_process_group()


def run_cases(cases: list[dict[str, Any]], folder: Path) -> list[str]:
    """Runs the cases on four ranks; what went wrong, one text per rank and case."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    failures = mp.get_context("fork").SimpleQueue()  # forked, because importing torch takes seconds
    mp.start_processes(work, (cases, str(folder / "store"), failures), nprocs=WORLD, start_method="fork")
    texts = []
    while not failures.empty():
        texts.append(failures.get())
    return texts
