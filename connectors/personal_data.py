"""What this floor holds of people: messages on their way, and the targets of its last calls."""

import re
from collections.abc import Mapping
from typing import Any

from django.db.models import Case, CharField, F, Q, Value, When
from django.db.models.functions import Concat, Left

from connectors.models import CallLog, DeliveryState
from ledger.models import Effect
from workspaces.erasure_registry import ERASED, Scope, among, holds, keeps

TARGET_CHARACTERS = int(CallLog._meta.get_field("target").max_length or 0)
NAMED_BY = "\nRun "
SETTINGS = "settings of outside systems and words of ours"


def calls(scope: Scope) -> Q:
    """By what was acted on, which the effects still tell; the log keeps only the beginning."""
    effects = Effect.objects.filter(
        among("action__run", scope.runs) | Q(action__in=scope.actions), workspace=scope.workspace
    )
    whole = Concat("target_type", Value("/"), "target_id", output_field=CharField())
    targets = effects.annotate(target=Left(whole, TARGET_CHARACTERS)).values("target")
    return Q(connection__workspace=scope.workspace, target__in=targets)


def last_errors(scope: Scope) -> Q:
    """Connections of which such a call is the last one that failed, where a person asks to be
    forgotten: it says what the log says. As time goes by the next failure takes its place.
    """
    if not scope.person:
        return Q(pk__in=[])
    last = CallLog.objects.filter(calls(scope), detail=F("connection__last_error"))
    return Q(workspace=scope.workspace, pk__in=last.values("connection")) & ~Q(last_error="")


def messages(scope: Scope) -> Q:
    """Messages that name a run, to people or, among the facts, to programs: also one of somebody
    else's in which something of this person's was done, for they have the headline of its case.
    """
    names = [*scope.names, *scope.touched_names]
    found = Q(message__facts__run__in=names)
    if names:
        # As a word: run_1 is not run_10. `contains` would be JSON's, and mean the whole text.
        # Alarms name it in a line of their own; of the many others none is put to the expression.
        one_of_them = "|".join(map(re.escape, names))
        named = Q(message__text__regex=rf"(^|[^\w-])({one_of_them})($|[^\w-])")
        found |= Q(message__text__icontains=NAMED_BY) & named
    return Q(workspace=scope.workspace) & found


UNSAID: Mapping[str, Any] = {
    "message": {"title": ERASED, "text": "", "url": ""},
    "state": Case(
        When(state=DeliveryState.WAITING, then=Value(DeliveryState.FAILED)), default=F("state")
    ),
}
"""Of a message: nothing stands in it, so it is sent to nobody any more."""

# Before the lines that it repeats.
holds("connectors.Connection", "last_error", rows=last_errors)
holds("connectors.CallLog", "target", "detail", rows=calls)
holds("connectors.Delivery", "recipient", "last_error", rows=messages, **UNSAID)

keeps("connectors.CallLog", "method", "operation", because=SETTINGS)
keeps("connectors.Delivery", "subject", "key", because=SETTINGS)
keeps(
    "connectors.Feed", "origin", "error", because="where the log is, and what a receiver answered"
)
keeps("connectors.Channel", "name", "settings", "subjects", because=SETTINGS)
keeps("connectors.Connection", "name", "connector", "settings", "sandbox_settings",
      "settings_digest", "link", because=SETTINGS)  # fmt: skip
keeps("connectors.ConnectionVersion", "settings_digest", "settings", because=SETTINGS)
