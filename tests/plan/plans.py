"""Random plans for both sides, and the way from torch's objects to JSON and back.

Cases are made by a random.Random that hypothesis seeds: a case costs a millisecond this way and twenty when
hypothesis draws every number, and the printed number replays it.
"""

from __future__ import annotations

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

DTYPES = ["float32", "bfloat16", "int64", "bool", "float64"]


def tensor_item(kind, fqn, dtype, size, offsets, sizes):
    return WriteItem(
        index=MetadataIndex(fqn, torch.Size(offsets)),
        type=kind,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)),
            properties=TensorProperties(dtype=getattr(torch, dtype)),
            size=torch.Size(size),
        ),
    )


def bytes_item(fqn):
    return WriteItem(index=MetadataIndex(fqn), type=WriteItemType.BYTE_IO)


def item_to_json(item):
    data = item.tensor_data
    return [
        item.type.value,
        item.index.fqn,
        None if item.index.offset is None else list(item.index.offset),
        item.index.index,
        None if data is None else str(data.properties.dtype).removeprefix("torch."),
        None if data is None else list(data.size),
        None if data is None else list(data.chunk.offsets),
        None if data is None else list(data.chunk.sizes),
    ]


def item_from_json(j):
    kind, fqn, offset, hint, dtype, size, offsets, sizes = j
    if dtype is None:
        return bytes_item(fqn)
    item = tensor_item(WriteItemType(kind), fqn, dtype, size, offsets, sizes)
    return WriteItem(MetadataIndex(fqn, torch.Size(offset), hint), item.type, tensor_data=item.tensor_data)


def plan_to_json(plan):
    j = {"items": [item_to_json(item) for item in plan.items]}
    if plan.planner_data is not None:
        j["paths"] = [[name, list(path)] for name, path in plan.planner_data.items()]
    return j


def plans_to_json(plans):
    return [plan_to_json(plan) for plan in plans]


def metadata_to_json(metadata):
    entries = []
    for name, md in metadata.state_dict_metadata.items():
        if isinstance(md, BytesStorageMetadata):
            entries.append([name, None])
        else:
            chunks = [[list(c.offsets), list(c.sizes)] for c in md.chunks]
            entries.append([name, [str(md.properties.dtype).removeprefix("torch."), list(md.size), chunks]])
    return entries


def cuts(rng, extent, most):
    """A dimension cut into up to `most` pieces, empty ones included: [(offset, size)...]."""
    points = sorted(rng.randint(0, extent) for _ in range(rng.randrange(most)))
    edges = [0, *points, extent]
    return [(a, b - a) for a, b in zip(edges, edges[1:])]


def boxes(rng, size):
    """Boxes that tile a tensor: a grid cut in each dimension."""
    grid = [([], [])]
    for extent in size:
        pieces = cuts(rng, extent, most=3)
        grid = [([*o, a], [*s, n]) for o, s in grid for a, n in pieces]
    return grid


def a_size(rng, least=0, most=4, extent=6):
    return [rng.randint(0, extent) for _ in range(rng.randint(least, most))]


def some_ranks(rng, ranks):
    if rng.random() < 0.5:
        return range(ranks)
    return sorted(rng.sample(range(ranks), rng.randint(1, min(ranks, 4))))


def world(rng, most_ranks=8):
    """The plans of a world: replicated tensors, objects, shards with replicas, in random order per rank."""
    ranks = rng.randint(1, most_ranks)
    items = [[] for _ in range(ranks)]
    for number in range(rng.randrange(7)):
        fqn = rng.choice(["w", "model.w", "opt.state.0.exp_avg", "x"]) + str(number)
        kind = rng.randrange(4)
        if kind == 0:
            for rank in some_ranks(rng, ranks):
                items[rank].append(bytes_item(fqn))
            continue
        dtype, size = rng.choice(DTYPES), a_size(rng)
        if kind == 1:
            for rank in some_ranks(rng, ranks):
                items[rank].append(tensor_item(WriteItemType.TENSOR, fqn, dtype, size, [0] * len(size), size))
            continue
        seen = set()
        for offsets, extents in boxes(rng, size):
            if tuple(offsets) in seen:  # an empty piece at the place of another: not a second index
                continue
            if 0 in extents and rng.random() < 0.5:
                continue
            seen.add(tuple(offsets))
            for rank in some_ranks(rng, ranks):
                items[rank].append(tensor_item(WriteItemType.SHARD, fqn, dtype, size, offsets, extents))
    for own in items:
        if rng.random() < 0.5:
            rng.shuffle(own)
    return [SavePlan(own) for own in items]
