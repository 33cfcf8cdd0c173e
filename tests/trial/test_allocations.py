"""Memory that runs out: the n-th allocation fails, for every n."""

from __future__ import annotations

import pytest
from programs import plain_build_only, seed, trial

pytestmark = plain_build_only("it has an allocator of its own")
EVERY = 1_000_000  # allocations of an operation, once and for ever: more than there are


@pytest.mark.parametrize("operations", ["parsers", "checkpoints"])
def test_every_allocation_may_fail(operations: str) -> None:
    for counts in trial("no_memory", operations, EVERY, seed(), timeout=3000):
        assert counts["tried"] >= counts["allocations"], f"some were left out: {counts}"
        assert counts["failed"] > 0, f"nothing failed: {counts}"
