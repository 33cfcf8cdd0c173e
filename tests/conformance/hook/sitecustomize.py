"""Put first on PYTHONPATH by ../run.py, so that every process of a PyTorch test, spawned ones too, starts here.

It opens the gates of tests that ask for GPUs but run on gloo as well (CAIRN_OPEN_GATES, a regular expression) and installs
cairn.torch (CAIRN_CONFORMANCE=cairn), with subclasses of its planners and storages (=subclasses). Both happen when torch imports the module concerned, because many of
these processes never import torch at all.
"""

import importlib.abc
import importlib.util
import os
import re
import sys


def open_gates(module):
    """Tests marked skip_if_lt_x_gpu run on the CPU when their names match."""
    original = module.skip_if_lt_x_gpu
    wanted = re.compile(os.environ["CAIRN_OPEN_GATES"])

    def skip_if_lt_x_gpu(x, *, allow_cpu=False):
        return lambda test: original(x, allow_cpu=bool(wanted.search(test.__name__)))(test)

    module.skip_if_lt_x_gpu = skip_if_lt_x_gpu


def open_dtensor_gates(module):
    """Without GPUs, a backend for the CPU and one for the device are the same one."""
    base = module.DTensorTestBase
    init = base.init_pg

    def init_pg(self, eager_init, backend=None):
        backend = backend or self.backend
        return init(self, eager_init, "gloo" if backend == "cpu:gloo,cpu:gloo" else backend)

    base.init_pg = init_pg
    # One test class takes its number of ranks from the number of GPUs.
    module.torch.accelerator.device_count = lambda: int(os.environ.get("CAIRN_DEVICE_COUNT", "0"))


def install_cairn(module):
    import cairn.torch

    cairn.torch.install()


def install_subclasses(module):
    import subclasses

    subclasses.install()


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module right after it was imported."""

    def __init__(self, actions):
        self.actions = actions

    def find_spec(self, name, path=None, target=None):
        action = self.actions.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)
        exec_module = spec.loader.exec_module

        def then_act(module):
            exec_module(module)
            action(module)

        spec.loader.exec_module = then_act
        return spec


actions = {}
if os.environ.get("CAIRN_OPEN_GATES"):
    actions["torch.testing._internal.common_distributed"] = open_gates
    actions["torch.testing._internal.distributed._tensor.common_dtensor"] = open_dtensor_gates
if os.environ.get("CAIRN_CONFORMANCE") == "cairn":
    actions["torch.distributed.checkpoint"] = install_cairn
if os.environ.get("CAIRN_CONFORMANCE") == "subclasses":
    actions["torch.distributed.checkpoint"] = install_subclasses
sys.meta_path.insert(0, AfterImport(actions))
