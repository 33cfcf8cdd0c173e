"""Real torch writes by cairn's split and balanced plans, and reads what it wrote on another world size."""

from __future__ import annotations

import pickle

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from hypothesis import given, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from plan_driver import SEED, NumberedRandom  # noqa: E402
from plans import boxes, item_from_json, metadata_to_json, plans_to_json, some_ranks, tensor_item  # noqa: E402
from torch.distributed.checkpoint.planner import SavePlan, WriteItemType  # noqa: E402


def a_world(rng):
    """Full tensors, and plans of ranks that hold them whole or in pieces."""
    ranks = rng.randint(1, 4)
    state, items = {}, [[] for _ in range(ranks)]
    for name in ("w", "b.0", "s")[: rng.randint(1, 3)]:
        size = [] if name == "s" else [rng.randint(1, 7) for _ in range(rng.randint(1, 3))]
        state[name] = torch.rand(size)
        whole = rng.random() < 0.5
        pieces = [([0] * len(size), size)] if whole else boxes(rng, size)
        kind = WriteItemType.TENSOR if whole else WriteItemType.SHARD
        for offsets, extents in pieces:
            if 0 not in extents:
                for rank in some_ranks(rng, ranks):
                    items[rank].append(tensor_item(kind, name, "float32", size, offsets, extents))
    paths = {name: tuple(name.split(".")) for name in state}
    return state, [SavePlan(own, planner_data=paths) for own in items]


class Resolver:
    """The part of a SavePlanner that a writer calls: the live data of an item."""

    def __init__(self, state):
        self.state = state

    def resolve_data(self, item):
        chunk = item.tensor_data.chunk
        places = tuple(slice(o, o + n) for o, n in zip(chunk.offsets, chunk.sizes))
        return self.state[item.index.fqn][places]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@seed(SEED)
@settings(settings.get_profile("plan"), max_examples=100)  # each writes files
@given(rng=st.integers(0, 2**64 - 1).map(NumberedRandom))
def test_torch_reads_what_a_split_and_balanced_plan_wrote(probe, tmp_path_factory, rng):
    folder = tmp_path_factory.mktemp("split")
    state, plans = a_world(rng)
    file = folder / "metadata"
    answer = probe(
        op="plan", plans=plans_to_json(plans), split=rng.randint(8, 64), metadata_file=str(file), wire=True
    )
    with open(file, "rb") as f:
        metadata = pickle.load(f)
    assert metadata_to_json(metadata) == answer["metadata"]["entries"]
    assert metadata.planner_data == {name: tuple(path) for name, path in answer["metadata"]["paths"]}

    writer = dcp.FileSystemWriter(folder / "checkpoint")
    writer.set_up_storage_writer(True)
    split = [SavePlan([item_from_json(item) for item in plan["items"]]) for plan in answer["plans"]]
    split = writer.prepare_global_plan([writer.prepare_local_plan(plan) for plan in split])
    results = [writer.write_data(plan, Resolver(state)).value() for plan in split]
    writer.finish(metadata, results)

    loaded = {"w": torch.zeros_like(state["w"])} if "w" in state else {}
    if "b.0" in state:
        loaded["b"] = {"0": torch.zeros_like(state["b.0"])}
    if "s" in state:
        loaded["s"] = torch.zeros_like(state["s"])
    dcp.load(loaded, checkpoint_id=folder / "checkpoint", no_dist=True)
    for name, tensor in state.items():
        got = loaded["b"]["0"] if name == "b.0" else loaded[name]
        assert torch.equal(got, tensor), name
