"""Bells: they shorten the wait of an agent that asks what the desk wants of its run."""

from django.db import transaction

from approvals.signals import DIRECTIVES, publish


def ring_on_commit(run_id: int) -> None:
    """Wake whoever waits for this run, once the transaction is through."""
    transaction.on_commit(lambda: publish(DIRECTIVES, run_id), robust=True)
