"""Save plans against torch's own: local plans, dedup, the global plan and its metadata, validation."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint._dedup_save_plans as torch_dedup  # noqa: E402
from torch.distributed.checkpoint import default_planner  # noqa: E402
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata  # noqa: E402
from torch.distributed.checkpoint.planner import SavePlan, WriteItemType  # noqa: E402

from plan_driver import cases  # noqa: E402
from plans import (  # noqa: E402
    DTYPES,
    a_size,
    boxes,
    item_from_json,
    metadata_to_json,
    plan_to_json,
    plans_to_json,
    tensor_item,
    world,
)


def items_of(answer):
    return [plan["items"] for plan in answer]


class AscendingSet(set):
    """A set that is walked in ascending order: what decides torch's ties in worlds of more than 8 ranks."""

    def __iter__(self):
        return iter(sorted(set.copy(self)))

    def __sub__(self, other):
        return AscendingSet(set.difference(self, other))


def dedup_by_torch(plans, lowest):
    original = torch_dedup.defaultdict
    torch_dedup.defaultdict = lambda _: defaultdict(AscendingSet)
    try:
        return torch_dedup.dedup_save_plans(plans, lowest)
    finally:
        torch_dedup.defaultdict = original


@cases
def test_dedup_keeps_the_items_torch_keeps(probe, rng):
    plans, lowest, wire = world(rng), rng.random() < 0.5, rng.random() < 0.5
    want = plans_to_json(torch_dedup.dedup_save_plans(plans, lowest))
    got = probe(op="dedup", rule="lowest" if lowest else "dcp", plans=plans_to_json(plans), wire=wire)
    assert items_of(got) == items_of(want)


@cases
def test_dedup_in_large_worlds_breaks_ties_by_lowest_rank(probe, rng):
    plans, lowest = world(rng, most_ranks=40), rng.random() < 0.5
    want = plans_to_json(dedup_by_torch(plans, lowest))
    got = probe(op="dedup", rule="lowest" if lowest else "dcp", plans=plans_to_json(plans))
    assert items_of(got) == items_of(want)


def with_paths(rng, plans):
    """The plans with random paths, some of which do not spell their name, and some of which differ."""
    out = []
    for rank, plan in enumerate(plans):
        paths = {}
        for item in plan.items:
            kind = rng.randrange(6)
            steps = tuple(int(s) if s.isdigit() else s for s in item.index.fqn.split("."))
            paths[item.index.fqn] = steps if kind else (item.index.fqn, rank, "é")
        out.append(dataclasses.replace(plan, planner_data=paths))
    return out


@cases
def test_global_plan_and_metadata_are_torchs(probe, rng):
    plans = with_paths(rng, torch_dedup.dedup_save_plans(world(rng), True))
    want_plans, want = default_planner.create_default_global_save_plan(plans)
    merged = dict(default_planner.ChainMap(*[p.planner_data for p in plans]))
    got = probe(op="global", plans=plans_to_json(plans), wire=rng.random() < 0.5)
    assert items_of(got["plans"]) == items_of(plans_to_json(want_plans))
    assert got["metadata"]["entries"] == metadata_to_json(want)
    assert got["metadata"]["paths"] == [[name, list(path)] for name, path in merged.items()]


@cases
def test_plans_that_torch_cannot_join_are_an_error(probe, rng):
    plans = world(rng)
    # Without dedup replicated items are there twice, which torch asserts against.
    try:
        want = metadata_to_json(default_planner.create_default_global_save_plan(plans)[1])
    except AssertionError:
        want = None
    got = probe(op="global", plans=plans_to_json(plans))
    if want is None:
        assert got["code"] == "invalid_argument" and "rank" in got and got["tensor"], got
    else:
        assert got["metadata"]["entries"] == want


def spoiled(rng):
    """Deduplicated plans in which something may be wrong: a box moved, resized, left out or doubled."""
    plans = torch_dedup.dedup_save_plans(world(rng), True)
    for _ in range(rng.randrange(3)):
        rank = rng.randrange(len(plans))
        items = list(plans[rank].items)
        shards = [i for i, item in enumerate(items) if item.type != WriteItemType.BYTE_IO]
        if not shards:
            continue
        at = rng.choice(shards)
        chunk = items[at].tensor_data.chunk
        change = rng.choice(["move", "resize", "drop", "double"])
        if change == "drop":
            del items[at]
        elif change == "double":
            item = items[at]
            data = item.tensor_data
            items.append(
                tensor_item(
                    WriteItemType.SHARD,
                    item.index.fqn,
                    str(data.properties.dtype).removeprefix("torch."),
                    data.size,
                    chunk.offsets,
                    chunk.sizes,
                )
            )
        elif len(chunk.sizes) > 0:
            dim, by = rng.randrange(len(chunk.sizes)), rng.choice([-2, -1, 1, 2])
            changed = list(chunk.offsets if change == "move" else chunk.sizes)
            changed[dim] += by
            offsets, extents = (changed, chunk.sizes) if change == "move" else (chunk.offsets, changed)
            data = dataclasses.replace(
                items[at].tensor_data, chunk=ChunkStorageMetadata(torch.Size(offsets), torch.Size(extents))
            )
            items[at] = dataclasses.replace(items[at], tensor_data=data)
        plans = [SavePlan(items) if r == rank else p for r, p in enumerate(plans)]
    return plans


def without_empty_chunks(metadata):
    """Chunks without volume hold nothing: torch calls one inside another chunk an overlap, cairn does not."""
    for md in metadata.state_dict_metadata.values():
        if hasattr(md, "chunks"):
            whole = md.size
            md.chunks[:] = [
                c for c in md.chunks if 0 not in c.sizes or not default_planner._check_box_bounds(whole, c)
            ]
    return metadata


@cases
def test_validation_says_what_torch_says(probe, rng):
    plans = spoiled(rng)
    try:
        global_plan, metadata = default_planner.create_default_global_save_plan(plans)
    except AssertionError:
        return
    metadata = without_empty_chunks(metadata)
    # Two plans at least, so that torch looks at the volume too; cairn always does.
    errors = default_planner._validate_global_plan([*global_plan, SavePlan([])], metadata)
    scalars = {name for name, md in metadata.state_dict_metadata.items() if hasattr(md, "size") and not md.size}
    bad = {error.split(" ", 1)[0].removeprefix("key:") for error in errors}
    got = probe(op="validate", plans=plans_to_json(plans))["problems"]
    # torch does not look at scalars; a scalar written twice is an overlap here.
    assert {fqn for _, fqn, _ in got if fqn not in scalars} == bad, (errors, got)
    kinds = {"out of bounds": "bounds", "overlapping": "overlap", "invalid fill": "hole"}
    for error in errors:
        kind = next(k for text, k in kinds.items() if text in error)
        fqn = error.split(" ", 1)[0].removeprefix("key:")
        ours = {k for k, name, _ in got if name == fqn}
        # One mistake of a kind is enough; a gap is not news where chunks are outside or overlap.
        assert kind in ours or (kind == "hole" and ours) or (kind == "overlap" and "bounds" in ours), (error, got)
    partial = probe(op="validate", plans=plans_to_json(plans), partial=True)["problems"]
    assert partial == [p for p in got if p[0] != "hole"]


def originals(plans, item):
    """The chunk that a piece was cut from."""
    chunk = item.tensor_data.chunk
    for plan in plans:
        for other in plan.items:
            if other.index.fqn == item.index.fqn:
                whole = other.tensor_data.chunk
                inside = [o <= p and p + n <= o + m for o, m, p, n in zip(whole.offsets, whole.sizes, chunk.offsets, chunk.sizes)]
                if all(inside) and 0 not in whole.sizes:
                    return whole
    raise AssertionError(item)


def check_piece(data, limit, whole):
    """Cut in one dimension at most, the slowest there is to cut, and no larger than it must be."""
    nbytes = data.chunk.sizes.numel() * data.properties.dtype.itemsize
    slow = next((d for d, n in enumerate(whole.sizes) if n > 1), None)
    for dim, (n, m) in enumerate(zip(data.chunk.sizes, whole.sizes)):
        assert n == m or dim == slow
    if slow is not None:
        assert nbytes <= limit + nbytes // data.chunk.sizes[slow]


@cases
def test_split_and_balanced_plans_pass_torchs_validation(probe, rng):
    plans, limit, over_replicas = world(rng), rng.randint(8, 400), rng.random() < 0.5
    rule = rng.choice(["balanced", "dcp", "lowest"])
    got = probe(op="plan", plans=plans_to_json(plans), split=limit, over_replicas=over_replicas, rule=rule)
    whole = probe(op="dedup", rule="lowest", plans=plans_to_json(plans))
    if "error" in got:  # only pieces without volume may be left out by worlds()
        assert "Failed to validate" in got["error"], got
        return
    split = [SavePlan([item_from_json(item) for item in plan["items"]]) for plan in got["plans"]]
    rejoined, metadata = default_planner.create_default_global_save_plan(split)
    assert plans_to_json(rejoined) == plans_to_json(split)  # hints and all
    assert got["metadata"]["entries"] == metadata_to_json(metadata)
    assert default_planner._validate_global_plan(rejoined, without_empty_chunks(metadata)) == []
    # Nothing is lost: the same elements as without the split, and only ranks that hold a tensor write it.
    holders = defaultdict(set)
    for rank, plan in enumerate(plans):
        for item in plan.items:
            holders[item.index.fqn].add(rank)
    for rank, plan in enumerate(split):
        for item in plan.items:
            assert rank in holders[item.index.fqn]
            if item.tensor_data is not None and 0 not in item.tensor_data.chunk.sizes:
                check_piece(item.tensor_data, limit, originals(plans, item))
    volume = lambda plans_: sum(torch.Size(i[7]).numel() for p in plans_ for i in p["items"] if i[7] is not None)  # noqa: E731
    assert volume(got["plans"]) == volume(whole)


@pytest.fixture(scope="module")
def mesh():
    """One rank of a made-up group of 8, for real DTensors without a network."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=8)
    yield DeviceMesh("cpu", torch.arange(8).reshape(2, 4))
    dist.destroy_process_group()


def dtensor(mesh, dtype, size, placements):
    """A DTensor of this size on this rank, and cairn's word for it."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offsets = compute_local_shape_and_global_offset(torch.Size(size), mesh, placements)
    local = torch.zeros(shape, dtype=getattr(torch, dtype))
    whole = torch.empty(size, dtype=local.dtype, device="meta")
    tensor = DTensor.from_local(
        local, mesh, placements, run_check=False, shape=torch.Size(size), stride=whole.stride()
    )
    return tensor, {"sharded": [dtype, list(size), [[list(offsets), list(shape)]]]}


def a_state(rng, mesh, depth=3):
    """A nested state as torch has it, and as the probe reads it."""
    from torch.distributed.tensor import Replicate, Shard

    state, spoken = {}, []
    for key in rng.sample(["a", "b", "w", "step", "0", 1, "x.y"], rng.randrange(5)):
        kind = rng.randrange(5 if depth else 3)
        if kind == 0:
            state[key] = said = rng.choice([None, True, 7, "text"])
        elif kind == 1:
            dtype, size = rng.choice(DTYPES), a_size(rng)
            state[key], said = torch.zeros(size, dtype=getattr(torch, dtype)), {"tensor": [dtype, size]}
        elif kind == 2:
            size = a_size(rng, least=1, most=3, extent=9)
            places = [rng.choice([Replicate(), Shard(rng.randrange(len(size)))]) for _ in range(2)]
            state[key], said = dtensor(mesh, rng.choice(DTYPES), size, places)
        else:
            inner, words = a_state(rng, mesh, depth - 1)
            if not inner:  # torch loses an empty dict, cairn keeps it
                inner, words = {"k": 0}, {"dict": [["k", 0]]}
            state[key], said = (inner, words) if kind == 3 else ([1, inner], {"list": [1, words]})
        spoken.append([key, said])
    return state, {"dict": spoken}


@cases
def test_local_plans_are_torchs(probe, mesh, rng):
    state, spoken = a_state(rng, mesh)
    planner = default_planner.DefaultSavePlanner()
    got = probe(op="local", state=spoken)
    try:
        planner.set_up_planner(state)
    except ValueError as e:  # two entries of one name
        assert got["error"] == str(e)
        return
    want = plan_to_json(planner.create_local_plan())
    assert got["items"] == want["items"]
    assert got["paths"] == want["paths"]


@cases
def test_ranks_that_differ_on_an_index_are_named(probe, rng):
    tiles = [tile for tile in boxes(rng, [5, 4, 3]) if 0 not in tile[1]]
    offsets, extents = rng.choice(tiles)
    plan = SavePlan([tensor_item(WriteItemType.SHARD, "w", "float32", [5, 4, 3], o, s) for o, s in tiles])
    other = tensor_item(WriteItemType.SHARD, "w", "float32", [5, 4, 3], offsets, [n + 1 for n in extents])
    got = probe(op="plan", plans=plans_to_json([plan, SavePlan([other])]))
    assert got["code"] == "invalid_argument" and got["tensor"] == "w" and got["rank"] == 1, got
