"""A prefix of a bucket, checkpoints to put there, and the command that works on them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cairn
import numpy
from bucket import Bucket
from programs import CLI, command

# Names of what a writer that lives, or has just died, holds. They go when it is sure to be dead.
HELD = "cairn-held"
# Whether the build that is tried has object stores.
IS_BUILT = ["s3", "yes"] in [line.split()[:2] for line in command(CLI, "--version").stdout.splitlines()]


class Place:
    def __init__(self, bucket: Bucket, env: Mapping[str, str], prefix: str, folder: Path) -> None:
        self.bucket = bucket
        self.env = dict(env)
        self.prefix = prefix
        self.folder = folder  # of this machine
        self.url = f"s3://{bucket.name}/{prefix}"

    def run(self, *args: object, **env: str) -> subprocess.CompletedProcess[str]:
        return self.start(*args, **env).wait_for()

    def start(self, *args: object, **env: str) -> Running:
        return Running([str(CLI), *map(str, args)], self.env | env)

    def ok(self, *args: object, **env: str) -> str:
        done = self.run(*args, **env)
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout

    def refused(self, *args: object, **env: str) -> str:
        """What a command says that must fail: one line."""
        done = self.run(*args, **env)
        assert done.returncode == 1, (args, done.returncode, done.stdout, done.stderr)
        assert done.stderr.startswith("cairn: ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def local(self, version: int, mib: int = 0) -> Path:
        """A checkpoint of this version in a folder of this machine."""
        path = self.folder / f"local-{version}-{mib}"
        if not path.exists():
            cairn.save(state(version, mib), path)
        return path

    def keys(self, id: str = "") -> set[str]:
        """Of a checkpoint, or of all below this place."""
        return {key for key in self.bucket.keys(f"{self.prefix}/{id}") if HELD not in key}


class Running:
    """A command under way."""

    def __init__(self, words: list[str], env: Mapping[str, str]) -> None:
        self.words = words
        self.process = subprocess.Popen(words, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for(self, seconds: float = 600) -> subprocess.CompletedProcess[str]:
        try:
            out, said = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return subprocess.CompletedProcess(self.words, self.process.returncode, out, said)


def state(version: int, mib: int = 0) -> dict[str, Any]:
    """Every element says which version it is of; `mib` MiB more of them."""
    made: dict[str, Any] = {
        "model": {"w": numpy.arange(960, dtype="float32").reshape(40, 24) + version, "b": numpy.arange(7) * version},
        "step": version,
        "betas": (0.9, 0.999),
    }
    if mib:
        made["more"] = {f"m{i}": numpy.full(1 << 18, version * 1000 + i, "float32") for i in range(mib)}
    return made


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b)


def version_of(path: str | Path, mib: int = 0) -> int:
    """Which version is at `path`: all of it, or this fails."""
    found = cairn.load(None, path)
    version = int(found["step"])
    assert same(found, state(version, mib)), f"{path} has a mixture"
    return version
