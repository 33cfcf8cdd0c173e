"""Puts do-nothing subclasses of cairn's planners, writers and readers where PyTorch keeps its own, so that no save or
load is all cairn's: each goes the way of a user who overrides something.

Every public method is overridden and calls the one it overrides. `save` and `load` that were given no planner and no
storage get such ones, and a save or load that did not ask them anything fails.
"""

import functools
import importlib
import inspect
import sys
import types

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.utils import _api_bc_check

KINDS = (dcp.SavePlanner, dcp.LoadPlanner, dcp.StorageWriter, dcp.StorageReader)
# Modules of cairn's that make planners and storages for their callers, as a user would.
CALLERS = ("format_utils", "optimizer")

asked = {}  # id of an object -> names of the methods that were called since it was last given to a save or load


def install():
    import cairn.torch

    stock_storage = importlib.import_module("torch.distributed.checkpoint._storage_utils")._storage_setup
    cairn.torch.install()
    places = [module for name, module in sys.modules.items() if name.startswith("torch.") and module is not None]
    places += [importlib.import_module(f"cairn.torch.{name}") for name in CALLERS]
    made = {}
    for module in places:
        for value in list(vars(module).values()):
            if is_ours(value):
                subclass(value, made)
    # Where a class is known by torch's name, its subclass is too, for pickle.
    for base, sub in made.items():
        sub.__module__ = base.__module__.replace("cairn.torch", "torch.distributed.checkpoint")
    replaced = {**made, **functions(cairn.torch, made, stock_storage)}
    for module in places:
        for key, value in list(vars(module).items()):
            if isinstance(value, (type, types.FunctionType)) and value in replaced:
                setattr(module, key, replaced[value])


def is_ours(value):
    return isinstance(value, type) and str(value.__module__).startswith("cairn.torch") and issubclass(value, KINDS)


def subclass(base, made):
    """The subclass of a class; one of its parent's too, so that they are related as the classes are."""
    if base not in made:
        parents = [subclass(each, made) for each in base.__bases__ if is_ours(each)]
        made[base] = types.new_class(base.__name__, (base, *parents))
        for name in dir(base):
            if not name.startswith("_") and inspect.isfunction(getattr(base, name)):
                setattr(made[base], name, overriding(made[base], getattr(base, name)))
    return made[base]


def overriding(cls, method):
    @functools.wraps(method)
    def call(self, *arguments, **named):
        asked.setdefault(id(self), set()).add(method.__name__)
        return getattr(super(cls, self), method.__name__)(*arguments, **named)

    return call


def functions(cairn, made, stock_storage):
    """cairn's functions, given a planner and a storage where the caller left them out."""

    def completed(function, planner_class, storage_name, step):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*arguments, **named):
            given = signature.bind(*arguments, **named).arguments
            storage = (given.get(storage_name), given.pop("checkpoint_id", None), storage_name == "storage_reader")
            given[storage_name] = stock_storage(*storage)
            if "planner" in signature.parameters and given.get("planner") is None:
                given["planner"] = planner_class()
            parts = {step: given[storage_name], "set_up_planner": given.get("planner")}
            for part in parts.values():
                asked.pop(id(part), None)
            value = function(**given)
            for name, part in parts.items():
                if step and isinstance(part, tuple(made.values())) and name not in asked.get(id(part), ()):
                    raise AssertionError(f"{function.__name__} did not call {type(part).__qualname__}.{name}")
            return value

        is_new = signature.parameters[storage_name].kind is inspect.Parameter.KEYWORD_ONLY
        return _api_bc_check(call) if is_new and function is not from_keys else call

    from_keys = importlib.import_module("cairn.torch.state_dict_loader")._load_state_dict_from_keys
    saving = (made[cairn.DefaultSavePlanner], "storage_writer")
    loading = (made[cairn.DefaultLoadPlanner], "storage_reader", "read_data")
    return {
        cairn.save: completed(cairn.save, *saving, "write_data"),
        cairn.save_state_dict: completed(cairn.save_state_dict, *saving, "write_data"),
        cairn.async_save: completed(cairn.async_save, *saving, None),  # it may not have begun
        cairn.load: completed(cairn.load, *loading),
        cairn.load_state_dict: completed(cairn.load_state_dict, *loading),
        from_keys: completed(from_keys, *loading),
    }
