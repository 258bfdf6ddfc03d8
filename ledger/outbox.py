"""Acts of people, taken in from the outbox of the floor below."""

from django.db import transaction
from django.db.models.functions import Now

from ledger import desk_events
from workspaces.models import Act

ACTS_AT_A_TIME = 200


def take_in() -> int:
    """Turn acts that wait into events, oldest first; returns how many. Two at once share it."""
    done = 0
    while taken := _take_some():
        done += taken
        if taken < ACTS_AT_A_TIME:
            break
    return done


@transaction.atomic
def _take_some() -> int:
    waiting = list(
        Act.objects.select_for_update(of=("self",), skip_locked=True)
        .select_related("workspace", "person")
        .filter(taken_in_at=None)
        .order_by("id")[:ACTS_AT_A_TIME]
    )
    for act in waiting:
        said = act.data | {"at": act.at.isoformat()}
        desk_events.say(act.workspace, act.type, data=said, by=act.person, part="desk")
    Act.objects.filter(pk__in=[act.pk for act in waiting]).update(taken_in_at=Now())
    return len(waiting)
