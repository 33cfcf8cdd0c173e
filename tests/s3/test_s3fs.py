"""Stock PyTorch in a bucket by itself, through fsspec and s3fs: it reads what cairn saved there, and the reverse."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import s3fs
import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

import cairn.torch as cairn_dcp
from place import Place

warnings.simplefilter("ignore")


def made(version: int) -> dict[str, Any]:
    torch.manual_seed(version)
    tensors = {"w": torch.randn(700, 1000), "h": torch.randn(129).to(torch.bfloat16), "i": torch.arange(9)}
    return {"model": tensors, "step": version}


def check(loaded: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert loaded["step"] == wanted["step"]
    for name, tensor in wanted["model"].items():
        assert torch.equal(loaded["model"][name], tensor), name


def zeros() -> dict[str, Any]:
    return {"model": {name: torch.zeros_like(tensor) for name, tensor in made(0)["model"].items()}, "step": 0}


@pytest.fixture
def shared(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    # Ceph 16 does not take the checksums that botocore sends after a body.
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    s3fs.S3FileSystem.clear_instance_cache()  # and what it believes of folders
    return place


def test_stock_reads_what_cairn_saved(shared: Place) -> None:
    for version in (1, 2):  # the second in place of the first
        cairn_dcp.save(made(version), checkpoint_id=f"{shared.url}/ours")
        s3fs.S3FileSystem.clear_instance_cache()
        loaded = zeros()
        stock.load(loaded, storage_reader=FsspecReader(f"{shared.url}/ours"))
        check(loaded, made(version))


def test_cairn_reads_what_stock_saved(shared: Place) -> None:
    stock.save(made(3), storage_writer=FsspecWriter(f"{shared.url}/stock"), no_dist=True)
    loaded = zeros()
    cairn_dcp.load(loaded, checkpoint_id=f"{shared.url}/stock")
    assert cairn_dcp.last_report()["way"] == "native"
    check(loaded, made(3))
    shared.ok("verify", f"{shared.url}/stock")
