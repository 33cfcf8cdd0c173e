"""What real torch saves, cairn loads on other ranks in other cuts; and the other way round."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from programs import PROBE
from states import Spec, recut, spec_of
from torch_ranks import run_cases

RANKS = (1, 2, 4)
WRITERS: dict[str, dict[str, Any]] = {
    "usual": {},
    "two-threads": {"writer": {"thread_count": 2}},
    "zstd": {"zstd": True},
    "file-per-item": {"writer": {"single_file_per_rank": False}},
    "rank-local": {"collectives": False},
}
SAVES: dict[str, dict[str, Any]] = {
    "usual": {},
    "three-files": {"files": 3},
    "zstd": {"zstd": True},
    "no-checksums": {"checksums": False},
}


def torch_spec(ranks: int) -> Spec:
    grid = {1: [1, 1], 2: [1, 2], 4: [2, 2]}[ranks]
    return spec_of(
        ranks,
        {
            "plain": ([ranks], [-1]),
            "sharded": ([ranks], [0]),
            "dtensor1": ([ranks], [0]),
            "dtensor1c": ([ranks], [1]),
            "dtensor2": (grid, [0, 1]),
            "dtensor2r": (grid, [-1, 1]),
            "dtensor2s": (grid, [0, 0]),
        },
    )


def without_empty_shards(spec: Spec) -> Spec:
    """torch has no ShardedTensor without elements."""
    kept = [t for t in spec["tensors"] if not (t["name"].startswith("sharded.") and 0 in t["shape"])]
    return {**spec, "tensors": kept}


def probe(command: str, path: Path, spec: Spec) -> str:
    done = subprocess.run([PROBE, command, path, json.dumps(spec)], text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, f"{path.name} on {spec['ranks']} ranks: {done.stderr}"
    return done.stdout


def refused(path: Path, spec: Spec) -> bool:
    """Whether a rank is told that it has no part in a rank-local checkpoint, as in torch."""
    done = subprocess.run([PROBE, "load", path, json.dumps(spec)], text=True, capture_output=True, timeout=300)
    return done.returncode != 0 and "was not among them" in done.stderr


@pytest.fixture(scope="module")
def saved_by_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], Path]:
    folder = tmp_path_factory.mktemp("torch")
    paths = {(ranks, name): folder / f"{name}-{ranks}" for ranks in RANKS for name in WRITERS}
    cases = [
        {"op": "save", "path": str(path), "spec": torch_spec(ranks), **WRITERS[name]}
        for (ranks, name), path in paths.items()
    ]
    assert run_cases(cases, folder) == []
    return paths


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("ranks", RANKS)
def test_cairn_loads_what_torch_saved(saved_by_torch: dict[tuple[int, str], Path], ranks: int, name: str) -> None:
    path = saved_by_torch[ranks, name]
    spec = without_empty_shards(torch_spec(ranks))
    for loading in (1, 2, 3, 4):
        if name == "rank-local" and loading > ranks:
            assert refused(path, recut(spec, loading))
        else:
            assert json.loads(probe("load", path, recut(spec, loading)))["read"] > 0
    if name != "rank-local" or ranks >= 3:
        probe("load", path, {**recut(spec, 3), "read_once": True})


def test_torch_loads_what_cairn_saved(tmp_path: Path) -> None:
    cases = []
    for ranks in (1, 2, 3, 4):
        for name, options in SAVES.items():
            path = tmp_path / f"{name}-{ranks}"
            probe("save", path, {**recut(without_empty_shards(torch_spec(4)), ranks), **options})
            cases += [{"op": "load", "path": str(path), "spec": without_empty_shards(torch_spec(n))} for n in RANKS]
    for ranks in RANKS:  # torch reads a rank-local checkpoint on the ranks that wrote it
        path = tmp_path / f"rank-local-{ranks}"
        spec = without_empty_shards(torch_spec(ranks))
        probe("save", path, {**spec, "collectives": False})
        cases.append({"op": "load", "path": str(path), "spec": spec})
    assert run_cases(cases, tmp_path) == []


@pytest.mark.parametrize("name", [*SAVES, "rank-local"])
def test_cairn_loads_what_cairn_saved(tmp_path: Path, name: str) -> None:
    options = SAVES.get(name, {"collectives": False})
    for ranks in (1, 2, 3, 4):
        spec = recut(torch_spec(4), ranks)
        path = tmp_path / str(ranks)
        probe("save", path, {**spec, **options})
        for loading in (1, 2, 3, 4):
            if name == "rank-local" and loading > ranks:
                assert refused(path, recut(spec, loading))
                continue
            report = json.loads(probe("load", path, recut(spec, loading)))
            assert name == "no-checksums" or report["unverified"] == 0
        if name != "rank-local" or ranks >= 2:
            probe("load", path, {**recut(spec, 2), "read_once": True})
