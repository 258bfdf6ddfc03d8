"""Many random walks (tests/recovery/engine/test_walks.py); each seed walks its own ways."""

import hypothesis
import pytest

from tests.recovery.engine.test_walks import walk, walked

pytestmark = [
    pytest.mark.django_db(transaction=True), pytest.mark.chaos, pytest.mark.timeout(1800),
]  # fmt: skip

__all__ = ["walk"]


def test_many_random_walks_keep_the_invariants(walk, seed):
    walked(hypothesis.seed(seed)(walk), 40, 50)
