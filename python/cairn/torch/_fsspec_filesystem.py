"""Checkpoints wherever fsspec reaches: `s3://...`, `gs://...`, `memory://...`."""

from __future__ import annotations

import io
import os
from contextlib import contextmanager
from typing import Any, Iterator, Optional

from fsspec.core import url_to_fs
from torch.distributed.checkpoint.filesystem import FileSystemBase, SerializationFormat

from .filesystem import FileSystem as LocalFileSystem
from .filesystem import FileSystemReader, FileSystemWriter

__all__ = ["FsspecWriter", "FsspecReader"]


class FileSystem(FileSystemBase):
    """An fsspec file system, as torch's storages see one."""

    def __init__(self) -> None:
        self.fs: Optional[Any] = None

    @contextmanager
    def create_stream(self, path: str | os.PathLike, mode: str) -> Iterator[io.IOBase]:
        path = os.fspath(path)
        try:
            with self.fs.open(path, mode) as stream:
                yield stream
        except BaseException:
            if any(letter in mode for letter in "wxa"):
                self._remove_half(path)
            raise

    def _remove_half(self, path: str) -> None:
        try:
            self.fs.rm_file(path)
        except Exception:  # noqa: BLE001 - the failure that led here is the one to tell
            pass

    def concat_path(self, path: str | os.PathLike, suffix: str) -> str | os.PathLike:
        return os.path.join(path, suffix)

    def init_path(self, path: str | os.PathLike, **kwargs: Any) -> str | os.PathLike:
        self.fs, _ = url_to_fs(path, **kwargs)
        return path

    def rename(self, path: str | os.PathLike, new_path: str | os.PathLike) -> None:
        self.fs.rename(path, new_path)

    def mkdir(self, path: str | os.PathLike) -> None:
        self.fs.makedirs(path, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        if not isinstance(checkpoint_id, str):
            return False
        try:
            url_to_fs(checkpoint_id)
        except ValueError:
            return False
        return True

    def exists(self, path: str | os.PathLike) -> bool:
        self.fs.invalidate_cache()  # somebody else may have saved since
        return self.fs.exists(path)

    def rm_file(self, path: str | os.PathLike) -> None:
        self.fs.rm(path)

    def ls(self, path: str | os.PathLike) -> list[str]:
        # Names as the user writes them, with the protocol.
        self.fs.invalidate_cache()
        return [str(name) for name in self.fs.ls(path, detail=False)]

    def sync_directory(self, path: str | os.PathLike) -> None:
        if getattr(self.fs, "local_file", False):
            LocalFileSystem().sync_directory(self.fs._strip_protocol(os.fspath(path)))


class _ThroughFsspec:
    """What writer and reader share: the path, resolved again with the user's options when it changes."""

    def _locate(self, path: str | os.PathLike, storage_options: dict[str, Any]) -> None:
        self._storage_options = storage_options
        self.fs = FileSystem()
        self.path = self.fs.init_path(path, **storage_options)

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        super().reset(None)  # type: ignore[misc]
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id, **self._storage_options)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


class FsspecWriter(_ThroughFsspec, FileSystemWriter):
    """FileSystemWriter through fsspec; further keywords go to the file system."""

    def __init__(
        self,
        path: str | os.PathLike,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        overwrite: bool = True,
        _extensions: Optional[Any] = None,
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

    def __init__(self, path: str | os.PathLike, **kwargs: Any) -> None:
        super().__init__(path)
        self._locate(path, kwargs)
