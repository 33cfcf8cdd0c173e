"""Hugging Face directories: against stock PyTorch, the real `safetensors` package, and on gloo ranks."""

from __future__ import annotations

import json
import os
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch.distributed.checkpoint as stock
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader as StockQuantized
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import cairn
import cairn.torch as cairn_dcp
from cairn.torch import QuantizedHuggingFaceStorageReader
from cairn.torch._consolidate_hf_safetensors import (
    consolidate_safetensors_files,
    consolidate_safetensors_files_on_every_rank,
)
from ranks import run_ranks

warnings.simplefilter("ignore")

SIDES = {"stock": stock, "cairn": cairn_dcp}
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex64,
]  # fmt: skip
NAMES = ["model-00001-of-00001.safetensors", "model.safetensors.index.json"]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert (a[name].dtype, a[name].shape) == (b[name].dtype, b[name].shape), name
        assert torch.equal(bits(a[name]), bits(b[name])), name


def every_dtype() -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    state = {}
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        tensor = (torch.randn(6, 10) * 8).abs().to(dtype)
        state |= {f"{name}.matrix": tensor, f"{name}.scalar": tensor[1, 2].clone(), f"{name}.empty": tensor[:0]}
    state["transposed"] = torch.randn(7, 5).t()
    return state


def zeros_of(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in state.items()}


def save(side: str, state: dict[str, Any], path: Any, **arguments: Any) -> None:
    SIDES[side].save(state, storage_writer=SIDES[side].HuggingFaceStorageWriter(str(path), **arguments))


def load(side: str, state: dict[str, Any], path: Any) -> dict[str, Any]:
    SIDES[side].load(state, storage_reader=SIDES[side].HuggingFaceStorageReader(str(path)))
    return state


# --- one rank ---


@pytest.mark.parametrize("loader", SIDES)
def test_every_dtype_comes_back_from_both(tmp_path: Path, loader: str) -> None:
    state = every_dtype()
    save("cairn", state, tmp_path)
    assert sorted(os.listdir(tmp_path)) == NAMES
    same(load_file(tmp_path / NAMES[0]), state)
    same(load(loader, zeros_of(state), tmp_path), state)


def test_what_stock_saved_is_loaded(tmp_path: Path) -> None:
    state = {name: tensor.contiguous() for name, tensor in every_dtype().items()}
    save("stock", state, tmp_path)
    same(load("cairn", zeros_of(state), tmp_path), state)


def test_the_header_is_that_of_stock(tmp_path: Path) -> None:
    state = {"b": torch.ones(3), "a": torch.ones(2, dtype=torch.int64)}
    for side in SIDES:
        save(side, state, tmp_path / side)
    headers = []
    for side in SIDES:
        with safe_open(tmp_path / side / NAMES[0], framework="pt") as file:
            metadata = file.metadata()
            headers.append({**metadata, "DCP_SHARDING_INFO": json.loads(metadata["DCP_SHARDING_INFO"])})
    assert headers[0] == headers[1]
    indexes = [json.loads((tmp_path / side / NAMES[1]).read_text()) for side in SIDES]
    assert indexes[0] == indexes[1]


def test_a_mapping_spreads_tensors_over_files(tmp_path: Path) -> None:
    state = {f"layer.{i}": torch.full((4,), float(i)) for i in range(4)}
    mapping = {name: i % 2 + 1 for i, name in enumerate(state)}
    save("cairn", state, tmp_path, fqn_to_index_mapping=mapping, thread_count=2)
    assert set(load_file(tmp_path / "model-00002-of-00002.safetensors")) == {"layer.1", "layer.3"}
    same(load("stock", zeros_of(state), tmp_path), state)
    with pytest.raises(BaseException, match="KeyError: 'other'"):
        save("cairn", {**state, "other": torch.ones(1)}, tmp_path, fqn_to_index_mapping=mapping)
    same(load("cairn", zeros_of(state), tmp_path), state)


def test_objects_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BaseException, match="'step'"):
        save("cairn", {"w": torch.ones(2), "step": 3}, tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_state_is_made_from_a_directory_that_transformers_wrote(tmp_path: Path) -> None:
    parts = [{"embed.weight": torch.randn(20, 8)}, {"norm.weight": torch.randn(8), "head.weight": torch.randn(20, 8)}]
    weight_map = {}
    for i, part in enumerate(parts, start=1):
        name = f"model-{i:05}-of-00002.safetensors"
        save_file(part, tmp_path / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, name))
    save_file({"embed.weight": torch.zeros(3)}, tmp_path / "consolidated.safetensors")  # not in the index
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    reader = cairn_dcp.HuggingFaceStorageReader(str(tmp_path))
    same(cairn_dcp._load_state_dict_from_keys(storage_reader=reader), {**parts[0], **parts[1]})


def test_a_model_in_the_hub_cache_is_a_directory_of_links(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    save_file({"w": torch.arange(4.0)}, tmp_path / "blobs/abc")
    (tmp_path / "snapshot/model.safetensors").symlink_to("../blobs/abc")
    assert load("cairn", {"w": torch.zeros(4)}, tmp_path / "snapshot")["w"].tolist() == [0, 1, 2, 3]


# --- bad input ---


def failure(path: Path, state: dict[str, Any], reader: Any = None) -> str:
    with pytest.raises(BaseException) as caught:
        cairn_dcp.load(state, storage_reader=reader or cairn_dcp.HuggingFaceStorageReader(str(path)))
    return str(caught.value)


def test_bad_directories_are_errors_that_name_tensor_and_file(tmp_path: Path) -> None:
    save_file({"w": torch.ones(4)}, tmp_path / "model.safetensors")
    index = tmp_path / "model.safetensors.index.json"

    def with_map(**weight_map: str) -> str:
        index.write_text(json.dumps({"metadata": {"total_size": 16}, "weight_map": weight_map}))
        return failure(tmp_path, {"w": torch.zeros(4)})

    assert "model.safetensors" in with_map(v="model.safetensors") and "'v'" in with_map(v="model.safetensors")
    assert "gone.safetensors" in with_map(w="gone.safetensors")
    assert "../model.safetensors" in with_map(w="../model.safetensors")
    index.unlink()
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-4])
    text = failure(tmp_path, {"w": torch.zeros(4)})
    assert "model.safetensors" in text and "corrupt" in text
    header = b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,99]}}'
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    assert "'w'" in failure(tmp_path, {"w": torch.zeros(4)})


# --- quantised tensors ---


def write_float8(path: Path, block: int, shape: tuple[int, int] = (300, 200)) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    grid = [-(-size // block) for size in shape]
    weight = torch.arange(shape[0] * shape[1]).to(torch.uint8).view(shape).view(torch.float8_e4m3fn)
    scales = torch.randn(grid)
    save_file({"x.weight": weight, "plain": torch.arange(5.0)}, path / "a.safetensors")
    save_file({"x.weight_scale_inv": scales}, path / "b.safetensors")
    weight_map = {"x.weight": "a.safetensors", "plain": "a.safetensors", "x.weight_scale_inv": "b.safetensors"}
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return {"x.weight": torch.zeros(shape), "plain": torch.zeros(5)}


def no_nan_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Which NaN a NaN is, is nobody's business."""
    return bits(torch.where(tensor.isnan(), torch.zeros((), dtype=tensor.dtype), tensor))


@pytest.mark.parametrize("block", [128, 64, 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_block_scaled_float8_is_what_stock_computes(tmp_path: Path, block: int, dtype: torch.dtype) -> None:
    wanted = write_float8(tmp_path, block)
    wanted["x.weight"] = wanted["x.weight"].to(dtype)
    ours = {name: tensor.clone() for name, tensor in wanted.items()}
    stock.load(wanted, storage_reader=StockQuantized(str(tmp_path), target_dtype=dtype, block_size=block))
    cairn_dcp.load(
        ours, storage_reader=QuantizedHuggingFaceStorageReader(str(tmp_path), target_dtype=dtype, block_size=block)
    )
    assert torch.equal(ours["x.weight"].isnan(), wanted["x.weight"].isnan())
    assert torch.equal(no_nan_bits(ours["x.weight"]), no_nan_bits(wanted["x.weight"]))
    assert ours["plain"].tolist() == [0, 1, 2, 3, 4]


def mxfp4_as_torch(blocks: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=dtype)
    codes = torch.stack([blocks & 15, blocks >> 4], dim=-1).long()
    scaled = torch.ldexp(numbers[codes].flatten(-2), (scales.int() - 127).unsqueeze(-1))
    return scaled.to(dtype).flatten(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_mxfp4_is_what_torch_computes(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(6)
    blocks = torch.randint(0, 256, (4, 16, 4, 16)).to(torch.uint8)
    scales = torch.arange(256).to(torch.uint8).view(4, 16, 4)
    save_file({"mlp_blocks": blocks, "mlp_scales": scales}, tmp_path / "model.safetensors")
    state = {"mlp_blocks": torch.zeros(4, 16, 128, dtype=dtype)}
    cairn_dcp.load(state, storage_reader=QuantizedHuggingFaceStorageReader(str(tmp_path), target_dtype=dtype))
    assert torch.equal(no_nan_bits(state["mlp_blocks"]), no_nan_bits(mxfp4_as_torch(blocks, scales, dtype)))


def test_scales_that_do_not_fit_are_errors(tmp_path: Path) -> None:
    state = write_float8(tmp_path, 64)
    text = failure(tmp_path, state, QuantizedHuggingFaceStorageReader(str(tmp_path), block_size=128))
    assert "x.weight" in text and "b.safetensors" in text and "[3, 2]" in text
    save_file(
        {"y.weight": torch.zeros(2, 2, 2), "y.weight_scale_inv": torch.ones(1, 1)}, tmp_path / "c.safetensors"
    )
    (tmp_path / "model.safetensors.index.json").unlink()
    reader = QuantizedHuggingFaceStorageReader(str(tmp_path), block_size=64)
    assert "Unsupported quantization types" in failure(tmp_path, {"y.weight": torch.zeros(2, 2, 2)}, reader)


# --- ranks ---


def whole() -> dict[str, torch.Tensor]:
    return {
        "rows": torch.arange(96, dtype=torch.float32).view(12, 8),
        "columns": torch.arange(96, dtype=torch.int16).view(12, 8),
        "flags": torch.arange(24).view(24) % 3 == 0,
        "replicated": torch.arange(7, dtype=torch.float64),
        "uneven": torch.arange(15, dtype=torch.uint8).view(5, 3),
    }


def cut(state: dict[str, torch.Tensor], mesh: Any, turn: int) -> dict[str, Any]:
    ways = {"rows": Shard(turn), "columns": Shard(1 - turn), "uneven": Shard(turn), "replicated": Replicate()}
    # Every rank has the whole tensor and takes its part of it: gloo cannot send every dtype.
    return {
        name: distribute_tensor(tensor, mesh, [ways.get(name, Shard(0))], src_data_rank=None)
        for name, tensor in state.items()
    }


def local(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: tensor.to_local() for name, tensor in state.items()}


def _save_shards(rank: int, size: int, side: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    save(side, cut(whole(), init_device_mesh("cpu", (size,)), 0), folder, save_distributed=True)


def _load_cut(rank: int, size: int, side: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    mesh = init_device_mesh("cpu", (size,))
    for turn in (0, 1):
        state = load(side, cut(zeros_of(whole()), mesh, turn), folder)
        same(local(state), local(cut(whole(), mesh, turn)))


@pytest.mark.parametrize(("saver", "loader"), [("cairn", "cairn"), ("cairn", "stock"), ("stock", "cairn")])
def test_shards_load_in_other_cuts(tmp_path: Path, saver: str, loader: str) -> None:
    for savers, loaders in ((2, 4), (4, 2)):
        folder = str(tmp_path / f"{savers}")
        run_ranks(savers, _save_shards, savers, saver, folder)
        run_ranks(loaders, _load_cut, loaders, loader, folder)


def _load_quantized(rank: int, size: int, folder: str, block: int) -> None:
    warnings.simplefilter("ignore")
    mesh = init_device_mesh("cpu", (size,))
    alone = {"x.weight": torch.zeros(300, 200)}
    reader = QuantizedHuggingFaceStorageReader(folder, block_size=block)
    cairn_dcp.load(alone, storage_reader=reader, no_dist=True)
    for dim in (0, 1):
        state = {"x.weight": distribute_tensor(torch.zeros(300, 200), mesh, [Shard(dim)])}
        cairn_dcp.load(state, storage_reader=QuantizedHuggingFaceStorageReader(folder, block_size=block))
        assert torch.equal(bits(state["x.weight"].full_tensor()), bits(alone["x.weight"]))


def test_quantised_tensors_are_cut_over_ranks(tmp_path: Path) -> None:
    write_float8(tmp_path, 64)
    run_ranks(4, _load_quantized, 4, str(tmp_path), 64)


def _save_two_parts(rank: int, folder: str) -> None:
    """Each rank has two stripes of a tensor with somebody else's between them."""
    from torch.distributed._shard.sharded_tensor import ShardedTensor
    from torch.distributed._shard.sharded_tensor.shard import Shard as LocalShard

    warnings.simplefilter("ignore")
    full = torch.arange(32.0).view(8, 4)
    shards = [
        LocalShard.from_tensor_and_offsets(full[at : at + 2].clone(), [at, 0], rank) for at in (2 * rank, 2 * rank + 4)
    ]
    state = {"w": ShardedTensor._init_from_local_shards(shards, [8, 4])}
    save("cairn", state, folder, save_distributed=True)


@pytest.mark.parametrize("loader", SIDES)
def test_two_parts_of_a_tensor_on_one_rank_are_both_there(tmp_path: Path, loader: str) -> None:
    run_ranks(2, _save_two_parts, str(tmp_path))
    assert len(os.listdir(tmp_path)) == 4
    state = load(loader, {"w": torch.zeros(8, 4)}, tmp_path)
    assert torch.equal(state["w"], torch.arange(32.0).view(8, 4))


# --- consolidation ---


def test_consolidated_files_hold_whole_tensors(tmp_path: Path) -> None:
    run_ranks(4, _save_shards, 4, "cairn", str(tmp_path / "shards"))
    mapping = {name: i % 2 + 1 for i, name in enumerate(whole())}
    consolidate_safetensors_files(str(tmp_path / "shards"), str(tmp_path / "out"), mapping, num_threads=2)
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert [file.name for file in files] == [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    same({**load_file(files[0]), **load_file(files[1])}, whole())
    for file in files:
        with safe_open(file, framework="pt") as opened:
            assert opened.metadata()["format"] == "pt"
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in whole().values())
    assert index["weight_map"] == {name: f"model-0000{i}-of-00002.safetensors" for name, i in mapping.items()}


def test_scalars_and_empty_tensors_are_consolidated(tmp_path: Path) -> None:
    state = every_dtype()
    save("cairn", state, tmp_path / "shards", save_distributed=True)
    consolidate_safetensors_files(str(tmp_path / "shards"), str(tmp_path / "out"), dict.fromkeys(state, 1))
    same(load_file(tmp_path / "out" / NAMES[0]), state)


def test_what_cannot_be_consolidated_is_an_error(tmp_path: Path) -> None:
    save("cairn", {"w": torch.ones(4)}, tmp_path / "shards", save_distributed=True)
    with pytest.raises(cairn.Error, match="'v'"):
        consolidate_safetensors_files(str(tmp_path / "shards"), str(tmp_path / "out"), {"w": 1, "v": 1})
    assert not (tmp_path / "out/model.safetensors.index.json").exists()
    save_file({"w": torch.ones(4)}, tmp_path / "foreign.safetensors")
    with pytest.raises(ValueError, match="No DCP custom metadata"):
        consolidate_safetensors_files(str(tmp_path), str(tmp_path / "out"), {"w": 1})
    shard = next((tmp_path / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(cairn.Error, match="corrupt"):
        consolidate_safetensors_files(str(tmp_path / "shards"), str(tmp_path / "out"), {"w": 1})


def _consolidate(rank: int, size: int, folder: str) -> None:
    _save_shards(rank, size, "cairn", folder + "/shards")
    mapping = {name: i + 1 for i, name in enumerate(whole())}
    consolidate_safetensors_files_on_every_rank(folder + "/shards", folder + "/out", mapping)
    found: dict[str, Any] = {}
    for file in Path(folder, "out").glob("*.safetensors"):
        found |= load_file(file)
    same(found, whole())
    assert Path(folder, "out/model.safetensors.index.json").exists()


def test_ranks_consolidate_together(tmp_path: Path) -> None:
    run_ranks(3, _consolidate, 3, str(tmp_path))


def _save_and_consolidate(rank: int, size: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    state = cut(whole(), init_device_mesh("cpu", (size,)), 0)
    save("cairn", state, folder, save_distributed=True, enable_consolidation=True)


def test_a_save_consolidates_its_shards(tmp_path: Path) -> None:
    run_ranks(2, _save_and_consolidate, 2, str(tmp_path))
    same(load_file(tmp_path / NAMES[0]), whole())
    assert len(list((tmp_path / "sharded").iterdir())) == 2
