"""Alarms: a new critical case must reach somebody who is not looking at the queue."""

from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now

from connectors import channels
from connectors.channels import Message
from connectors.models import Delivery
from ledger.models.actions import Risk
from recovery.models import Case

CRITICAL = "case.critical"
"""The subject to which a channel subscribes."""

TOGETHER_SECONDS = 600
ALONE_MAX = 20
"""So many cases are told one by one in ten minutes; of the rest one message says that there are
more, for a pager that rings a thousand times is switched off."""


def ring(case: Case) -> None:
    """Tell the channels once for each time that the case opens; the caller holds the transaction.

    The message carries what the queue shows, and no arguments.
    """
    if case.risk != Risk.CRITICAL:
        return
    here = f"{settings.AMENDS_URL}/w/{case.workspace.slug}/"
    since = case.reopened_at or case.opened_at
    if _told_lately(case) >= ALONE_MAX:
        more = Message(
            title="There are more critical cases",
            text="They came faster than is told one by one. The queue has all of them.",
            url=f"{here}queue/?q=risk%3Acritical",
        )
        turn = int(since.timestamp()) // TOGETHER_SECONDS
        channels.announce(case.workspace, CRITICAL, more, key=f"critical cases {turn}")
        return
    message = Message(
        title=f"Critical: {case.headline}",
        text=f"{case.suggestion_reason}\nRun {case.run.run}.",
        url=f"{here}cases/{case.pk}/",
    )
    channels.announce(case.workspace, CRITICAL, message, key=f"case {case.pk} {since.isoformat()}")


def _told_lately(case: Case) -> int:
    lately = Delivery.objects.filter(
        workspace=case.workspace_id,
        subject=CRITICAL,
        created_at__gt=Now() - timedelta(seconds=TOGETHER_SECONDS),
    )
    return lately.values("message").distinct()[:ALONE_MAX].count()
