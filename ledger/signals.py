"""Bells: they shorten a wait, and nothing is lost if nobody hears them."""

import logging
from collections.abc import Sequence

from django.dispatch import Signal

logger = logging.getLogger(__name__)

# Sent after the commit, with `run_ids`: row ids of runs that stand otherwise than before. From the
# hot door it rings in a thread; a receiver must be quick and only wake somebody.
events_recorded = Signal()


def ring(run_ids: Sequence[int]) -> None:
    """Tell whoever listens; never raises."""
    for receiver, failure in events_recorded.send_robust(sender=None, run_ids=list(run_ids)):
        if isinstance(failure, Exception):
            logger.warning("%s did not hear the bell", receiver, exc_info=failure)
