"""A case as one row of a list: what it says, all of it formatted, and its markup."""

from html import escape as say
from typing import Any

from django.utils.safestring import SafeString

from ledger import disclosure
from ledger.api import trace_url
from recovery.cases.lifecycle import holder_of
from recovery.models import Case, CaseState, Suggestion
from recovery.planning import previews
from recovery.views.request_context import case_url, due_words, window_words
from workspaces import clock, formatting
from workspaces.models import User
from workspaces.templatetags.formatting import icon, quoted, reversibility, risk, state

COLUMNS = (
    "brief", "headline", "headline_in_full", "risk", "request", "customer", "customer_name",
    "state", "failed_tool", "failed_target", "outcome", "suggestion", "suggestion_text",
    "reversibility", "closed_at", "needs_approval", "due_at", "undo_until", "failed_at",
    "claimed_until", "amount_minor", "currency", "unknown_count", "agent__name", "claimed_by__name",
    "claimed_by__email", "run__run", "run__trace", "without_effects",
)  # fmt: skip
"""What `row` reads of a case; all else stays where it is."""


def row(
    case: Case, person: User, kept: str = "", *, sensitive: bool, recovers: bool = False
) -> dict[str, Any]:
    """One line of the queue, all of it formatted; `kept` is the list that its case comes from.

    Whoever recovers gets the suggestion as a link to its preview: one click from the list.
    """
    holder = holder_of(case)
    sign, approval = _suggested(case)
    may_just_end = case.without_effects and case.suggestion == Suggestion.RESUME
    is_mine = holder is not None and holder == person
    url = case_url(case)
    acts_here = recovers and case.state == CaseState.OPEN and (holder is None or is_mine)
    return {
        "id": case.pk,
        "url": f"{url}?{kept}" if kept else url,
        "peek_url": f"?peek={case.pk}",
        "risk": case.risk,
        "headline": trouble_of(case, sensitive=sensitive),
        "request": case.request[:200],
        "run": case.run.run,
        "customer": case.customer_name or case.customer,
        "customer_id": case.customer,
        "state": case.state,
        "state_word": {"waiting": "Waiting"}.get(case.state, ""),
        "action": case.failed_tool,
        "target": case.failed_target,
        "suggestion": (case.get_outcome_display() if case.outcome else case.suggestion_text)
        or case.get_suggestion_display(),
        "suggestion_url": f"{url}{case.suggestion}/" if acts_here else "",
        "or_close_url": f"{url}close/" if acts_here and may_just_end else "",
        "reversibility": sign,
        "approval": approval,
        "since": formatting.moment(case.failed_at, "span"),
        "due": due_words(case),
        "window": window_words(case),
        "overdue": bool(case.due_at and case.due_at < clock.now()),
        "claimant": "you" if is_mine else str(holder or ""),
        "claimed_by_me": is_mine,
        "trace_url": trace_url(case.run.trace),
        "minor": case.amount_minor,
        "currency": case.currency,
        "irreversible": case.reversibility == "irreversible",
        "eligible": case.state == CaseState.OPEN and case.unknown_count == 0,
        "case": case,
    }


def _suggested(case: Case) -> tuple[str, str]:
    """The sign of the suggested act and whose approval it takes.

    Those that are kept are the compensation's: settling says what happened and sends nothing, and
    a resumed run asks at the gate, call by call.
    """
    if case.closed_at:
        return case.reversibility, "—"
    if case.state in {CaseState.OPEN, CaseState.RESUMING}:
        if case.suggestion == Suggestion.SETTLE:
            return "unknown", "None yet"
        if case.suggestion == Suggestion.RESUME:
            return "", "None"
        if case.suggestion_text == previews.UNDONE:  # of nothing there is no sign
            return "", case.needs_approval or "None"
    return case.reversibility, case.needs_approval or "None"


def trouble_of(case: Case, *, sensitive: bool) -> str:
    """What went wrong, in the words of a list: what a check found, to who may read that."""
    return disclosure.headline(_short(case), case.headline_in_full, sensitive=sensitive)


def _short(case: Case) -> str:
    """The trouble alone; else the headline without the agent, whom every line would begin with."""
    if case.brief:
        return case.brief
    agent = f"Agent {formatting.quoted(case.agent.name)} " if case.agent else ""
    words = case.headline.removeprefix(agent)
    return f"{words[:1].upper()}{words[1:]}"


# The lines of the queue as markup: fifty on a page, of forty values each.
#
# They were half of the page's time as a part of its template, so they are put together here, like
# the badges in them. Every value is escaped by `say`, but what `workspaces.formatting` has made.

SWAP = 'hx-target="#list-and-peek" hx-select="#list-and-peek" hx-swap="outerHTML"'


def line(case: dict[str, Any], *, picks: bool) -> SafeString:
    """One `<tr>` of what `row` says of a case; `picks` puts a box before it."""
    word = "" if case["state"] == "open" else state(case["state"], case["state_word"])
    sign = reversibility(case["reversibility"])
    return SafeString(  # escaped value by value
        f"<tr {_facts(case)}>"
        f'<td class="pick">{_box(case) if picks else ""}</td>'
        f'<td class="first"><span class="badges">{risk(case["risk"])} {word}</span>'
        '<span class="sub" data-became></span></td>'
        f'<td class="wide">{_trouble(case)}</td>'
        f'<td class="half"><code class="tool">{formatting.breakable(case["action"])}</code>'
        f' <span class="sub">{formatting.breakable(case["target"])}</span></td>'
        f'<td class="half">{_suggestion(case)} {sign}</td>'
        f'<td data-label="Approval">{formatting.visible(case["approval"])}</td>'
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
        f' data-digits="{formatting.digits_of(case["currency"] or "")}"'
        + (' data-irreversible="yes"' if case["irreversible"] else "")
        + ("" if case["eligible"] else ' data-eligible="no"')
        + (' class="here selected"' if case.get("here") else "")
    )


def _box(case: dict[str, Any]) -> str:
    return (
        f'<label><span class="away">Select {say(case["run"])}</span>'
        f'<input class="row-pick" type="checkbox" name="case" value="{case["id"]}"></label>'
    )


def _trouble(case: dict[str, Any]) -> str:
    asked = quoted(case["request"]) if case["request"] else ""
    customer = (
        f" · {formatting.visible(formatting.person(case['customer']))}" if case["customer"] else ""
    )
    headline = formatting.together(formatting.visible(case["headline"]))
    return (
        f'<a class="row-link" href="{say(case["url"])}">{headline}</a>'
        f' <span class="sub ask">{asked}</span>'
        f' <span class="sub"><code>{say(case["run"])}</code>{customer}</span>'
    )


def _suggestion(case: dict[str, Any]) -> str:
    words, url = (
        formatting.together(formatting.visible(case["suggestion"])),
        say(case["suggestion_url"]),
    )
    if close := say(case["or_close_url"]):
        return (
            f'<span class="sub-first"><a href="{url}">{words}</a> or'
            f' <a href="{close}">close</a></span>'
        )
    if url:
        return f'<a class="sub-first" href="{url}">{words}</a>'
    return f'<span class="sub-first">{words}</span>'


def _due(case: dict[str, Any]) -> str:
    late = " bad-text" if case["overdue"] else ""
    window = f' <span class="sub">{case["window"]}</span>' if case["window"] else ""
    return f'<span class="sub{late}">{case["due"]}</span>{window}'


def _claimant(case: dict[str, Any]) -> str:
    return (
        formatting.visible(case["claimant"])
        if case["claimant"]
        else '<span class="nobody">—</span>'
    )


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
