"""torch's checkpointer, which keeps what its saves and loads are told, through cairn."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from torch.distributed.checkpoint._checkpointer import _Checkpointer as _Torchs
from torch.distributed.checkpoint.metadata import Metadata

from .state_dict_loader import load
from .state_dict_saver import async_save, save


class _Checkpointer(_Torchs):
    def save(self, state_dict: dict[str, Any]) -> Metadata:
        saved: Metadata = save(state_dict, **self._told(), no_dist=self.no_dist)
        return saved

    def async_save(self, state_dict: dict[str, Any]) -> Future[Any]:
        response = async_save(state_dict, **self._told(), no_dist=self.no_dist)
        assert isinstance(response, Future), "response should be a Future instance"
        return response

    def _told(self) -> dict[str, Any]:
        writer, planner = self.storage_writer, self.save_planner
        return {"storage_writer": writer, "planner": planner, "process_group": self.process_group}

    def load(self, state_dict: dict[str, Any]) -> None:
        reader, planner = self.storage_reader, self.load_planner
        load(state_dict, storage_reader=reader, planner=planner, process_group=self.process_group, no_dist=self.no_dist)
