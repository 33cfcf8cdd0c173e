"""Conversions against real torch and real safetensors: what stock tools read of ours is what they read of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
cairn = pytest.importorskip("cairn")

import torch.distributed.checkpoint.format_utils as stock
from convert_states import every_dtype, from_torch_file, load, rich, same, save_dcp, tensors_only


def test_a_torch_file_is_the_one_that_stock_makes(tmp_path: Path) -> None:
    save_dcp(rich(), tmp_path / "dcp")
    stock.dcp_to_torch_save(tmp_path / "dcp", tmp_path / "stock.pt")
    report = cairn.convert(tmp_path / "dcp", tmp_path / "ours.pt")
    assert same(load(tmp_path / "ours.pt"), load(tmp_path / "stock.pt"))
    assert report["to"] == "torch" and report["read_back"] == (tmp_path / "ours.pt").stat().st_size


def test_a_torch_file_of_tensors_and_plain_values_loads_with_weights_only(tmp_path: Path) -> None:
    state = {"model": every_dtype(), "step": 5, "lr": 0.5, "betas": (0.9, 0.99), "names": ["a", "b"], "none": None}
    save_dcp(state, tmp_path / "dcp")
    cairn.convert(tmp_path / "dcp", tmp_path / "ours.pt")
    assert same(load(tmp_path / "ours.pt", weights_only=True), state)


def test_zip_tools_find_nothing_wrong(tmp_path: Path) -> None:
    import zipfile

    save_dcp(rich(), tmp_path / "dcp")
    cairn.convert(tmp_path / "dcp", tmp_path / "ours.pt")
    with zipfile.ZipFile(tmp_path / "ours.pt") as archive:
        assert archive.testzip() is None
        assert all(name.startswith("ours/") for name in archive.namelist())


def test_a_dcp_directory_holds_what_stock_puts_there(tmp_path: Path) -> None:
    torch.save(rich(), tmp_path / "state.pt")
    cairn.convert(tmp_path / "state.pt", tmp_path / "ours")
    stock.torch_save_to_dcp(tmp_path / "state.pt", tmp_path / "stock")
    # Back by stock's own hand: it reads ours as it reads its own.
    stock.dcp_to_torch_save(tmp_path / "ours", tmp_path / "ours-back.pt")
    stock.dcp_to_torch_save(tmp_path / "stock", tmp_path / "stock-back.pt")
    assert same(load(tmp_path / "ours-back.pt"), from_torch_file(load(tmp_path / "stock-back.pt")))
    assert cairn.verify(tmp_path / "ours")["ok"]


def test_stock_loads_our_dcp_directory_in_place(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    state = {"model": every_dtype(), "step": 7}
    torch.save(state, tmp_path / "state.pt")
    cairn.convert(tmp_path / "state.pt", tmp_path / "ours", ranks=3, max_item_bytes=256)
    into = {"model": {name: torch.zeros_like(t) for name, t in state["model"].items()}, "step": 0}
    dcp.load(into, checkpoint_id=tmp_path / "ours", no_dist=True)
    assert same(into, state)


@pytest.mark.parametrize("source", ["dcp", "state.pt"])
def test_safetensors_reads_every_dtype(tmp_path: Path, source: str) -> None:
    state = {name: t for name, t in every_dtype().items() if t.dtype is not torch.complex128}
    save_dcp(state, tmp_path / "dcp")
    torch.save(state, tmp_path / "state.pt")
    cairn.convert(tmp_path / source, tmp_path / "m.safetensors")
    read = safetensors.load_file(tmp_path / "m.safetensors")
    assert set(read) == set(state)
    assert all(same(read[name], state[name]) for name in state)


def test_round_trips_keep_every_bit(tmp_path: Path) -> None:
    flat = tensors_only(rich())
    save_dcp(rich(), tmp_path / "0")
    steps = ["1.safetensors", "2.pt", "3", "4-hub", "5", "6.pt", "7.safetensors"]
    before = "0"
    for step in steps:
        options = {"to": "huggingface", "max_shard_size": 2000} if step.endswith("hub") else {}
        cairn.convert(tmp_path / before, tmp_path / step, skip_objects=True, **options)
        before = step
    read = safetensors.load_file(tmp_path / before)
    assert set(read) == set(flat) and all(same(read[name], flat[name]) for name in flat)


def test_a_sharded_directory_is_as_transformers_has_it(tmp_path: Path) -> None:
    flat = {f"layers.{i}.w": torch.full((10, 10), float(i)) for i in range(7)}
    save_dcp(flat, tmp_path / "dcp")
    cairn.convert(tmp_path / "dcp", tmp_path / "hub", max_shard_size=1000)
    index = json.loads((tmp_path / "hub/model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2800
    files = sorted(set(index["weight_map"].values()))
    assert files == [f"model-{i:05}-of-00004.safetensors" for i in (1, 2, 3, 4)]
    for name, file in index["weight_map"].items():
        assert same(safetensors.load_file(tmp_path / "hub" / file)[name], flat[name])
    with safetensors.safe_open(tmp_path / "hub" / files[0], "pt") as opened:
        assert opened.metadata() == {"format": "pt"}
    cairn.convert(tmp_path / "hub", tmp_path / "back.pt")
    assert same(load(tmp_path / "back.pt", weights_only=True), flat)


def test_storages_that_are_shared_stay_shared(tmp_path: Path) -> None:
    base = torch.arange(100.0)
    tied = torch.randn(4, 4)
    state = {
        "a": base[:50].view(10, 5), "b": base[25:75], "whole": base, "tied": [tied, tied],
        "p": torch.nn.Parameter(tied), "other": torch.ones(3),
    }  # fmt: skip
    torch.save(state, tmp_path / "state.pt")
    cairn.convert(tmp_path / "state.pt", tmp_path / "again.pt")
    again = load(tmp_path / "again.pt", weights_only=True)
    assert same(again, load(tmp_path / "state.pt"))
    assert isinstance(again["p"], torch.nn.Parameter)
    again["whole"][30] = -1
    assert again["a"][6, 0] == -1 and again["b"][5] == -1
    assert again["tied"][0].data_ptr() == again["p"].data_ptr()
    assert again["other"].untyped_storage().nbytes() == 12
    # Where nothing can be shared, each has its own elements.
    cairn.convert(tmp_path / "state.pt", tmp_path / "m.safetensors")
    read = safetensors.load_file(tmp_path / "m.safetensors")
    assert same(read["a"], state["a"].contiguous()) and same(read["tied.0"], tied) and same(read["tied.1"], tied)


def test_a_torch_file_keeps_its_containers_and_number_keys(tmp_path: Path) -> None:
    torch.save(rich(), tmp_path / "state.pt")
    cairn.convert(tmp_path / "state.pt", tmp_path / "again.pt")
    expected = from_torch_file(rich())
    assert same(load(tmp_path / "again.pt"), expected)
    cairn.convert(tmp_path / "state.pt", tmp_path / "some.pt", keys=["optim.*"], dtype="float16")
    some = load(tmp_path / "some.pt")
    assert list(some) == ["optim"] and list(some["optim"]["state"]) == [0, 1]
    assert same(some["optim"]["state"][0]["exp_avg"], expected["optim"]["state"][0]["exp_avg"].half())


@pytest.mark.parametrize("root", [[torch.ones(2), {"a": torch.zeros(1)}], (torch.ones(2), 3), torch.arange(4)])
def test_a_torch_file_need_not_be_a_dict(tmp_path: Path, root: object) -> None:
    torch.save(root, tmp_path / "state.pt")
    cairn.convert(tmp_path / "state.pt", tmp_path / "again.pt")
    assert same(load(tmp_path / "again.pt"), root)


def test_objects_of_several_items_that_hold_tensors_come_together(tmp_path: Path) -> None:
    state = {f"pair{i}": (torch.full((3,), float(i)), "0", {"0": torch.ones(2, dtype=torch.int16) * i}) for i in range(4)}
    save_dcp(state, tmp_path / "dcp")
    cairn.convert(tmp_path / "dcp", tmp_path / "ours.pt")
    assert same(load(tmp_path / "ours.pt"), state)
    cairn.convert(tmp_path / "ours.pt", tmp_path / "again")
    stock.dcp_to_torch_save(tmp_path / "again", tmp_path / "again.pt")
    assert same(load(tmp_path / "again.pt"), state)


def test_names_change_and_paths_follow(tmp_path: Path) -> None:
    save_dcp({"model": {"layers.0.w": torch.ones(2), "b": torch.zeros(1)}, "step": 3}, tmp_path / "dcp")
    cairn.convert(tmp_path / "dcp", tmp_path / "m.pt", map=[(r"^model\.layers\.(\d+)", r"model.h.\1")])
    assert list(load(tmp_path / "m.pt")["model"]) == ["h.0.w", "b"]
    cairn.convert(tmp_path / "dcp", tmp_path / "flat.pt", map={"^model\\.": ""})
    assert list(load(tmp_path / "flat.pt")) == ["layers.0.w", "b", "step"]


def test_elements_convert_as_torch_converts_them(tmp_path: Path) -> None:
    state = {"w": torch.randn(300, 70), "b": torch.randn(9), "i": torch.arange(5)}
    save_dcp(state, tmp_path / "dcp")
    cairn.convert(tmp_path / "dcp", tmp_path / "m.safetensors", dtype={"w": "bfloat16", "b": "float64"})
    read = safetensors.load_file(tmp_path / "m.safetensors")
    assert same(read["w"], state["w"].bfloat16()) and same(read["b"], state["b"].double()) and same(read["i"], state["i"])


def test_compressed_items_come_and_go(tmp_path: Path) -> None:
    state = {"w": torch.arange(200_000.0) % 7, "step": 4}
    save_dcp(state, tmp_path / "dcp")
    cairn.convert(tmp_path / "dcp", tmp_path / "small", transforms=["zstd"], ranks=2)
    assert sum(f.stat().st_size for f in (tmp_path / "small").iterdir()) < 400_000
    cairn.convert(tmp_path / "small", tmp_path / "m.pt")
    assert same(load(tmp_path / "m.pt"), state)
