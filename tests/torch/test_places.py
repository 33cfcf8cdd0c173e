"""Where checkpoints lie: file systems that cannot do all, names of any bytes, files that are links."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy
import torch.distributed.checkpoint as stock

import cairn
import cairn.torch as cairn_dcp

warnings.simplefilter("ignore")

# No exclusive rename, no links, no fsync of directories: as some network and FUSE file systems are.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long refuse(int error) {
  errno = error;
  return -1;
}

long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_renameat2) return refuse(RENAME_ERROR);
  long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int linkat(int from, const char *old, int to, const char *name, int flags) { return (int)refuse(LINK_ERROR); }

int fsync(int fd) {
  struct stat status;
  if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) return (int)refuse(SYNC_ERROR);
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  return real(fd);
}
"""

SAVES = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
import cairn
import cairn.torch
path = sys.argv[1]
for version in (1, 2):
    cairn.torch.save({"w": torch.full((1000,), float(version)), "step": version}, checkpoint_id=path)
    state = {"w": torch.zeros(1000), "step": 0}
    cairn.torch.load(state, checkpoint_id=path)
    assert state["step"] == version and (state["w"] == version).all()
try:
    cairn.torch.save(state, storage_writer=cairn.torch.FileSystemWriter(path, overwrite=False))
except Exception as e:
    assert "Checkpoint already exists" in str(e), e
else:
    raise AssertionError("it was overwritten")
assert cairn.verify(path)["ok"] and not cairn.verify(path)["debris"]
"""


@pytest.mark.parametrize("link_error", ["EPERM", "EOPNOTSUPP", "EMLINK"])
def test_a_file_system_without_links_and_directory_sync_will_do(link_error: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler")
    rename_error, sync_error = ("ENOSYS", "EOPNOTSUPP") if link_error == "EPERM" else ("EINVAL", "EINVAL")
    (tmp_path / "shim.c").write_text(SHIM)
    defines = [f"-DRENAME_ERROR={rename_error}", f"-DLINK_ERROR={link_error}", f"-DSYNC_ERROR={sync_error}"]
    subprocess.run([compiler, "-shared", "-fPIC", *defines, "-o", "shim.so", "shim.c", "-ldl"], check=True, cwd=tmp_path)
    environment = {**os.environ, "LD_PRELOAD": str(tmp_path / "shim.so")}
    done = subprocess.run([sys.executable, "-c", SAVES, str(tmp_path / "id")], env=environment, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()


def _odd(tmp_path: Path) -> str:
    return os.fsdecode(os.fsencode(tmp_path) + b"/x\xff-\xc3\xa4")


def _state(value: float) -> dict[str, Any]:
    return {"w": torch.full((5,), value), "o": "text"}


def _require(state: dict[str, Any]) -> None:
    assert torch.equal(state["w"], torch.ones(5)) and state["o"] == "text"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_of_any_bytes_is_saved_and_loaded(kind: type, tmp_path: Path) -> None:
    path = kind(_odd(tmp_path))
    cairn_dcp.save(_state(1), checkpoint_id=path)
    assert os.listdir(os.fsencode(tmp_path)) == [b"x\xff-\xc3\xa4"]
    for side in (cairn_dcp, stock):
        state = _state(0)
        side.load(state, checkpoint_id=path)
        _require(state)
    saved_as = cairn_dcp.FileSystemReader(path).read_metadata().storage_meta.checkpoint_id
    assert saved_as.endswith("/x\ufffd-ä")
    cairn_dcp.async_save(_state(1), checkpoint_id=path, no_dist=True).result()
    state = _state(0)
    cairn_dcp.load(state, checkpoint_id=path)
    _require(state)


def test_a_path_of_any_bytes_is_good_everywhere(tmp_path: Path) -> None:
    odd = _odd(tmp_path)
    os.mkdir(odd)
    for path in (odd + "/str", os.fsencode(odd) + b"/bytes"):
        cairn.save({"w": numpy.ones(3)}, path)
        assert cairn.load(None, path)["w"].sum() == 3
        assert cairn.verify(path)["ok"] and cairn.gc(path)["files"] == []
        assert cairn.open(path).names() == ["w"]
        out = os.fsdecode(path) + ".safetensors"
        cairn.convert(path, out)
        assert cairn.open(out).names() == ["w"]
    torch.save({"w": torch.ones(5), "o": "text"}, odd + "/file.pt")
    model = odd + "/hf"
    writer = cairn_dcp.HuggingFaceStorageWriter(model)
    cairn_dcp.save({"w": torch.ones(5)}, storage_writer=writer)
    state = {"w": torch.zeros(5)}
    cairn_dcp.load(state, storage_reader=cairn_dcp.HuggingFaceStorageReader(model))
    assert torch.equal(state["w"], torch.ones(5))


def _linked(tmp_path: Path, ending: str) -> Path:
    path = tmp_path / "ckpt"
    cairn_dcp.save(_state(1), checkpoint_id=path)
    moved = next(each for each in path.iterdir() if each.name.endswith(ending))
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")
    return path


@pytest.mark.parametrize("ending", [".metadata", ".distcp"])
def test_safe_loads_follow_no_links(ending: str, tmp_path: Path) -> None:
    path = _linked(tmp_path, ending)
    state = _state(0)
    with cairn_dcp.installed(safe=True), pytest.raises(Exception, match="data file of the checkpoint is missing|data files here"):
        cairn_dcp.load(state, checkpoint_id=path)
    assert torch.equal(state["w"], torch.zeros(5))
