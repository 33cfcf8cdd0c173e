"""`torch.distributed.checkpoint`, on cairn's C++ engine. The same functions, the same files.

    import cairn.torch as dcp                     # in place of torch.distributed.checkpoint
    dcp.save({"model": model, "optim": optim}, checkpoint_id="run/step-1000")
    dcp.load({"model": model, "optim": optim}, checkpoint_id="run/step-1000")

    import cairn.torch; cairn.torch.install()     # or: whoever calls torch's, calls cairn's
    torchrun -m cairn.torch train.py              # or: with no change to the code at all

Data types and abstract bases (Metadata, SavePlan, SavePlanner, StorageWriter, ...) are torch's own, so that
subclasses and pickles keep working.
"""

import importlib as _importlib
import sys as _sys

from . import _needs_torch  # noqa: F401 - first: says in plain words what is missing where torch is

# isort: split
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter

from ._async import OverlappedStager, guard, prepare
from ._errors import CheckpointError
from ._install import install, installed, uninstall
from ._report import last_report
from .default_planner import DefaultLoadPlanner, DefaultSavePlanner, _EmptyStateDictLoadPlanner  # noqa: F401
from .filesystem import FileSystemReader, FileSystemWriter
from .hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from .optimizer import load_sharded_optimizer_state_dict
from .quantized_hf_storage import QuantizedHuggingFaceStorageReader
from .state_dict_loader import _load_state_dict_from_keys, load, load_state_dict  # noqa: F401
from .state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse, async_save, save, save_state_dict

# Modules that are torch's own under cairn's name as well: `import cairn.torch.planner` gives torch's planner.
for _name in (
    "_async_executor _async_process_executor _async_thread_executor _dedup_save_plans _dedup_tensors "
    "_extension _hf_utils _nested_dict _sharded_tensor_utils _state_dict_stager _traverse _version api logger "
    "logging_handlers metadata planner resharding staging state_dict stateful storage utils"
).split():
    _sys.modules[f"{__name__}.{_name}"] = _importlib.import_module(f"torch.distributed.checkpoint.{_name}")
    globals()[_name] = _sys.modules[f"{__name__}.{_name}"]
del _name

__all__ = [
    "AsyncCheckpointerType",
    "AsyncSaveResponse",
    "BytesStorageMetadata",
    "CheckpointError",
    "CheckpointException",
    "ChunkStorageMetadata",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "HuggingFaceStorageReader",
    "HuggingFaceStorageWriter",
    "LoadPlan",
    "LoadPlanner",
    "Metadata",
    "OverlappedStager",
    "QuantizedHuggingFaceStorageReader",
    "ReadItem",
    "SavePlan",
    "SavePlanner",
    "StorageReader",
    "StorageWriter",
    "TensorStorageMetadata",
    "WriteItem",
    "async_save",
    "guard",
    "install",
    "installed",
    "last_report",
    "load",
    "load_sharded_optimizer_state_dict",
    "load_state_dict",
    "prepare",
    "save",
    "save_state_dict",
    "uninstall",
]
