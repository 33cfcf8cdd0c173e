"""No file makes us run anything: the attack corpus, loaded as a user loads it, under a system call filter.

Each file of the corpus is put where it would lie in a checkpoint; confined.py then opens, reads, verifies and converts
all of them in one process that the system kills when it starts a program, forks, or reaches for the network.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import assemble
import make_attacks
import numpy
import pytest

import cairn

HERE = Path(__file__).resolve().parent
WAYS = ("open", "read", "verify", "to dcp", "to safetensors")

# Kinds whose reader is stricter on request only; `cairn` reads such files.
ON_REQUEST = {"deflate", "strict-crc"}


def beside(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def with_manifest(folder: Path, data: bytes, saved: Path) -> Path:
    folder.mkdir()
    for file in saved.iterdir():
        (folder / file.name).write_bytes(data if "manifest" in file.name else file.read_bytes())
    return folder


def placed(row: make_attacks.Attack, folder: Path, saved: Path) -> list[Path]:
    """The file as part of checkpoints that can be opened."""
    place = folder / row.name
    blob = assemble.torch_file()
    if row.kind == "metadata":
        return [beside(place, **{".metadata": row.data, "__0_0.distcp": blob})]
    if row.kind == "blob":
        storage = assemble.dict_of(
            (assemble.index("w", assemble.size(0), assemble.number(0)), assemble.place(length=len(row.data)))
        )
        return [beside(place, **{".metadata": assemble.metadata(storage=storage), "__0_0.distcp": row.data})]
    if row.kind == "manifest":
        return [with_manifest(place, row.data, saved)]
    if row.kind == "index":
        files = {"model.safetensors.index.json": row.data, "a": assemble.safetensors({"w": assemble.entry()})}
        return [beside(place, **files)]
    if row.kind == "safetensors":
        place.with_suffix(".safetensors").write_bytes(row.data)
        return [place.with_suffix(".safetensors"), beside(folder / f"{row.name}-hub", **{"model.safetensors": row.data})]
    data = assemble.torch_file(row.data) if row.kind == "pickle" else row.data
    place.with_suffix(".pt").write_bytes(data)
    return [place.with_suffix(".pt")]


def confined(paths: list[Path], scratch: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, HERE / "confined.py", scratch, *arguments],
        input="\n".join(map(str, paths)), capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "ckpt"
    cairn.save({"w": numpy.arange(4, dtype="float32")}, path, durable=False)
    return path


def test_loading_the_attack_corpus_starts_nothing(tmp_path: Path, saved: Path) -> None:
    rows = make_attacks.attacks()
    where = {path: row for row in rows for path in placed(row, tmp_path, saved)}
    done = confined(list(where), tmp_path)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"ended by {done.returncode} at {lines[-1:]}\n{done.stderr[-3000:]}"
    assert [Path(line[0]) for line in lines] == list(where)
    counts = Counter(outcome for _, outcomes in lines for outcome in outcomes.split())
    print(f"{len(rows)} files at {len(where)} places, {len(WAYS)} ways each: {dict(counts)}")
    assert counts["internal"] == 0 and len(rows) >= 600
    for path, outcomes in lines:
        row = where[Path(path)]
        if row.verdict != "ok" and not row.limits and row.kind not in ON_REQUEST:
            assert set(outcomes.split()) != {"ok"}, f"{row.name}: {row.reason}"
    assert not Path("/tmp/cairn-was-here").exists()


def test_the_filter_kills_who_starts_a_program(tmp_path: Path) -> None:
    assert confined([], tmp_path).returncode == 0
    assert confined([], tmp_path, "--escape").returncode == -signal.SIGSYS
