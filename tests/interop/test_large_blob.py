"""A tensor past 4 GiB: both ways between torch.save and cairn, so every 64-bit field of the archive counts."""

import subprocess
import zipfile
from pathlib import Path

import pytest
from programs import PROBE

torch = pytest.importorskip("torch")
cairn = pytest.importorskip("cairn")

BYTES = 2**32 + 4099
MARKS = {0: 1, 2**31 - 1: 2, 2**32 - 1: 3, 2**32: 4, BYTES - 1: 5}  # the rest is zero


@pytest.fixture(scope="module")
def written_by_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tensor = torch.zeros(BYTES, dtype=torch.uint8)
    for at, mark in MARKS.items():
        tensor[at] = mark
    path = tmp_path_factory.mktemp("large") / "torch.pt"
    torch.save({"large": tensor, "behind": torch.arange(5)}, path)
    return path


@pytest.mark.slow
def test_cairn_reads_any_part_of_what_torch_wrote(written_by_torch: Path) -> None:
    checkpoint = cairn.open(written_by_torch)
    for at, mark in MARKS.items():
        assert checkpoint.read("large", f"[{at}:{at + 1}]")[2] == bytes([mark])
    assert checkpoint.read("behind")[2] == torch.arange(5).numpy().tobytes()


@pytest.mark.slow
def test_torch_and_unzip_read_what_cairn_wrote(written_by_torch: Path) -> None:
    path = written_by_torch.with_name("cairn.pt")
    subprocess.run([PROBE, "rewrite-torch", written_by_torch, path], check=True)
    state = torch.load(path, weights_only=True, mmap=True)
    assert {at: int(state["large"][at]) for at in MARKS} == MARKS
    assert int(state["large"].count_nonzero()) == len(MARKS)
    assert state["behind"].equal(torch.arange(5))
    assert zipfile.ZipFile(path).testzip() is None
    assert subprocess.run(["unzip", "-tqq", path]).returncode == 0
