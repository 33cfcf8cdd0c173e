"""Where PyTorch is not installed, `import cairn.torch` says so, and what works without it."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError(
        "cairn.torch needs PyTorch, which is not installed (pip install torch); "
        "cairn.open, cairn.save and cairn.load work without it, on numpy arrays",
        name="torch",
    )
