"""Checkpoints wherever fsspec reaches: `s3://...`, `gs://...`, `memory://...`."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

from fsspec.core import url_to_fs
from torch.distributed.checkpoint.filesystem import FileSystemBase, SerializationFormat

from ._local_files import sync_directory
from .filesystem import FileSystemReader, FileSystemWriter

__all__ = ["FsspecReader", "FsspecWriter"]


class FileSystem(FileSystemBase):
    """An fsspec file system, as torch's storages see one."""

    def __init__(self) -> None:
        self.fs: Any = None  # fsspec's, when the path is known

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        path = os.fspath(path)
        try:
            with self.fs.open(path, mode) as stream:
                yield stream
        except BaseException:
            if any(letter in mode for letter in "wxa"):
                self._remove_half(path)
            raise

    def _remove_half(self, path: str) -> None:
        with contextlib.suppress(Exception):  # the failure that led here is the one to tell
            self.fs.rm_file(path)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str | os.PathLike[str]:
        return os.path.join(path, suffix)

    def init_path(self, path: str | os.PathLike[str], **kwargs: Any) -> str | os.PathLike[str]:
        self.fs, _ = url_to_fs(path, **kwargs)
        return path

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        self.fs.rename(path, new_path)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        self.fs.makedirs(path, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        if not isinstance(checkpoint_id, str):
            return False
        try:
            url_to_fs(checkpoint_id)
        except ValueError:
            return False
        return True

    def exists(self, path: str | os.PathLike[str]) -> bool:
        self.fs.invalidate_cache()  # somebody else may have saved since
        there: bool = self.fs.exists(path)
        return there

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        self.fs.rm(path)

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        # Names as the user writes them, with the protocol.
        self.fs.invalidate_cache()
        return [str(name) for name in self.fs.ls(path, detail=False)]

    def sync_directory(self, path: str | os.PathLike[str]) -> None:
        if getattr(self.fs, "local_file", False):
            sync_directory(self.fs._strip_protocol(os.fspath(path)))


class _ThroughFsspec:
    """What writer and reader share: the path, resolved again with the user's options when it changes."""

    def _locate(self, path: str | os.PathLike[str], storage_options: dict[str, Any]) -> None:
        self._storage_options = storage_options
        self.fs: Any = FileSystem()
        self.path = self.fs.init_path(path, **storage_options)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(None)  # type: ignore[misc]
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id, **self._storage_options)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


class FsspecWriter(_ThroughFsspec, FileSystemWriter):
    """FileSystemWriter through fsspec; further keywords go to the file system."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        overwrite: bool = True,
        _extensions: Any | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            path,
            single_file_per_rank,
            sync_files,
            thread_count,
            per_thread_copy_ahead,
            overwrite=overwrite,
            _extensions=_extensions,
            serialization_format=serialization_format,
        )
        self._locate(path, kwargs)


class FsspecReader(_ThroughFsspec, FileSystemReader):
    """FileSystemReader through fsspec; further keywords go to the file system."""

    def __init__(self, path: str | os.PathLike[str], **kwargs: Any) -> None:
        super().__init__(path)
        self._locate(path, kwargs)
