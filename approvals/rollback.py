"""A log that went back: everything is held until an administrator says that they have looked.

A database that forgot events may have forgotten intents, answers and withdrawals, too. The sealer
finds it (ledger/witness.py) and in the same transaction a pause of the desk's own stands: `begin`
is denied, no step is claimed, no grant is given or used. Channels are told, and every page has the
pause's banner. Lifting it is the acknowledgement, an administrator's alone.
"""

from django.conf import settings

from amends.protocol.vocabulary import EventType
from approvals import signals
from approvals.models import Pause, PauseKind
from connectors import channels
from connectors.channels import Message
from ledger import desk_events, witness
from ledger.notes import Head
from workspaces.models import Workspace

WENT_BACK = "ledger.went_back"
ALERT = EventType.ALERT_LOG_WENT_BACK
PAUSED = "ledger"
"""The name of the desk's own pause of a workspace; people's have none."""


@witness.when_it_goes_back
def hold(workspace: Workspace, last: Head, size: int) -> None:
    """Hold everything here and tell people; once, however often it is found again."""
    lost = f"{last.size - size} of {last.size} signed entries" if size < last.size else "history"
    reason = (
        f"The ledger went back: {lost} of {last.origin} are gone or were rewritten. Calls that "
        "were made may be unknown here; an administrator looks, then lifts this."
    )
    row, is_new = Pause.objects.get_or_create(
        workspace=workspace, kind=PauseKind.WORKSPACE, name=PAUSED, lifted_at=None,
        defaults={"reason": reason, "paused_by": None},
    )  # fmt: skip
    data = {"origin": last.origin, "size": last.size, "left": size}
    desk_events.say(
        workspace, ALERT, part="sealer", data=data | {"pause": row.pk, "reason": row.reason}
    )
    message = Message(
        title=f"The ledger of {workspace.name} went back",
        text=f"{reason}\nUntil then nothing begins there, and nothing is approved or undone.",
        url=f"{settings.AMENDS_URL}/w/{workspace.slug}/policies/",
    )
    channels.announce(workspace, WENT_BACK, message, key=f"{WENT_BACK}/{row.pk}")
    if is_new:
        signals.ring_for_paused_on_commit()
