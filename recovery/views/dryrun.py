"""What a dry run of many cases shows: what it adds up to, each case, and the other ways to go."""

from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from recovery.casework import bulk, resuming
from recovery.models import CaseOutcome
from recovery.views.close import NOTES
from recovery.views.request_context import case_url, queue_url
from workspaces import formatting
from workspaces.models import Workspace
from workspaces.pages import Request

UNREAD = "could not be read just now: it is looked at again when it is submitted"
ACTS = {bulk.COMPENSATE: "Compensate", bulk.RESUME: "Resume", bulk.CLOSE: "Close"}


def list_url(here: Workspace, q: str) -> str:
    return queue_url(here) + (f"?{urlencode({'q': q})}" if q else "")


def others(here: Workspace, seen: bulk.DryRun) -> list[dict[str, str]]:
    """The same query with the other acts."""
    url = reverse("recovery:bulk_new", args=[here.slug])
    return [
        {
            "label": f"{ACTS[act]} instead",
            "url": f"{url}?{urlencode({'act': act, 'q': seen.query})}",
        }
        for act in bulk.VERBS
        if seen.query and act != seen.verb
    ]


def points(here: Workspace, seen: bulk.DryRun) -> list[dict[str, Any]]:
    """From where the runs can go on: another dry run of the same cases for each choice."""
    url = reverse("recovery:bulk_new", args=[here.slug])
    cases = sorted(case.pk for case in seen.cases)
    choices = [(resuming.FROM_LAST, "the last checkpoint of each")]
    choices += [(f"{resuming.NAMED}{name}", name) for name in seen.checkpoints]
    choices += [(resuming.FROM_START, "the start")]
    return [
        {
            "label": label,
            "current": value == seen.resume_from,
            "url": f"{url}?"
            + urlencode(
                {"act": seen.verb, "q": seen.query, "from": value, "case": cases}, doseq=True
            ),
        }
        for value, label in choices
    ]


def endings(request: Request) -> list[dict[str, Any]]:
    chosen = request.POST.get("ending", CaseOutcome.EXPECTED)
    return [
        {"value": one, "label": one.label, "note": NOTES[one], "selected": one == chosen}
        for one in bulk.ENDINGS
    ]


def tiles(seen: bulk.DryRun) -> list[dict[str, str]]:
    """What it adds up to, before anybody agrees to it."""
    money = [formatting.money(minor, currency) for currency, minor in sorted(seen.amounts.items())]
    return [
        {"name": "Eligible", "value": formatting.count(len(seen.eligible))},
        {"name": "Not eligible", "value": formatting.count(len(seen.not_eligible))},
        {"name": "Customers", "value": formatting.count(seen.customers)},
        {"name": "Money", "value": " + ".join(money) or "none"},
        {"name": "Irreversible", "value": formatting.count(seen.irreversible)},
        *(
            [{"name": "Not read yet", "value": formatting.count(seen.unread)}]
            if seen.unread
            else []
        ),
    ]


def eligible(one: bulk.Eligible) -> dict[str, Any]:
    return {
        "value": f"{one.case.pk}:{one.case.revision}:{one.digest}",
        "url": case_url(one.case),
        "headline": one.headline,
        "run": one.case.run.run,
        "customer": one.case.customer_name or one.case.customer,
        "risk": one.case.risk,
        "reversibility": one.reversibility,
        "approval": one.approval or "None",
        "note": UNREAD if one.unread else "",
    }
