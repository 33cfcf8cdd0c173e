"""`cairn gc`: what dead saves left goes, everything else stays."""

import fcntl
import json
import shutil

import pytest
from programs import GOLDEN
from saved import BUILT, cairn, save

DEAD = "d" * 32

pytestmark = pytest.mark.skipif(not BUILT, reason="cairn and cairn_probe have not been built")


def listing(path):
    return {f.name: f.read_bytes() for f in path.iterdir()}


def leave_debris(path):
    names = [
        f".cairn-manifest.{DEAD}",
        f"__0_0.{DEAD}.distcp",
        f"__1_0.{DEAD}.distcp.0123456789abcdef.cairn-partial",
        ".metadata.0123456789abcdef.cairn-partial",
    ]
    for name in names:
        (path / name).write_bytes(b"12345")
    return names


@pytest.fixture(params=["ours", "torch's", "ranks' own"])
def checkpoint(request, tmp_path):
    path = tmp_path / "step-1000"
    if request.param == "torch's":
        shutil.copytree(GOLDEN, path)
    else:
        save(path, collectives=request.param == "ours")
    return path


def test_debris_goes_and_the_checkpoint_stays(checkpoint):
    whole = listing(checkpoint)
    names = leave_debris(checkpoint)
    (checkpoint / "notes.txt").write_text("mine")
    result = cairn("gc", checkpoint, "--dry-run")
    assert result.returncode == 0 and "4 files, 20 B, would be removed" in result.stdout
    assert set(listing(checkpoint)) == set(whole) | set(names) | {"notes.txt"}
    result = cairn("gc", checkpoint)
    assert result.returncode == 0 and "4 files, 20 B, removed" in result.stdout
    for name in names:
        assert name in result.stdout
    assert listing(checkpoint) == whole | {"notes.txt": b"mine"}
    assert cairn("gc", checkpoint).stdout == "nothing to remove\n"
    assert cairn("verify", checkpoint).returncode == 0


def test_json(checkpoint):
    names = leave_debris(checkpoint)
    report = json.loads(cairn("gc", checkpoint, "--json").stdout)
    assert report["dry_run"] is False and report["bytes"] == 20
    assert {f["file"] for f in report["files"]} == set(names)


def test_without_a_checkpoint_all_that_is_marked_goes(tmp_path):
    leave_debris(tmp_path)
    (tmp_path / "__0_0.distcp").write_bytes(b"torch's")
    assert cairn("gc", tmp_path).returncode == 0
    assert set(listing(tmp_path)) == {"__0_0.distcp"}


def test_a_description_that_cannot_be_read_stops_it(checkpoint):
    leave_debris(checkpoint)
    for file in checkpoint.glob("*.metadata"):
        file.write_bytes(b"rubbish")
    (checkpoint / ".metadata").write_bytes(b"rubbish")
    before = listing(checkpoint)
    result = cairn("gc", checkpoint)
    assert result.returncode == 1 and "nothing was removed" in result.stderr
    assert listing(checkpoint) == before


def test_a_running_save_keeps_it_out(checkpoint):
    leave_debris(checkpoint)
    before = listing(checkpoint)
    with open(checkpoint / ".cairn-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("process 123 on elsewhere\n")
        lock.flush()
        result = cairn("gc", checkpoint)
        assert result.returncode == 1
        assert "process 123 on elsewhere holds this lock" in result.stderr
        assert {k: v for k, v in listing(checkpoint).items() if k != ".cairn-lock"} == before
    # Who was elsewhere may still be at work there, whatever this machine's locks say.
    result = cairn("gc", checkpoint)
    assert result.returncode != 0 and "the lock keeps nobody out here" in result.stderr
    assert cairn("gc", checkpoint).returncode != 0
    assert cairn("gc", "--force", checkpoint).returncode == 0
    assert ".cairn-lock" not in listing(checkpoint)


def test_what_is_not_there_is_an_error(tmp_path):
    result = cairn("gc", tmp_path / "none")
    assert result.returncode == 1 and "not_found" in result.stderr
