"""Safetensors both ways with the real package: what it writes, cairn reads and writes, and it reads again.

cairn_probe rewrites all cases in one run. The attack corpus of tests/attack is judged by the real package too, so
that cairn accepts nothing it refuses.
"""

import json
import struct
import subprocess
import sys
import warnings

import pytest
import safetensors
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from programs import PROBE, ROOT

SEED = 20240607

sys.path.insert(0, str(ROOT / "tests/attack"))
import attacks_safetensors  # noqa: E402

SEES = ()  # none of the sources: tests/once.py

DTYPES = [getattr(torch, name) for name in (
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64 "
    "float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz").split()]


def random_tensor(shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(SEED)
    bytes_needed = torch.Size(shape).numel() * dtype.itemsize
    limit = 2 if dtype is torch.bool else 256
    return torch.randint(limit, (bytes_needed,), dtype=torch.uint8,
        generator=generator).view(dtype).reshape(shape)


def with_python_header(tensors):
    """The way torch's consolidation writes: json.dumps with spaces, no padding, no metadata."""
    header, data = {}, b""
    names = {torch.float32: "F32", torch.int8: "I8"}
    for name, t in tensors.items():
        raw = t.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"shape": list(t.shape), "dtype": names[t.dtype],
            "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def backwards():
    a, b = random_tensor((2,)), random_tensor((3,))
    entries = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [12, 20]},
        "b": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + b.numpy().tobytes() + a.numpy().tobytes()


def hugging_face(folder):
    """A file of DCP's own writer, with its sharding text in the metadata."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = dcp.HuggingFaceStorageWriter(path=str(folder), save_distributed=True)
        dcp.save({"w": random_tensor((4, 4)), "b": random_tensor((4,))}, storage_writer=writer, no_dist=True)
    return next(folder.glob("*.safetensors")).read_bytes()


def cases(folder):
    save = safetensors.torch.save
    yield "dtypes", save({str(d)[6:]: random_tensor((3, 2), d) for d in DTYPES})
    yield "shapes", save({"scalar": random_tensor(()), "empty": torch.zeros(0),
        "empty_2d": torch.zeros(3, 0), "deep": random_tensor((1,) * 40)})
    yield "nothing", save({})
    yield "metadata", save({"w": random_tensor((2,))},
        {"format": "pt", "é\"\\\n": "\u0001\t\U0001F600", "": ""})
    yield "only_metadata", save({}, {"format": "pt"})
    yield "names", save({n: random_tensor((2,)) for n in ("", "a b", "é", "\"", "\\", "\n", "\U0001F600",
        "x" * 1000, "__meta__")})
    yield "many", save({f"model.layers.{i}.weight": random_tensor((2, i % 5)) for i in range(2000)})
    yield "odd_sizes", save({f"t{i}": random_tensor((i,), torch.int8) for i in range(1,
        20)} | {"f": random_tensor((3,))})
    yield "python_header", \
        with_python_header({"w": random_tensor((2, 3)), "i": random_tensor((5,), torch.int8),
        "v": random_tensor((2,))})
    yield "backwards", backwards()
    yield "hugging_face", hugging_face(folder)


NAMES = ["dtypes", "shapes", "nothing", "metadata", "only_metadata", "names", "many", "odd_sizes",
    "python_header",
         "backwards", "hugging_face"]


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory):
    """name -> (file of the real package, file of cairn)"""
    folder = tmp_path_factory.mktemp("safetensors")
    (folder / "hf").mkdir()
    pairs = {}
    for name, data in cases(folder / "hf"):
        (folder / f"{name}.in").write_bytes(data)
        pairs[name] = (folder / f"{name}.in", folder / f"{name}.out")
    assert sorted(pairs) == sorted(NAMES)
    subprocess.run([PROBE, "rewrite-safetensors", *(p for pair in pairs.values() for p in pair)], check=True)
    return pairs


def contents(path):
    with safetensors.safe_open(path, framework="pt") as file:
        return {k: file.get_tensor(k) for k in file.keys()}, file.metadata()  # noqa: SIM118


@pytest.mark.parametrize("name", NAMES)
def test_the_package_reads_what_cairn_rewrote(name, rewritten):
    before, after = rewritten[name]
    (tensors, metadata), (found, found_metadata) = contents(before), contents(after)
    assert found.keys() == tensors.keys()
    assert (found_metadata or {}) == (metadata or {})
    for key, tensor in tensors.items():
        assert found[key].dtype == tensor.dtype and found[key].shape == tensor.shape, key
        assert bytes(found[key].reshape(-1).view(torch.uint8).numpy()) == bytes(tensor.reshape(-1).view(torch.uint8).numpy()), key


@pytest.mark.parametrize("name", NAMES)
def test_data_is_aligned_and_the_header_canonical(name, rewritten):
    out = rewritten[name][1].read_bytes()
    length = struct.unpack("<Q", out[:8])[0]
    assert (8 + length) % 8 == 0
    header = json.loads(out[8:8 + length])
    assert out[8:9] == b"{"
    end = 0
    for key, entry in header.items():
        if key == "__metadata__":
            continue
        assert entry["data_offsets"][0] == end
        end = entry["data_offsets"][1]
    assert 8 + length + end == len(out)


def test_rewriting_twice_changes_nothing(rewritten, tmp_path):
    arguments = [p for name, (_, out) in rewritten.items() for p in (out, tmp_path / name)]
    subprocess.run([PROBE, "rewrite-safetensors", *arguments], check=True)
    for name, (_, out) in rewritten.items():
        assert (tmp_path / name).read_bytes() == out.read_bytes(), name


# Files the package reads and cairn refuses, on purpose: two parsers could see them differently, or a limit.
STRICTER = {
    "header-over-limit", "tensors-over-limit", "rank-over-limit", "name-over-limit", "shape-past-2-to-53",
    "duplicate-name", "duplicate-metadata-key", "extra-field", "leading-space", "f4-odd-rows",
}


def accepted_by_package(data):
    try:
        safetensors.deserialize(data)
    except (safetensors.SafetensorError, ValueError):
        return False
    return True


def test_the_package_accepts_every_attack_file_that_cairn_accepts():
    rows = list(attacks_safetensors.tensor_rows())
    refused = [row[0] for row in rows if row[1] == "ok" and not accepted_by_package(row[3])]
    assert refused == []


def test_the_package_refuses_what_cairn_refuses_but_for_a_written_list():
    rows = list(attacks_safetensors.tensor_rows())
    assert {row[0] for row in rows if row[1] != "ok" and accepted_by_package(row[3])} == STRICTER
