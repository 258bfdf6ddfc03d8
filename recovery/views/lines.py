"""The lines of the queue as markup: fifty on a page, of forty values each.

They were half of the page's time as a part of its template, so they are put together here, like the
badges in them. Every value is escaped by `say`, but what look.py has made.
"""

from html import escape as say
from typing import Any

from django.utils.safestring import SafeString, mark_safe

from workspaces import look
from workspaces.templatetags.look import icon, reversibility, risk, state

SWAP = 'hx-target="#list-and-peek" hx-select="#list-and-peek" hx-swap="outerHTML"'


def line(case: dict[str, Any], *, picks: bool) -> SafeString:
    """One `<tr>` of what rows.row says of a case; `picks` puts a box before it."""
    return mark_safe(  # noqa: S308 - escaped value by value
        f"<tr {_facts(case)}>"
        f'<td class="pick">{_box(case) if picks else ""}</td>'
        f'<td class="first"><span class="badges">{risk(case["risk"])} {_state(case)}</span></td>'
        f'<td class="wide">{_trouble(case)}</td>'
        f'<td class="half"><code class="tool">{look.breakable(case["action"])}</code>'
        f' <span class="sub">{look.breakable(case["target"])}</span></td>'
        f'<td class="half">{_suggestion(case)} {_sign(case)}</td>'
        f'<td data-label="Approval">{look.visible(case["approval"])}</td>'
        f'<td class="nowrap" data-label="Failed">{case["since"]} {_due(case)}</td>'
        f'<td data-label="Claimed">{_claimant(case)}</td>'
        f'<td class="acts">{_acts(case)}</td></tr>'
    )


def _facts(case: dict[str, Any]) -> str:
    """What the scripts sum up and check when lines are chosen."""
    minor = "" if case["minor"] is None else case["minor"]
    return (
        f'data-id="{case["id"]}" data-customer="{say(case["customer_id"])}"'
        f' data-minor="{minor}" data-currency="{say(case["currency"])}"'
        + (' data-irreversible="yes"' if case["irreversible"] else "")
        + ("" if case["eligible"] else ' data-eligible="no"')
        + (' class="here selected"' if case.get("here") else "")
    )


def _box(case: dict[str, Any]) -> str:
    return (
        f'<label><span class="away">Select {say(case["run"])}</span>'
        f'<input class="row-pick" type="checkbox" name="case" value="{case["id"]}"></label>'
    )


def _state(case: dict[str, Any]) -> str:
    return "" if case["state"] == "open" else state(case["state"], case["state_word"])


def _trouble(case: dict[str, Any]) -> str:
    asked = f"“{look.visible(look.straight(case['request']))}”" if case["request"] else ""
    customer = f" · {look.visible(case['customer'])}" if case["customer"] else ""
    return (
        f'<a class="row-link" href="{say(case["url"])}">{look.visible(case["headline"])}</a>'
        f' <span class="sub ask">{asked}</span>'
        f' <span class="sub"><code>{say(case["run"])}</code>{customer}</span>'
    )


def _suggestion(case: dict[str, Any]) -> str:
    words, url = look.visible(case["suggestion"]), say(case["suggestion_url"])
    if url:
        return f'<a class="sub-first" href="{url}">{words}</a>'
    return f'<span class="sub-first">{words}</span>'


def _sign(case: dict[str, Any]) -> str:
    return reversibility(case["reversibility"]) if case["reversibility"] else ""


def _due(case: dict[str, Any]) -> str:
    late = " bad-text" if case["overdue"] else ""
    return f'<span class="sub{late}">{say(case["due"])}</span>'


def _claimant(case: dict[str, Any]) -> str:
    return look.visible(case["claimant"]) if case["claimant"] else '<span class="nobody">—</span>'


def _acts(case: dict[str, Any]) -> str:
    url, run = say(case["peek_url"]), say(case["run"])
    found = (
        f'<a class="button quiet tight" href="{url}" data-peek hx-get="{url}" {SWAP}'
        f' hx-push-url="true"><span class="away">Peek at {run}</span>{icon("queue")}</a>'
    )
    if case["trace_url"]:
        found += (
            f'<a class="button quiet tight" href="{say(case["trace_url"])}" rel="noreferrer">'
            f'<span class="away">Trace of {run}</span>{icon("trace")}</a>'
        )
    return found
