"""Says that the tests beside it are left out, where they are (conftest.py)."""

from __future__ import annotations

import pytest
from place import IS_BUILT


def test_object_stores_are_built_in() -> None:
    if not IS_BUILT:
        pytest.skip("this build has no object stores: `make test-s3` makes one that has them, and tries it")
