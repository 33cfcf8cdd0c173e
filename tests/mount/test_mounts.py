"""The life of a checkpoint on a mount without links, exclusive renames, directory syncs, direct I/O or locks for others."""

from __future__ import annotations

from pathlib import Path

import mounts
import numpy
import pytest
from programs import CLI, command

import cairn


def state(version: int) -> dict[str, object]:
    return {"w": numpy.full(70_000, version, dtype=numpy.float32), "step": version}


def test_the_commands_do_there_what_they_do_elsewhere(mount: Path) -> None:
    cairn.save(state(1), mount / "run")
    cairn.save(state(2), mount / "run")
    assert cairn.load(None, mount / "run")["step"] == 2
    assert len(list((mount / "run").iterdir())) == 3, "data, manifest, metadata"
    for arguments in (["ls"], ["verify"], ["gc", "--force"]):
        assert command(CLI, *arguments, mount / "run").returncode == 0, arguments
    assert command(CLI, "convert", mount / "run", mount / "flat.pt").returncode == 0
    assert command(CLI, "verify", mount / "flat.pt").returncode == 0
    assert cairn.load(None, mount / "run")["step"] == 2


def test_a_close_that_fails_is_an_error_and_the_old_checkpoint_stays(folder: Path, tmp_path: Path) -> None:
    cairn.save(state(1), folder / "run")
    with mounts.mounted(folder, tmp_path / "failing", "fail-close") as point:
        with pytest.raises(cairn.Error) as failed:
            cairn.save(state(2), point / "run")
        assert failed.value.code == "io" and ".distcp" in str(failed.value), failed.value
        with pytest.raises(cairn.Error):
            cairn.save(state(2), point / "new")
    assert cairn.load(None, folder / "run")["step"] == 1
    assert cairn.verify(folder / "run")["ok"]
    assert not list(folder.glob("new/.metadata"))


def test_a_reader_whose_files_are_taken_away_gets_an_error_not_wrong_numbers(mount: Path) -> None:
    cairn.save(state(1), mount / "run")
    checkpoint = cairn.open(mount / "run")
    assert (numpy.asarray(checkpoint["w"]) == 1).all()
    cairn.save(state(2), mount / "run")
    try:
        again = numpy.asarray(checkpoint["w"])
    except cairn.Error as e:
        assert e.code in ("io", "not_found"), e
    else:
        assert (again == 1).all()


def test_a_save_that_does_not_wait_for_the_disk_replaces_another_there(mount: Path) -> None:
    for version in (1, 2, 3):
        cairn.save(state(version), mount / "run", durable=False)
        assert cairn.load(None, mount / "run")["step"] == version
    assert len(list((mount / "run").iterdir())) == 3, "data, manifest, metadata"
