"""Saves on real disks that are full, and on one that takes bytes and then cannot write them."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest
from disks import MIB, Disk, disk_or_skip
from programs import CLI, command
from saved_specs import holds, save, spec_of

KINDS = ["ext4", "xfs"]
STATE_MIB = 2.0
OLD, NEW = spec_of(1, STATE_MIB), spec_of(2, STATE_MIB, low_space="ignore")
NEED = int(STATE_MIB * MIB) + 64 * 1024  # of one checkpoint: two tensors, and what is around them


def files_in(run: Path) -> set[str]:
    return set(os.listdir(run))


def used_by(run: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in run.iterdir())


@contextlib.contextmanager
def disk_with_checkpoint(kind: str, base: Path, cellar: int = 256 * MIB):
    with disk_or_skip(kind, base, 64 * MIB, cellar) as disk:
        run = disk.place / "run"
        done = save(run, OLD)
        assert done.returncode == 0, done.stderr
        yield disk, run


def overwrite_with(disk: Disk, run: Path, free: int) -> bool:
    """Whether it succeeded; either way all that is promised holds."""
    before = disk.free()
    with disk.with_free(free):
        done = save(run, NEW)
        if done.returncode:
            assert "No space left on device" in done.stderr, done.stderr
            assert str(run) in done.stderr, "the error names no file"
            assert holds(run, OLD), "the old checkpoint is not what it was"
        else:
            assert holds(run, NEW), "a save that succeeded is not there"
        cleaned = command(CLI, "gc", run)
        # On XFS the lock itself needs a block.
        assert cleaned.returncode == 0 or "cannot open the lock: No space left" in cleaned.stderr, cleaned.stderr
    if cleaned.returncode:
        assert command(CLI, "gc", run).returncode == 0
    assert len(files_in(run)) == 3, files_in(run)
    # A block for each file, and what XFS takes for inodes and keeps: 64 of them at a time.
    slack = disk.block() * (len(files_in(run)) + 1) + (64 * 512 if disk.kind == "xfs" else 0)
    until = time.monotonic() + 300  # XFS gives back in the background what was removed
    while abs(disk.free() - before) > slack and time.monotonic() < until:
        time.sleep(0.05)
    assert abs(disk.free() - before) <= slack, "space was not given back"
    assert save(run, OLD).returncode == 0, "there is room again, and the next save fails"
    assert holds(run, OLD)
    return done.returncode == 0


def fill_in_steps(kind: str, base: Path, steps: int) -> None:
    with disk_with_checkpoint(kind, base) as (disk, run):
        ended = [overwrite_with(disk, run, int(1.1 * NEED * step / (steps - 1))) for step in range(steps)]
        print(kind, "".join("+" if good else "-" for good in ended))
        assert not ended[0] and ended[-1], "the steps do not reach from too little to enough"
        assert ended == sorted(ended), "more room made a save fail"


def test_a_disk_that_is_full_at_16_places_of_a_save(tmp_path: Path) -> None:
    fill_in_steps("ext4", tmp_path, 16)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_is_full_at_64_places_of_a_save(tmp_path: Path, kind: str) -> None:
    fill_in_steps(kind, tmp_path, 64)


def test_a_compressed_save_that_seems_too_large_may_go_on_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cairn, np = pytest.importorskip("cairn"), pytest.importorskip("numpy")
    state = {"w": np.zeros(4 * MIB, np.uint8)}
    with disk_or_skip("ext4", tmp_path, 64 * MIB, 256 * MIB) as disk, disk.with_free(MIB):
        with pytest.raises(cairn.Error, match="there is room for") as raised:
            cairn.save(state, disk.place / "run", transforms=["zstd"])
        assert raised.value.tensor == "w" and not caplog.records
        report = cairn.save(state, disk.place / "run", transforms=["zstd"], low_space="warn")
        assert [record.getMessage() for record in caplog.records] == report["warnings"]
        assert "there is room for" in report["warnings"][0] and caplog.records[0].name == "cairn"
        caplog.clear()
        assert not cairn.save(state, disk.place / "run", transforms=["zstd"], low_space="ignore")["warnings"]
        assert not caplog.records and not cairn.load(None, disk.place / "run")["w"].any()


# Where the room ends: in the first of the two tensors, in the second, and nowhere.
ROOMS = {STATE_MIB / 4: "model.w", STATE_MIB * 3 / 4: "optim.exp_avg", STATE_MIB * 2: None}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("to", ["torch", "safetensors", "huggingface", "dcp"])
def test_a_conversion_that_finds_no_room_names_the_tensor_and_leaves_nothing(
    tmp_path: Path, to: str, room: float
) -> None:
    with disk_with_checkpoint("ext4", tmp_path) as (disk, run), disk.with_free(int(room * MIB)):
        before = sorted(disk.place.rglob("*"))
        made = disk.place / "made" / {"torch": "m.pt", "safetensors": "m.safetensors"}.get(to, "m")
        done = command(CLI, "convert", run, made, "--to", to, "--skip-objects")
        if ROOMS[room] is None:
            assert done.returncode == 0, done.stderr
            return
        assert done.returncode == 1 and "No space left on device" in done.stderr, done.stderr
        assert f"tensor '{ROOMS[room]}'" in done.stderr and str(made.parent) in done.stderr, done.stderr
        assert sorted(disk.place.rglob("*")) == before


def fail_to_write_back(kind: str, base: Path, rounds: int) -> None:
    """The disk says that there is room, takes the bytes, and cannot write them: fsync fails, once."""
    cellar = 24 * MIB if kind == "ext4" else 200 * MIB
    errors = 0
    with disk_with_checkpoint(kind, base, cellar) as (disk, run):
        for _ in range(rounds):
            with disk.with_full_cellar():
                done = save(run, NEW, env={**os.environ, "CAIRN_IO": "buffered"})
                if done.returncode == 0:
                    continue  # it fitted into blocks that the image has already
                errors += 1
                assert any(text in done.stderr for text in ("Input/output error", "No space left")), done.stderr
                assert str(run) in done.stderr, "the error names no file"
            assert holds(run, OLD), "the old checkpoint is not what it was"
            assert command(CLI, "gc", run).returncode == 0
    assert errors >= rounds * 3 // 4, f"only {errors} of {rounds} saves met a disk that cannot write"


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_fsync_fails_the_save_and_leaves_the_old_checkpoint(tmp_path: Path, kind: str) -> None:
    fail_to_write_back(kind, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_100_failed_fsyncs_leave_the_old_checkpoint(tmp_path: Path, kind: str) -> None:
    fail_to_write_back(kind, tmp_path, 100)
