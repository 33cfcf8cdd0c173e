"""Random checkpoints, wanted boxes and states for the load side, and the way from torch's objects to JSON."""

from __future__ import annotations

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    TensorProperties,
    TensorStorageMetadata,
)

NAMES = ["a", "b", "c", "a.x", "model.w", "model.b"]
DTYPES = ["float32", "bfloat16", "int64"]


def chunk(box):
    offsets, sizes = box
    return ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))


def index_to_json(index):
    return [index.fqn, None if index.offset is None else list(index.offset), index.index]


def items_to_json(items):
    return [
        [
            item.type.value,
            index_to_json(item.dest_index),
            list(item.dest_offsets),
            index_to_json(item.storage_index),
            list(item.storage_offsets),
            list(item.lengths),
        ]
        for item in items
    ]


def tiling(rng, size, most=24):
    """A shape cut in two again and again, unevenly and sometimes into nothing, in any order."""
    boxes = [([0] * len(size), list(size))]
    for _ in range(rng.randint(0, most) if size else 0):
        offsets, sizes = boxes.pop(rng.randrange(len(boxes)))
        dim = rng.randrange(len(size))
        at = rng.randint(0, sizes[dim])
        upper = offsets[:dim] + [offsets[dim] + at] + offsets[dim + 1 :]
        boxes.append((offsets, sizes[:dim] + [at] + sizes[dim + 1 :]))
        boxes.append((upper, sizes[:dim] + [sizes[dim] - at] + sizes[dim + 1 :]))
    rng.shuffle(boxes)
    return boxes


def grid(rng, size):
    """A shape cut into equal parts but for the last, in some dimensions: what FSDP and TP do."""
    boxes = [([], [])]
    for n in size:
        step = rng.randint(1, max(1, n))
        ends = [(at, min(step, n - at)) for at in range(0, n, step)] or [(0, 0)]
        boxes = [(o + [at], s + [length]) for o, s in boxes for at, length in ends]
    return boxes[:200]


def heap(rng, size, most=24):
    """Boxes that lie anyhow, over each other and out of bounds."""
    return [
        ([rng.randint(0, n + 1) for n in size], [rng.randint(0, n + 1) for n in size])
        for _ in range(rng.randint(0, most))
    ]


def cut(rng, size):
    return rng.choice([grid, tiling, heap])(rng, size)


def tensor_metadata(dtype, size, boxes):
    properties = TensorProperties(dtype=getattr(torch, dtype))
    return TensorStorageMetadata(properties, torch.Size(size), [chunk(box) for box in boxes])


def entry(rng):
    """One stored entry: None for an object, else dtype, size and boxes."""
    if rng.random() < 0.25:
        return None
    size = rng.choice([[], [4], [3, 4], [2, 2, 3], [0, 3]])
    return rng.choice(DTYPES), size, tiling(rng, size, most=4)


def value(rng, stored):
    """What a state has for an entry of the checkpoint: mostly what fits it."""
    kind = rng.randrange(12)
    if stored is None or kind == 0:
        return rng.choice([7, "x", None, {"tensor": ["float32", [2]]}])
    dtype, size, _ = stored
    dtype = rng.choice([dtype, *DTYPES])
    if kind == 1:
        size = rng.choice([[4], [3, 4], [1], []])
    if kind < 6:
        return {"tensor": [dtype, size]}
    return {"sharded": [dtype, size, tiling(rng, size, most=4)]}


def flat_state(rng):
    """A checkpoint, and a state whose names are mostly there."""
    checkpoint = {name: entry(rng) for name in rng.sample(NAMES, rng.randrange(6))}
    names = rng.sample(NAMES, rng.randrange(6)) if rng.random() < 0.2 else list(checkpoint)
    return checkpoint, [[name, value(rng, checkpoint.get(name))] for name in names]


def nested_state(rng, depth=3):
    """A nested state as JSON, without empty dicts: those torch loses."""

    def inner(depth):
        kind = rng.randrange(10)
        if depth > 0 and kind < 3:
            return tree(depth - 1)
        if depth > 0 and kind < 5:
            return {"list": [inner(depth - 1) for _ in range(rng.randrange(4))]}
        if kind < 8:
            return {"tensor": [rng.choice(DTYPES), rng.choice([[], [4], [3, 4]])]}
        return rng.choice([7, "x", None])

    def tree(depth):
        return {"dict": [[name, inner(depth)] for name in rng.sample(["a", "b", "w", "0"], rng.randint(1, 3))]}

    return tree(depth)


def layout(rng):
    mesh = rng.choice([[1], [2], [3], [5], [8], [2, 2], [2, 3], [4, 2], [1, 5], [2, 2, 2], [2, 1, 3]])
    shape = [rng.randrange(14) for _ in range(rng.randint(1, 3))]
    placements = []
    for _ in mesh:
        dim = rng.randrange(len(shape))
        placements.append(rng.choice([None, [dim], [dim], [dim, rng.randint(1, 4)]]))
    return mesh, shape, placements


def checkpoint_to_json(checkpoint):
    return [[name, None] if e is None else [name, *e] for name, e in checkpoint.items()]


def checkpoint_to_torch(checkpoint):
    return {name: BytesStorageMetadata() if e is None else tensor_metadata(*e) for name, e in checkpoint.items()}
