"""The ledger: what agents say they did, kept for good, folded into what is known."""

from typing import Any

from django.apps import AppConfig
from django.db import connection, transaction
from django.db.models.signals import post_save

TAKES_IN = "ledger takes in acts"


class LedgerConfig(AppConfig):
    name = "ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ledger import checks, disclosure  # they register themselves

        post_save.connect(take_in_soon, sender="workspaces.Act", dispatch_uid=TAKES_IN)


def take_in_soon(created: bool, **_: Any) -> None:  # noqa: FBT001 - Django's signal
    """An act is in the ledger a moment after its commit, with all others of its transaction; if
    not, the periodic job finds it.
    """
    from ledger import desk_events

    waiting: list[Any] = [entry[1] for entry in connection.run_on_commit]
    if created and desk_events.take_in not in waiting:
        transaction.on_commit(desk_events.take_in, robust=True)
