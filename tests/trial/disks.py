"""Small real disks: an image in a file system in memory, mounted through a loop device.

The file system in memory (the cellar) is as large as it is told, and the image in it is sparse: a disk that
believes it is large can be made to find no room when it writes back, as disks do that are overbooked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

MIB = 1 << 20
MAKERS = {"ext4": ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal"], "xfs": ["mkfs.xfs", "-q"]}
LEAST = {"ext4": 8 * MIB, "xfs": 300 * MIB}  # of an image; XFS refuses less


def tool(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def why_not(kind: str) -> str | None:
    """Why there can be no disk of this kind here."""
    if os.geteuid() != 0:
        return "loop mounts need root"
    maker = MAKERS[kind][0]
    if tool(maker) is None:
        return f"{maker} is not installed (Debian: {'xfsprogs' if kind == 'xfs' else 'e2fsprogs'})"
    return None


def run(*args: object) -> None:
    done = subprocess.run([*map(str, args)], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise OSError(f"{args[0]}: {done.stderr.strip()}")


@dataclass
class Disk:
    kind: str  # "ext4" or "xfs"
    place: Path  # where it is mounted
    cellar: Path  # what its image lies in

    def free(self) -> int:
        status = os.statvfs(self.place)
        return status.f_bavail * status.f_frsize

    def block(self) -> int:
        return os.statvfs(self.place).f_frsize

    def take(self, descriptor: int, free: int) -> None:
        """Makes a file larger until only so much is left. Keeping count of it takes blocks as well."""
        size, piece = 0, self.free()
        while piece >= self.block() and self.free() > free:
            piece = min(piece, self.free() - free)
            try:
                os.posix_fallocate(descriptor, size, piece)
                size += piece
            except OSError:
                piece //= 2

    @contextlib.contextmanager
    def with_free(self, free: int) -> Iterator[None]:
        """So many bytes are free, to a block or two; the rest is taken by a file outside of every checkpoint."""
        ballast = self.place / "ballast"
        with ballast.open("wb") as file:
            self.take(file.fileno(), free)
        try:
            yield
        finally:
            ballast.unlink()

    @contextlib.contextmanager
    def with_full_cellar(self) -> Iterator[None]:
        """The image cannot grow: what the disk takes into its cache it cannot write back."""
        os.sync()
        ballast = self.cellar / "ballast"
        status = os.statvfs(self.cellar)
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize)
        try:
            yield
        finally:
            ballast.unlink()


@contextlib.contextmanager
def mounted(kind: str, base: Path, image: int, cellar: int) -> Iterator[Disk]:
    """A disk of `image` bytes, of which no more than `cellar` can really be written."""
    disk = Disk(kind, base / "disk", base / "cellar")
    with contextlib.ExitStack() as undo:
        for place in (disk.place, disk.cellar):
            place.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={cellar}", "tmpfs", disk.cellar)
        undo.callback(unmount, disk.cellar)
        file = disk.cellar / "image"
        with file.open("wb") as made:
            made.truncate(max(image, LEAST[kind]))
        maker, *options = MAKERS[kind]
        run(tool(maker), *options, file)
        run("mount", "-o", "loop", file, disk.place)
        undo.callback(unmount, disk.place)
        yield disk


def unmount(place: Path) -> None:
    """Also when a file in it is still open somewhere: it goes when that is closed."""
    if subprocess.run(["umount", place], capture_output=True).returncode:
        subprocess.run(["umount", "-l", place], capture_output=True)


@contextlib.contextmanager
def disk_or_skip(kind: str, base: Path, image: int, cellar: int) -> Iterator[Disk]:
    if reason := why_not(kind):
        pytest.skip(f"no {kind} disk here: {reason}")
    with contextlib.ExitStack() as undo:
        try:
            disk = undo.enter_context(mounted(kind, base, image, cellar))
        except OSError as e:
            pytest.skip(f"no {kind} disk here: mounting is not allowed or not possible: {e}")
        yield disk
