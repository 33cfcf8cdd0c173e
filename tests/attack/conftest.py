import pathlib
import sys

SEES = ()  # none of the sources: tests/once.py

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
