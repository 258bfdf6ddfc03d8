"""Tags of the look: badges, times, differences, icons.

Each returns markup built in Python; a page with a hundred rows calls them hundreds of times.
"""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from django import template
from django.forms import BooleanField, BoundField, ChoiceField
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from workspaces import exporting, formatting

register = template.Library()


@register.filter
def problems(field: BoundField) -> list[str]:
    """What is wrong with a field; of what was left out, which thing is missing."""
    return [
        words
        for error in field.errors.as_data()
        for words in ([_missing(field)] if error.code == "required" else error.messages)
    ]


def _missing(field: BoundField) -> str:
    what = f"“{str(field.label).rstrip('?')}”"
    if isinstance(field.field, ChoiceField):
        return f"Choose something for {what}."
    return f"Tick {what}." if isinstance(field.field, BooleanField) else f"{what} is missing."


RISKS = {
    "low": ("●", "Low"),
    "medium": ("■", "Medium"),
    "high": ("▲", "High"),
    "critical": ("◆", "Critical"),
}
REVERSIBILITIES = {
    "exact": ("↺", "Exact undo"),
    "compensable": ("⇄", "Compensable"),
    "irreversible": ("⊘", "Irreversible"),
    "unknown": ("?", "Undo unknown"),
}
# A state's tone: ok (read back), busy, wait (a person is needed), bad, or calm.
STATES = {
    "open": ("wait", "Open"),
    "waiting": ("wait", "In approval"),
    "recovering": ("busy", "Recovering"),
    "resuming": ("busy", "Resuming"),
    "closed": ("calm", "Closed"),
    "blocked": ("calm", "Waits its turn"),
    "ready": ("calm", "Queued"),
    "claimed": ("busy", "Running"),
    "intended": ("busy", "Running"),
    "applied": ("busy", "Reported done"),
    "reported": ("calm", "Reported done"),
    "verified": ("ok", "Verified"),
    "unknown": ("wait", "Outcome unknown"),
    "drifted": ("wait", "Drifted"),
    "needs_human": ("bad", "Needs a person"),
    "skipped": ("calm", "Skipped"),
    "cancelled": ("calm", "Cancelled"),
    "planned": ("calm", "Planned"),
    "approved": ("calm", "Approved"),
    "running": ("busy", "Running"),
    "succeeded": ("calm", "Reported done"),
    "failed": ("bad", "Failed"),
    "settled_applied": ("calm", "Settled: happened"),
    "settled_no_effect": ("calm", "Settled: did not happen"),
    "compensated": ("ok", "Compensated"),
    "repaired": ("wait", "Record repaired"),
    "pending": ("wait", "Waiting"),
    "granted": ("ok", "Approved"),
    "rejected": ("bad", "Rejected"),
    "expired": ("calm", "Expired"),
    "withdrawn": ("calm", "Withdrawn"),
    "draft": ("wait", "Draft"),
    "published": ("ok", "Published"),
    "revoked": ("calm", "Revoked"),
    "active": ("ok", "Active"),
    "uncalled": ("calm", "Not called yet"),
    "incomplete": ("wait", "Lacks credentials"),
    "paused": ("wait", "Paused"),
}
TONE_SIGNS = {"ok": "✓", "busy": "◔", "wait": "!", "bad": "✕", "calm": "○"}

# A word for which a column of a difference has no room: an id, a digest, an address.
SHORT_CHARACTERS_MAX = 16
LONG_WORD = re.compile(r"\S{17}")

DIFF_SIGNS = {
    "same": ("", ""),
    "changed": ("~", "changed"),
    "added": ("+", "added"),
    "removed": (formatting.MINUS, "removed"),
    "drifted": ("!", "drifted"),
}


@register.simple_tag
@lru_cache(maxsize=128)
def icon(name: str, label: str = "") -> SafeString:
    """One drawing of static/icons.svg; without a label it is hidden from screen readers."""
    url = static("icons.svg")
    if label:
        return format_html(
            '<svg class="icon" role="img" aria-label="{}"><use href="{}#{}"></use></svg>',
            label,
            url,
            name,
        )
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', url, name
    )


@lru_cache(maxsize=64)
def _badge(family: str, kind: str, sign: str, word: str) -> SafeString:
    return format_html(
        '<span class="badge {}-{}"><span aria-hidden="true">{}</span> {}</span>',
        family,
        kind,
        sign,
        word,
    )


@register.simple_tag
def risk(level: str) -> SafeString:
    sign, word = RISKS.get(level, ("?", str(level).capitalize()))
    return _badge("risk", level if level in RISKS else "medium", sign, word)


@register.simple_tag
def reversibility(kind: str) -> SafeString:
    """How something is undone; nothing where nobody has said it yet."""
    if not kind:
        return mark_safe("")
    kind = kind if kind in REVERSIBILITIES else "unknown"
    return _badge("undo", kind, *REVERSIBILITIES[kind])


@register.simple_tag
def state(name: str, word: str = "") -> SafeString:
    """A state of a case, step, action, approval or correction, in words for people."""
    tone, _ = STATES.get(name, ("calm", ""))
    return _badge("tone", tone, TONE_SIGNS[tone], word or state_word(name))


def state_word(name: str) -> str:
    """What its badge says."""
    return STATES[name][1] if name in STATES else str(name).replace("_", " ").capitalize()


@register.simple_tag
def badge(tone: str, word: str) -> SafeString:
    """A short remark in a tone: ok, busy, wait, bad or calm."""
    tone = tone if tone in TONE_SIGNS else "calm"
    return _badge("tone", tone, TONE_SIGNS[tone], word)


BROWSERS = {
    "Edg": "Edge", "OPR/": "Opera", "SamsungBrowser": "Samsung Internet", "Firefox": "Firefox",
    "FxiOS": "Firefox", "CriOS": "Chrome", "Chrome": "Chrome", "Safari": "Safari", "curl": "curl",
}  # fmt: skip
SYSTEMS = {
    "iPhone": "an iPhone", "iPad": "an iPad", "Android": "Android", "Windows": "Windows",
    "Mac OS X": "a Mac", "CrOS": "ChromeOS", "Linux": "Linux",
}  # fmt: skip
"""The first that a browser names: each calls itself by the names of those before it, too."""


@register.filter
def browser(user_agent: str) -> str:
    """`Firefox on Windows`; its own words, cut, where no browser that people know is named."""
    name = next((words for sign, words in BROWSERS.items() if sign in user_agent), "")
    system = next((words for sign, words in SYSTEMS.items() if sign in user_agent), "")
    if not name:
        return formatting.one_line(user_agent)[:60] or "An unknown browser"
    return f"{name} on {system}" if system else name


@register.simple_tag
def moment(when: datetime | None, style: str = "ago") -> SafeString:
    """See workspaces.formatting.moment."""
    return formatting.moment(when, style)


@register.simple_tag
def diff(
    rows: Iterable[Mapping[str, Any]],
    caption: str = "Before and after",
    was: str = "was",
    now: str = "now",
) -> SafeString:
    """Was and now, field by field. A row is {field, was, now, kind, note}; see DIFF_SIGNS.

    `was_money`, `now_money`: what that value is as money, beside it.
    """
    body = format_html_join("", "{}", ((_diff_row(row),) for row in rows))
    return format_html(
        '<div class="diff" role="region" tabindex="0" aria-label="{}"><table>'
        '<caption class="away">{}</caption><thead><tr>'
        '<td></td><th scope="col">field</th><th scope="col">{}</th><th scope="col">{}</th>'
        "</tr></thead><tbody>{}</tbody></table></div>",
        formatting.plain(caption),
        formatting.visible(caption),
        was,
        now,
        body,
    )


def _diff_row(row: Mapping[str, Any]) -> SafeString:
    """One field: what was beside what is; of two long texts the lines that differ."""
    kind = str(row.get("kind", "changed"))
    kind = kind if kind in DIFF_SIGNS else "changed"
    was = None if kind == "added" else row.get("was")
    now = None if kind == "removed" else row.get("now")
    head = format_html(
        '<tr class="diff-{}"><td class="diff-sign"><span aria-hidden="true">{}</span>'
        '<span class="away">{}</span></td><th scope="row">{}</th>',
        kind,
        *DIFF_SIGNS[kind],
        formatting.visible(row["field"]),
    )
    if _is_text(was) and _is_text(now):
        lines = formatting.line_diff(str(was), str(now))
        return format_html(
            '{}<td class="diff-lines" colspan="2">{}</td></tr>',
            head,
            _with_note(lines, row.get("note")),
        )
    old, new = _values(was, now)
    return format_html(
        '{}<td class="diff-was">{}</td><td class="diff-now">{}</td></tr>',
        head,
        _with_note(old, row.get("was_money")),
        _with_note(_with_note(new, row.get("now_money")), row.get("note")),
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 1 < value.count("\n") + 1 <= formatting.COMPARED_LINES_MAX


@register.simple_tag
def drift(rows: Iterable[Mapping[str, Any]], caption: str = "Drift") -> SafeString:
    """Four columns: was before the agent, agent wrote, now, becomes. Rows as for `diff`."""
    body = format_html_join(
        "",
        '<tr class="diff-{}"><td class="diff-sign"><span aria-hidden="true">{}</span>'
        '<span class="away">{}</span></td><th scope="row">{}</th>'
        '<td data-label="was">{}</td><td data-label="agent wrote">{}</td>'
        '<td data-label="now">{}</td><td data-label="becomes">{}</td></tr>',
        (
            (
                kind if (kind := str(row.get("kind", "changed"))) in DIFF_SIGNS else "changed",
                *DIFF_SIGNS.get(kind, DIFF_SIGNS["changed"]),
                formatting.visible(row["field"]),
                *values,
                _with_note(becomes, row.get("note")),
            )
            for row in rows
            for *values, becomes in [_values(*map(row.get, ("was", "wrote", "now", "becomes")))]
        ),
    )
    return format_html(
        '<div class="diff diff-four" role="region" tabindex="0" aria-label="{}"><table>'
        '<caption class="away">{}</caption><thead><tr><td></td><th scope="col">field</th>'
        '<th scope="col">was</th><th scope="col">agent wrote</th><th scope="col">now</th>'
        '<th scope="col">becomes</th></tr></thead><tbody>{}</tbody></table></div>',
        formatting.plain(caption),
        formatting.visible(caption),
        body,
    )


def _values(*values: object) -> list[SafeString]:
    """What stands beside each other. Of two that look alike and are not, as 5 and “5”, the text is
    shown in quotation marks.
    """
    shown = [_value(one) for one in values]
    others = {text for value, text in zip(values, shown, strict=True) if type(value) is not str}
    return [
        quoted(value) if type(value) is str and text in others else text
        for value, text in zip(values, shown, strict=True)
    ]


def _value(value: object) -> SafeString:
    if value is None:
        return mark_safe('<span class="muted">nothing</span>')
    if isinstance(value, SafeString):  # a link of ours; what anybody sent is a plain text
        return value
    if isinstance(value, dict | list | bool):
        value = json.dumps(value, ensure_ascii=False, default=str)
    shown, text = formatting.visible(value), str(value)
    if LONG_WORD.search(text):  # it may break anywhere, if it must; no other word does
        return format_html('<span class="long">{}</span>', shown)
    if "-" in text and len(text) <= SHORT_CHARACTERS_MAX:  # a day is read in one piece
        return format_html('<span class="nowrap">{}</span>', shown)
    return shown


def _with_note(value: SafeString, note: object) -> SafeString:
    if not note:
        return value
    return format_html('{} <span class="diff-note">{}</span>', value, formatting.visible(note))


@register.filter
def visible(text: object) -> SafeString:
    return formatting.visible(text)


@register.filter
def sentence(text: object) -> SafeString:
    """As `visible`, with short ids in one piece: for sentences in narrow cells."""
    return formatting.together(formatting.visible(text))


@register.filter
def whole(text: object) -> SafeString:
    """As `visible`, and never cut: for what people decide on."""
    return formatting.visible(text, characters_max=None)


@register.filter
def plain(text: object) -> str:
    """In one line, hidden characters shown: for a page's title and for labels."""
    return formatting.plain(text)


@register.filter
def quoted(text: object) -> SafeString:
    """Somebody else's words in a sentence of ours: “in one line”, which they cannot leave."""
    shown = formatting.visible(formatting.straight(text))
    if formatting.RIGHT_TO_LEFT.search(shown):
        shown = SafeString(f"<bdi>{shown}</bdi>")  # `visible` escaped it
    return SafeString(f"“{shown}”")  # as above


@register.filter
def person(name: object) -> SafeString:
    """On whose behalf an agent acted: a name as it is, anything else in quotation marks."""
    return formatting.visible(formatting.person(name)) if name else SafeString("")


@register.inclusion_tag("parts/files.html", takes_context=True)
def files(context: template.Context, table: str) -> dict[str, Any]:
    """Where that table of the page is had as a file, by its name in the view's tables."""
    return {"files": exporting.links(context["request"], table), "which": table.replace("-", " ")}


@register.filter
def breakable(name: object) -> SafeString:
    return formatting.breakable(name)


@register.simple_tag
def key(name: str) -> SafeString:
    """The hint that a key does this. Shown only where scripts run and single keys are on."""
    return format_html('<kbd class="hint" aria-hidden="true">{}</kbd>', name)
