"""The frameworks are in an environment of their own (tools/frameworks.sh); elsewhere nothing here is a test."""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("torchtitan") is None:
    collect_ignore_glob = ["test_*.py"]

sys.path.insert(0, str(Path(__file__).parent.parent / "torch"))  # ranks.py
