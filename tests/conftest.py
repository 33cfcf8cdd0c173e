"""What all tests need."""

import signal

import pytest
from once import pytest_configure, pytest_ignore_collect  # noqa: F401

# Whoever starts the tests in the background may have them ignore Ctrl-C, and the programs they start as well.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The folders whose tests take longest come first (`make test` keeps this order): at the end both cores have something.
LONG = ("trial", "crash", "save_load", "mount", "install")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = config.rootpath / "tests"
    items.sort(key=lambda item: item.path.relative_to(tests).parts[0] not in LONG)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have counted (record_property("said", ...)), whichever worker ran them."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "said":
                terminalreporter.write_line(value)
