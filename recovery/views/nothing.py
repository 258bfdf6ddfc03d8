"""When the queue has nothing to show: no agent yet, nothing wrong, no match, or a mistake."""

from typing import Any
from urllib.parse import urlencode

from ledger.models import Run
from recovery import search
from recovery.models import Case
from recovery.views.here import queue_url
from workspaces import look
from workspaces.models import Workspace


def mistake(q: str, wrong: ValueError) -> dict[str, Any]:
    if not isinstance(wrong, search.QueryError):
        return {"before": q, "at": "", "after": "", "message": str(wrong), "drops": []}
    place, end = wrong.position, wrong.position + wrong.length
    # Without all of the word that it is in: half of one would be the next mistake.
    ends = [at for at in (q.find(" ", end), len(q)) if at >= 0]
    without = f"{q[: q.rfind(' ', 0, place) + 1]}{q[min(ends) :].lstrip()}".strip()
    return {
        "before": q[:place],
        "at": q[place:end],
        "after": q[end:],
        "message": wrong.message,
        "drops": [{"label": "Leave this out", "url": f"?{urlencode({'q': without})}"}],
    }


def empty(here: Workspace, q: str) -> dict[str, Any]:
    if q:
        return no_match(here, q)
    if not Run.objects.filter(workspace=here).exists():
        keys = f"/w/{here.slug}/settings/keys/"
        return {
            "icon": "run",
            "title": "No agent is connected yet",
            "text": "Three steps, ten lines:",
            "steps": [
                "Name the agent and make a key for it.",
                "Put AMENDS_URL and AMENDS_KEY into its environment.",
                "Wrap its tool calls as docs/agents.md shows; its runs then appear here.",
            ],
            "links": [{"label": "Make a key", "url": keys, "main": True}],
        }
    closed = Case.objects.filter(workspace=here, closed_at__isnull=False)
    last = closed.order_by("-closed_at").values_list("closed_at", flat=True).first()
    text = f"The last case was closed {look.ago(last)}." if last else "No run has gone wrong."
    return {"icon": "clear", "title": "Nothing to recover", "text": text}


def unread(here: Workspace, wrong: dict[str, Any]) -> dict[str, Any]:
    """A query that cannot be read has found nothing, and says nothing of the cases."""
    links = [*wrong["drops"], {"label": "All open", "url": queue_url(here), "main": True}]
    title, text = "This search cannot be read", "Nothing was looked for. The mistake is told above."
    return {"icon": "search", "title": title, "text": text, "links": links}


def no_match(here: Workspace, q: str) -> dict[str, Any]:
    """What was asked, and each part that could be dropped."""
    parts = q.split()
    drops = [
        {
            "label": f"without {part}",
            "url": f"?{urlencode({'q': ' '.join(parts[:place] + parts[place + 1 :])})}",
        }
        for place, part in enumerate(parts[:8])
    ]
    links = [*drops, {"label": "All open", "url": queue_url(here), "main": True}]
    return {"icon": "search", "title": "No case fits", "text": f"Searched for: {q}", "links": links}
