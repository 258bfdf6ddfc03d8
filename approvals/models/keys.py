"""Keys that came to the gate: the row that two tries of one call lock, and their lease."""

from typing import ClassVar

from django.db import models

from workspaces.models import Agent


class GateKey(models.Model):
    """One idempotency key of one agent. Every `begin` of the key takes this row's lock first.

    What is known of the call is the ledger's; here stands only whose turn it is.
    """

    pk = models.CompositePrimaryKey("agent_id", "key")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    key = models.CharField(max_length=200)
    attempt = models.CharField(max_length=120, blank=True, help_text="Whose lease it is")
    lease_until = models.DateTimeField(null=True)
    denied = models.CharField(max_length=20, blank=True, help_text="What it was last denied for")
    met_at = models.DateTimeField(help_text="When it last came to the gate")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["met_at"], name="gate_key_by_age")]

    def __str__(self) -> str:
        return self.key
