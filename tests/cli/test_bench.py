"""`cairn bench`: figures of this machine, and nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from programs import CLI
from saved import cairn
from terminal import at_terminal

pytestmark = pytest.mark.skipif(not CLI.exists(), reason=f"{CLI} has not been built")

SMALL = ["--size", "8MiB", "--tensors", "5"]


def bench(*args):
    result = cairn("bench", *args)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def refused(code, *args):
    result = cairn("bench", *args)
    assert result.returncode == code, (result.stdout, result.stderr)
    assert result.stdout == "" and result.stderr.startswith("cairn: ") and result.stderr.count("\n") == 1
    return result.stderr


def test_the_table_has_every_figure(tmp_path):
    lines = bench(tmp_path / "b", *SMALL).splitlines()
    assert lines[0].startswith("8.0 MiB in 5 tensors and ")
    names = [line[:20].replace(", cold", "").strip() for line in lines[2:]]
    assert names[1:6] == ["raw write", "raw read", "save", "load", "verify"]
    stall = ["call returns", "state is free", "checkpoint there"]
    assert names[6:14] == ["async_save, first", *stall, "async_save, later", *stall]


def test_json_is_consistent(tmp_path):
    report = json.loads(bench(tmp_path / "b", *SMALL, "--files", "3", "--json"))
    assert 8 << 20 <= report["bytes"] < (8 << 20) + 5 * 4096
    assert report["tensors"] == 5 and report["files"] == 3 and report["cores"] == os.cpu_count()
    assert report["file_system"] and report["checkpoint"] is None
    for name in ("raw_write", "raw_read", "save", "load", "verify", "async_first", "async_later"):
        row = report[name]
        assert row["seconds"] > 0
        assert row["bytes_per_second"] == pytest.approx(report["bytes"] / row["seconds"])
    assert report["raw_write"]["files"] >= 1 and report["raw_write"]["direct"] in (True, False)
    assert report["save"]["of_raw"] == pytest.approx(report["raw_write"]["seconds"] / report["save"]["seconds"])
    assert report["load"]["of_raw"] == pytest.approx(report["raw_read"]["seconds"] / report["load"]["seconds"])
    for name in ("async_first", "async_later"):
        assert 0 < report[name]["returned"] <= report[name]["staged"] <= report[name]["seconds"]


def test_directories_that_were_made_are_removed(tmp_path):
    bench(tmp_path / "a" / "b" / "c", *SMALL)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_there_stays(tmp_path):
    bench(tmp_path, *SMALL)
    assert tmp_path.is_dir() and list(tmp_path.iterdir()) == []


def test_keep_leaves_a_whole_checkpoint(tmp_path):
    assert f"The checkpoint is at {tmp_path}/b/checkpoint" in bench(tmp_path / "b", *SMALL, "--keep")
    assert [entry.name for entry in (tmp_path / "b").iterdir()] == ["checkpoint"]
    assert cairn("verify", tmp_path / "b" / "checkpoint").returncode == 0
    listing = json.loads(cairn("ls", tmp_path / "b" / "checkpoint", "--json").stdout)
    assert len(listing["tensors"]) == 5


def test_a_directory_in_use_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty" in refused(1, tmp_path, *SMALL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]
    assert "is no directory" in refused(1, tmp_path / "notes.txt", *SMALL)


def test_too_little_room_is_said_before_anything_is_written(tmp_path):
    said = refused(1, tmp_path / "b", "--size", "900TiB")
    assert "GiB are needed, and there is room for" in said and "--size" in said
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_said(tmp_path):
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if shutil.disk_usage(tmp_path).free < 1.5 * memory:
        pytest.skip("the disk has less room than there is memory")
    said = refused(1, tmp_path / "b", "--size", str(memory))
    assert "of memory are needed" in said and "--size" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [["--size", "many"], ["--size", "16", "--tensors", "5"], ["--files", "0"], []])
def test_wrong_usage(tmp_path, args):
    refused(2, *([tmp_path / "b", *args] if args else []))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("during", ["raw", "checkpoint"])
def test_a_signal_leaves_nothing_behind(tmp_path, sent, during):
    command = [CLI, "bench", tmp_path / "b", "--size", "256MiB"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "b" / during).exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.002)
        process.send_signal(sent)
        out, err = process.communicate(timeout=600)
    assert process.returncode == -sent, err
    assert out == "" and "what was made is removed" in err
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_sees_how_far_it_is(tmp_path):
    shown = at_terminal("stderr", [CLI, "bench", tmp_path / "b", "--size", "128MiB"])
    assert shown.returncode == 0
    assert "raw [" in shown.terminal and " % " in shown.terminal and shown.terminal.endswith("\r\x1b[K")
