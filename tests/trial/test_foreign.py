"""Every file that cairn writes is in order in the eyes of others: zipfile, unzip, pickletools, torch."""

from __future__ import annotations

import io
import json
import os
import pickletools
import subprocess
import zipfile
from pathlib import Path

import pytest
from programs import CLI, command
from saved_specs import save, spec_of

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402


def check_archive(archive: bytes, scratch: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert opened.testzip() is None
        names = [name for name in opened.namelist() if name.endswith("/data.pkl")]
        assert len(names) == 1
        with open(os.devnull, "w") as nowhere:
            pickletools.dis(opened.read(names[0]), out=nowhere)
    scratch.write_bytes(archive)
    subprocess.run(["unzip", "-tqq", scratch], check=True, timeout=600)
    torch.load(io.BytesIO(archive), weights_only=True)


@pytest.mark.parametrize("options", [{}, {"ranks": 4}, {"files": 3}, {"ranks": 2, "collectives": False}])
def test_items_and_metadata_of_a_checkpoint_are_in_order(tmp_path: Path, options: dict) -> None:
    run = tmp_path / "run"
    done = save(run, spec_of(1, 0.5, **options))
    assert done.returncode == 0, done.stderr
    checked = 0
    for description in run.glob("*.metadata") if "collectives" in options else [run / ".metadata"]:
        with open(os.devnull, "w") as nowhere:
            pickletools.dis(description.read_bytes(), out=nowhere)
        if "collectives" in options:
            continue
        for place in dcp.FileSystemReader(run).read_metadata().storage_data.values():
            file = (run / place.relative_path).read_bytes()
            check_archive(file[place.offset : place.offset + place.length], tmp_path / "item.zip")
            checked += 1
    assert checked >= 4 or "collectives" in options
    print(json.dumps({"items": checked}))


def test_converted_files_are_in_order(tmp_path: Path) -> None:
    assert save(tmp_path / "run", spec_of(1, 0.5)).returncode == 0
    for name in ("weights.pt", "model.safetensors"):
        done = command(CLI, "convert", tmp_path / "run", tmp_path / name, "--skip-objects")
        assert done.returncode == 0, done.stderr
    check_archive((tmp_path / "weights.pt").read_bytes(), tmp_path / "copy.zip")
    safetensors = pytest.importorskip("safetensors.torch")
    loaded = safetensors.load_file(tmp_path / "model.safetensors")
    saved = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert torch.equal(loaded["model.w"].view(torch.uint8), saved["model"]["w"].view(torch.uint8))
