"""Sources and destinations that are no good: an error that names the tensor and the file, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
cairn = pytest.importorskip("cairn")

from convert_states import rich, save_dcp

DESTINATIONS = {"torch": "out/m.pt", "safetensors": "out/m.safetensors", "dcp": "out/dcp", "huggingface": "out/hub"}


@pytest.fixture(params=DESTINATIONS)
def to(request: pytest.FixtureRequest) -> str:
    return request.param


def fails(source: Path, folder: Path, to: str, **options: object) -> cairn.Error:
    """Converts, which must not work and leave nothing."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(cairn.Error) as raised:
        cairn.convert(source, folder / DESTINATIONS[to], to=to, skip_objects=True, **options)
    assert sorted(folder.rglob("*")) == before
    return raised.value


@pytest.fixture
def dcp(tmp_path: Path) -> Path:
    save_dcp({"model": {"w": torch.randn(400, 300), "b": torch.ones(4)}}, tmp_path / "dcp")
    return tmp_path / "dcp"


def test_no_source(tmp_path: Path, to: str) -> None:
    assert fails(tmp_path / "nothing", tmp_path, to).code == "not_found"


def test_a_truncated_dcp_file(dcp: Path, tmp_path: Path, to: str) -> None:
    file = max(dcp.glob("*.distcp"), key=lambda f: f.stat().st_size)
    os.truncate(file, file.stat().st_size // 2)
    error = fails(dcp, tmp_path, to)
    assert error.code == "corrupt" and error.tensor and file.name in error.file


def test_a_truncated_torch_file(tmp_path: Path, to: str) -> None:
    torch.save({"w": torch.randn(1000)}, tmp_path / "state.pt")
    os.truncate(tmp_path / "state.pt", 3000)
    error = fails(tmp_path / "state.pt", tmp_path, to)
    assert error.code == "corrupt" and error.file.endswith("state.pt")


def test_a_truncated_safetensors_file(tmp_path: Path, to: str) -> None:
    safetensors.save_file({"w": torch.randn(1000)}, tmp_path / "m.safetensors")
    os.truncate(tmp_path / "m.safetensors", 3000)
    error = fails(tmp_path / "m.safetensors", tmp_path, to)
    assert error.code == "corrupt" and error.file.endswith("m.safetensors")


def test_a_bit_that_flipped_in_a_stock_checkpoint(dcp: Path, tmp_path: Path, to: str) -> None:
    file = max(dcp.glob("*.distcp"), key=lambda f: f.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    error = fails(dcp, tmp_path, to)
    assert error.code == "corrupt" and error.tensor == "model.w" and file.name in error.file


def test_a_tensor_that_the_index_promises(tmp_path: Path, to: str) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    safetensors.save_file({"w": torch.ones(3)}, hub / "model-00001-of-00001.safetensors")
    weights = {"w": "model-00001-of-00001.safetensors", "lost": "model-00001-of-00001.safetensors"}
    (hub / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    error = fails(hub, tmp_path, to)
    assert error.code == "not_found" and error.tensor == "lost" and "model-00001" in error.file


def test_a_path_that_leaves_the_directory(tmp_path: Path, to: str) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    safetensors.save_file({"w": torch.ones(3)}, tmp_path / "secret.safetensors")
    (hub / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {"w": "../secret.safetensors"}})
    )
    assert fails(hub, tmp_path, to).code == "corrupt"


def test_a_destination_that_is_there(dcp: Path, tmp_path: Path, to: str) -> None:
    cairn.convert(dcp, tmp_path / DESTINATIONS[to], to=to)
    error = fails(dcp, tmp_path, to)
    assert error.code == "conflict" and error.file == str(tmp_path / DESTINATIONS[to])
    cairn.convert(dcp, tmp_path / DESTINATIONS[to], to=to, overwrite=True)
    assert cairn.open(tmp_path / DESTINATIONS[to])["model.b"][:].tolist() == [1, 1, 1, 1]


def test_two_entries_of_one_name(dcp: Path, tmp_path: Path, to: str) -> None:
    error = fails(dcp, tmp_path, to, map={"^model.*": "x"})
    assert error.code == "invalid_argument" and "'model.w' and 'model.b'" in error.message


@pytest.mark.parametrize("to", ["safetensors", "huggingface"])
def test_objects_that_safetensors_cannot_hold(tmp_path: Path, to: str) -> None:
    torch.save(rich(), tmp_path / "state.pt")
    with pytest.raises(cairn.Error, match="fraction") as raised:
        cairn.convert(tmp_path / "state.pt", tmp_path / DESTINATIONS[to], to=to)
    assert raised.value.code == "unsupported" and not (tmp_path / "out").exists()
    report = cairn.convert(tmp_path / "state.pt", tmp_path / DESTINATIONS[to], to=to, skip_objects=True)
    assert "fraction" in report["dropped"] and "optim.param_groups.0.lr" in report["dropped"]


def test_an_element_type_that_safetensors_lacks(tmp_path: Path) -> None:
    torch.save({"z": torch.zeros(2, dtype=torch.complex128)}, tmp_path / "state.pt")
    error = fails(tmp_path / "state.pt", tmp_path, "safetensors")
    assert error.code == "unsupported" and error.tensor == "z"


FULL = """
import resource, signal, sys, cairn
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    cairn.convert(sys.argv[1], sys.argv[2], to=sys.argv[3])
except cairn.Error as e:
    print(e.code, e.os_error, e.tensor, e.file, sep="|")
"""


def test_a_disk_that_is_full_in_the_middle(dcp: Path, tmp_path: Path, to: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(dcp), str(tmp_path / DESTINATIONS[to]), to],
        capture_output=True, text=True, timeout=600, env={**os.environ, "CAIRN_IO": "buffered"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code, os_error, tensor, file = done.stdout.strip().split("|")
    assert code == "io" and int(os_error) > 0 and str(tmp_path / "out") in file
    assert tensor == "model.w"
    assert sorted(tmp_path.rglob("*")) == before
