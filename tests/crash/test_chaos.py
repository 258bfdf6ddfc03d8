"""Every fault of docs/faults.md, seeded: `make chaos`. The outside world's journal is the oracle.

Each fault breaks one thing while six plans of mixed operations run in real processes; afterwards
the invariants must hold, and the run prints a table.
"""

import time

import pytest

from tests.crash.catalogue import FAULTS
from tests.crash.faults import broker, database, processes, room, web, world  # noqa: F401

pytestmark = [
    pytest.mark.django_db(transaction=True), pytest.mark.chaos, pytest.mark.timeout(1200),
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_the_invariants_hold_after(name, seed, storm, table):
    began = time.monotonic()

    FAULTS[name](storm)
    broken = storm.end()

    table(name, seed, storm, broken, time.monotonic() - began)
    assert broken == []
