"""Saves and loads of real MPI processes, and what is left when one of them has an accident."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpirun import mpirun, said_by

DEADLINE = 4


def run(ranks: int, directory: Path, mode: str, *arguments: int, options: tuple[str, ...] = ()) -> list[str]:
    """What each rank says, by rank; those that died say nothing."""
    done = mpirun(ranks, "save_check", directory, mode, *arguments, options=options)
    said = said_by(done)
    assert said or done.returncode == 0, done.stderr
    return [said.get(rank, "") for rank in range(ranks)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint of version 1."""
    assert run(4, tmp_path / "run", "save", 1) == ["ok"] * 4
    return tmp_path / "run"


def test_four_ranks_save_and_others_load(directory: Path) -> None:
    for ranks in (1, 2, 3, 4):
        assert run(ranks, directory, "load", 1) == ["ok"] * ranks


def test_an_overwrite_replaces_the_old_checkpoint(directory: Path) -> None:
    assert run(4, directory, "save", 2) == ["ok"] * 4
    assert run(3, directory, "load", 2) == ["ok"] * 3
    assert len(list(directory.iterdir())) == 6  # metadata, manifest, four data files


def test_four_ranks_save_in_the_background(directory: Path) -> None:
    assert run(4, directory, "async", 20) == ["ok"] * 4
    assert run(3, directory, "load", 20) == ["ok"] * 3


@pytest.mark.parametrize("rank", [0, 2])
def test_an_error_on_one_rank_is_the_same_on_all(directory: Path, rank: int) -> None:
    said = run(4, directory, "fail", 2, rank)
    assert "tensor 'optim.exp_avg'" in said[0] and f"rank {rank}: " in said[0]
    assert said == [said[0]] * 4
    assert run(2, directory, "load", 1) == ["ok"] * 2
    assert len(list(directory.iterdir())) == 6


def test_a_stopped_rank_is_named_to_the_others_and_does_no_harm_when_it_wakes(directory: Path) -> None:
    said = run(4, directory, "stop", 2, 2)
    assert "rank 2 did not answer before the deadline" in said[0]
    assert said[0] == said[1] == said[3]
    assert said[2] != "ok", "it came too late"
    assert run(2, directory, "load", 1) == ["ok"] * 2
    assert run(4, directory, "save", 3) == ["ok"] * 4
    assert run(2, directory, "load", 3) == ["ok"] * 2
    assert len(list(directory.iterdir())) == 6


def test_a_stopped_coordinator_does_not_publish_when_it_wakes(directory: Path) -> None:
    said = run(4, directory, "stop", 2, 0)
    assert all("ok" != text for text in said)
    assert "rank 0 did not answer before the deadline" in said[1]
    assert said[1] == said[2] == said[3]
    assert run(2, directory, "load", 1) == ["ok"] * 2
    assert run(4, directory, "save", 3) == ["ok"] * 4


@pytest.mark.parametrize("rank", [0, 3])
def test_a_killed_rank_is_an_error_on_the_others(directory: Path, rank: int) -> None:
    said = run(4, directory, "kill", 2, rank, options=("--enable-recovery",))
    alive = [text for i, text in enumerate(said) if i != rank]
    assert said[rank] == ""
    assert f"rank {rank} did not answer before the deadline" in alive[0]
    assert alive == [alive[0]] * 3
    assert run(2, directory, "load", 1) == ["ok"] * 2
    assert run(4, directory, "save", 3) == ["ok"] * 4
    assert len(list(directory.iterdir())) == 6
