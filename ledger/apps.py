"""The ledger: what agents say they did, kept for good, folded into what is known."""

from typing import Any

from django.apps import AppConfig
from django.db import transaction
from django.db.models.signals import post_save


class LedgerConfig(AppConfig):
    name = "ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ledger import checks  # it registers itself

        post_save.connect(
            take_in_soon, sender="workspaces.Act", dispatch_uid="ledger takes in acts"
        )


def take_in_soon(created: bool, **_: Any) -> None:  # noqa: FBT001 - Django's signal
    """An act is in the ledger a moment after its commit; if not, the periodic job finds it."""
    if created:
        from ledger import desk_events

        transaction.on_commit(desk_events.take_in, robust=True)
