"""Load plans against torch's own: read items, local plans and their errors, planners, layouts."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")
from torch.distributed.checkpoint import default_planner, planner_helpers  # noqa: E402
from torch.distributed.checkpoint.metadata import Metadata  # noqa: E402
from torch.distributed.checkpoint.planner import LoadItemType  # noqa: E402
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset  # noqa: E402
from torch.distributed.tensor.placement_types import Replicate, Shard, _StridedShard  # noqa: E402

from loads import (  # noqa: E402
    checkpoint_to_json,
    checkpoint_to_torch,
    chunk,
    cut,
    flat_state,
    items_to_json,
    layout,
    nested_state,
    tensor_metadata,
)
from plan_driver import Probe, cases  # noqa: E402


@pytest.fixture(scope="module")
def probe():
    driver = Probe("load-plan")
    yield driver
    driver.close()


@cases
def test_read_items_are_torchs_in_torchs_order(probe, rng):
    size = [rng.randrange(10) for _ in range(rng.randrange(6))]
    stored, wanted = cut(rng, size), cut(rng, size)
    metadata = tensor_metadata("float32", [], stored)
    want = planner_helpers.create_read_items_for_chunk_list("w", metadata, [chunk(box) for box in wanted])
    assert probe(op="read_items", stored=stored, wanted=wanted) == items_to_json(want)


class Shards(torch.Tensor):
    """A tensor of which some boxes are here: what torch asks of a sharded one, without a process group."""

    @staticmethod
    def of(dtype, size, boxes):
        shards = torch.empty(size, dtype=getattr(torch, dtype), device="meta").as_subclass(Shards)
        shards.boxes = boxes
        return shards

    def __create_chunk_list__(self):
        return [chunk(box) for box in self.boxes]


def value_to_torch(value):
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == "tensor":
        return torch.zeros(inside[1], dtype=getattr(torch, inside[0]))
    if kind == "sharded":
        return Shards.of(*inside)
    if kind == "dict":
        return {key: value_to_torch(v) for key, v in inside}
    return [value_to_torch(v) for v in inside]


KINDS = {RuntimeError: "not_found", ValueError: "invalid_argument"}


def outcome(plan):
    """What torch gives: the items as JSON, or the error's words and kind."""
    try:
        return items_to_json(plan().items)
    except (RuntimeError, ValueError) as e:
        return {"error": str(e), "code": KINDS[type(e)]}


@cases
def test_local_plans_and_their_errors_are_torchs(probe, rng):
    checkpoint, state = flat_state(rng)
    partial = rng.random() < 0.5
    theirs = {name: value_to_torch(value) for name, value in state}
    metadata = Metadata(checkpoint_to_torch(checkpoint))
    want = outcome(lambda: default_planner.create_default_local_load_plan(theirs, metadata, not partial))
    got = probe(op="local_plan", checkpoint=checkpoint_to_json(checkpoint), state={"dict": state}, partial=partial)
    if isinstance(got, dict):
        got = {name: got[name] for name in ("error", "code")}  # and the tensor, which torch does not say
    assert got == want


def saved_from(state, rule):
    """The entries and paths a checkpoint of this state has, as torch of that time flattened it."""
    default_planner._version._derived_version = rule
    try:
        flat, paths = default_planner.flatten_state_dict(value_to_torch(state))
    finally:
        default_planner._version._derived_version = None
    checkpoint = {}
    for name, value in flat.items():
        if isinstance(value, torch.Tensor):
            size = list(value.size())
            checkpoint[name] = (str(value.dtype).removeprefix("torch."), size, [([0] * len(size), size)])
        else:
            checkpoint[name] = None
    return checkpoint, paths


def shown(value):
    """As cairn prints a state."""
    if isinstance(value, torch.Tensor):
        return f"tensor({str(value.dtype).removeprefix('torch.')}, {list(value.size())})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {shown(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return repr(value)


def load_with(planner, state, metadata):
    """A plan by torch's planner, and the state after every object arrived as its own name."""
    planner.set_up_planner(state, metadata, True)
    plan = planner.create_local_plan()
    for item in plan.items:
        if item.type == LoadItemType.BYTE_IO:
            path = planner.mappings.get(item.dest_index.fqn)
            if path is None:
                state[item.dest_index.fqn] = "loaded " + item.dest_index.fqn
            else:
                default_planner.set_element(state, path, "loaded " + item.dest_index.fqn)
    return {"items": items_to_json(plan.items), "state": shown(state)}


@cases
def test_planners_cut_and_fill_states_as_torchs_do(probe, rng):
    state = nested_state(rng)
    flatten, partial = rng.random() < 0.7, rng.random() < 0.5
    checkpoint, _ = saved_from(state, rng.choice([None, "2_3"]))
    if checkpoint and rng.random() < 0.2:
        checkpoint.pop(rng.choice(list(checkpoint)))
    planner = default_planner.DefaultLoadPlanner(flatten_state_dict=flatten, allow_partial_load=partial)
    got = probe(
        op="planner", checkpoint=checkpoint_to_json(checkpoint), state=state, flatten=flatten, partial=partial
    )
    try:
        want = load_with(planner, value_to_torch(state), Metadata(checkpoint_to_torch(checkpoint)))
    except (RuntimeError, ValueError) as e:
        assert got["code"] == KINDS[type(e)]
        assert got["error"].startswith(str(e))  # then names that look like it, and all the others
        return
    assert got == want


def is_wanted(name, path, keys):
    return name in keys or any(".".join(map(str, path[: i + 1])) in keys for i in range(len(path)))


@cases
def test_states_are_rebuilt_from_checkpoints_as_torch_rebuilds_them(probe, rng):
    checkpoint, paths = saved_from(nested_state(rng), None)
    with_paths = rng.random() < 0.8
    prefixes = [".".join(map(str, path[: i + 1])) for path in paths.values() for i in range(len(path))]
    keys = None  # torch cannot look for prefixes without paths
    if with_paths and rng.random() < 0.6:
        keys = rng.sample(sorted(set(prefixes)), rng.randint(0, min(3, len(set(prefixes)))))
    metadata = Metadata(checkpoint_to_torch(checkpoint), planner_data=paths if with_paths else None)
    got = probe(
        op="planner",
        checkpoint=checkpoint_to_json(checkpoint),
        paths=[[name, list(path)] for name, path in paths.items()] if with_paths else None,
        state={"dict": []},
        keys=keys,
    )
    planner = default_planner._EmptyStateDictLoadPlanner(None if keys is None else set(keys))
    try:
        want = load_with(planner, {}, metadata)
    except (RuntimeError, ValueError):
        # torch cuts the new state into entries again, and trips over a list of which only some were wanted.
        assert keys is not None and "items" in got
        return
    wanted = {name for name in checkpoint if keys is None or is_wanted(name, paths[name], keys)}
    if any(item[1][0] not in wanted for item in want["items"]):
        # The same without an error: it also loads the rest of the list.
        assert got["items"] == [item for item in want["items"] if item[1][0] in wanted]
        return
    assert got == want


def placement(j):
    if j is None:
        return Replicate()
    return Shard(j[0]) if len(j) == 1 else _StridedShard(j[0], split_factor=j[1])


@cases
def test_layouts_are_dtensors(probe, rng):
    mesh, shape, placements = layout(rng)
    got = probe(op="layout", mesh=mesh, shape=shape, placements=placements)
    whole = torch.arange(torch.Size(shape).numel()).view(shape)
    theirs = [placement(j) for j in placements]
    for rank, coordinate in enumerate(itertools.product(*map(range, mesh))):
        (offsets, sizes), parts = got[rank]
        want = _compute_local_shape_and_global_offset(shape, mesh, list(coordinate), theirs)
        assert (tuple(sizes), tuple(offsets)) == want, f"rank {rank}"
        # What the rank has, by cutting a real tensor; and what its parts say.
        local = whole
        for p, count, at in zip(theirs, mesh, coordinate):
            if not isinstance(p, Replicate):
                local = p._split_tensor(local, count, with_padding=False, contiguous=False)[0][at]
        pieces = torch.full(sizes, -1)
        for (part_offsets, part_sizes), local_offsets in parts:
            there = tuple(slice(o, o + n) for o, n in zip(local_offsets, part_sizes))
            pieces[there] = whole[tuple(slice(o, o + n) for o, n in zip(part_offsets, part_sizes))]
        assert torch.equal(pieces, local), f"rank {rank}"
        if not any(j and len(j) == 2 for j in placements):
            assert len(parts) == 1
