import pytest
from hypothesis import settings
from plan_driver import SEED, Probe


@pytest.fixture(scope="session")
def probe():
    driver = Probe()
    yield driver
    driver.close()


def pytest_terminal_summary(terminalreporter):
    cases = settings.get_profile("plan").max_examples
    terminalreporter.write_line(f"tests/plan: seed {SEED} (CAIRN_SEED), {cases} cases a test (CAIRN_PLAN_CASES)")
