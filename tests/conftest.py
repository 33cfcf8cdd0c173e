"""What all tests need."""

import signal

from once import pytest_configure, pytest_ignore_collect  # noqa: F401

# Whoever starts the tests in the background may have them ignore Ctrl-C, and the programs they start as well.
signal.signal(signal.SIGINT, signal.default_int_handler)
