"""Somebody else saved a version of the policy while one was written: told once, and nothing typed
is lost.
"""

from typing import Any

from approvals.models import PolicyVersion
from workspaces.models import Workspace
from workspaces.pages import Request, is_number


def newest(here: Workspace) -> int:
    """The number of the newest version, in force or not; 0 where there is none."""
    rows = PolicyVersion.objects.filter(workspace=here).order_by("-number")
    return rows.values_list("number", flat=True).first() or 0


def seen(request: Request) -> int | None:
    """Which version was the newest as they began, as their page says; None: it does not."""
    said = request.POST.get("seen")
    if said is None:
        return None
    return int(said) if is_number(said) else 0


def notice(other: PolicyVersion) -> dict[str, Any]:
    """What is told of the version that came between (approvals/_notice.html)."""
    who = other.author or "A file"
    return {
        "tone": "wait",
        "title": f"Nothing was saved: {who} saved version {other.number} since you began.",
        "text": "What you wrote stands below. Look at theirs; saving once more keeps yours as the"
        " next version, without their changes.",
        "url": "approvals:version",
        "number": other.number,
    }
