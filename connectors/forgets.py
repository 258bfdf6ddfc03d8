"""What this floor holds of people: messages on their way, and the targets of its last calls."""

from django.db.models import Q

from workspaces.forgetting import ERASED, Scope, holds, keeps

SETTINGS = "settings of outside systems and words of ours"


def calls(scope: Scope) -> Q:
    return Q(connection__workspace=scope.workspace, target__in=scope.targets)


def messages(scope: Scope) -> Q:
    """Messages to the person, and those that name a run."""
    found = Q(pk__in=[])
    for name in scope.names:
        found |= Q(message__text__contains=name)
    return Q(workspace=scope.workspace) & found


holds("connectors.CallLog", "target", "detail", rows=calls)
holds("connectors.Delivery", "recipient", "last_error", rows=messages,
      message={"title": ERASED, "text": "", "url": ""})  # fmt: skip

keeps("connectors.CallLog", "method", "operation", because=SETTINGS)
keeps("connectors.Delivery", "subject", "key", because=SETTINGS)
keeps("connectors.Channel", "name", "settings", "subjects", because=SETTINGS)
keeps("connectors.Connection", "name", "connector", "settings", "sandbox_settings",
      "settings_digest", "last_error", because=SETTINGS)  # fmt: skip
keeps("connectors.ConnectionVersion", "settings_digest", "settings", because=SETTINGS)
