"""The side navigation: the places that this desk serves, with what waits in them.

A place whose address leads nowhere is left out, so that the list is true in every build.
"""

from functools import lru_cache

from django import template
from django.conf import settings
from django.template.context import RequestContext
from django.urls import Resolver404, resolve
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from workspaces import access, formatting
from workspaces.access import Codename
from workspaces.templatetags.formatting import icon

register = template.Library()

# The side navigation: group, then word, folder under /w/<workspace>/, icon, key, count in `nav`.
PLACES = (
    (
        "Recovery",
        (
            ("Queue", "queue", "queue", "g q"),
            ("Approvals", "approvals", "approval", "g a"),
            ("Causes", "causes", "cause", "g c"),
            ("Bulk jobs", "bulk", "bulk", ""),
        ),
    ),
    (
        "Record",
        (
            ("Runs", "runs", "run", "g r"),
            ("Ledger", "ledger", "ledger", "g l"),
            ("Corrections", "corrections", "correction", "g o"),
            ("Left over", "residue", "clear", ""),
        ),
    ),
    (
        "Rules",
        (
            ("Policies", "policies", "policy", "g p"),
            ("Tools", "tools", "tool", ""),
            ("Connectors", "connectors", "connector", ""),
            ("Insights", "insights", "insight", "g i"),
            ("Settings", "settings", "settings", "g s"),
        ),
    ),
)
URGENT = {"queue", "approvals"}
# Pages under addresses of their own that stand among the tabs of a place.
AMONG = {"settings": ("channels", "audit")}


@register.simple_tag(takes_context=True)
def places(context: RequestContext) -> SafeString:
    """The side navigation: every place that this desk serves, with its counts from `nav`."""
    workspace = context["workspace"]
    root = f"/w/{escape(workspace.slug)}/"
    here = context["request"].path
    counts = context.get("nav") or {}
    groups = []
    for group, entries in PLACES:
        lines = [
            _place(word, f"{root}{folder}/", sign, keys, counts.get(folder), folder, here)
            for word, folder, sign, keys in entries
            if _is_served(folder)
        ]
        if lines:
            groups.append((group, SafeString("".join(lines))))  # each is markup

    return format_html_join(
        "",
        '<section class="places"><h2>{}</h2><ul>{}</ul></section>',
        groups,
    )


@register.simple_tag(takes_context=True)
def may(context: RequestContext, codename: Codename) -> bool:
    """Whether the person may, for a link to a page of its own: the page's view decides anew."""
    return access.may(context["request"].user, codename, context["workspace"])


@lru_cache(maxsize=32)
def _is_served(folder: str) -> bool:
    try:
        resolve(f"/w/any/{folder}/")
    except Resolver404:
        return False
    return True


def _place(  # one line of a list, told by its parts
    word: str, url: str, sign: str, keys: str, number: object, folder: str, here: str
) -> SafeString:
    root = url.removesuffix(f"{folder}/")
    own = (url, *(f"{root}{one}/" for one in AMONG.get(folder, ())))
    current = mark_safe(' aria-current="page"') if here.startswith(own) else ""
    shortcut = (
        format_html(' data-key="{}" data-key-label="{}" data-key-group="Go to"', keys, word)
        if keys
        else ""
    )
    # One that may be told of news later stands there hidden as long as nothing waits.
    hidden = mark_safe(" hidden") if number is None else ""
    badge_ = (
        format_html(
            '<span class="count{}" data-count="{}"{}>{}</span>',
            " urgent" if folder in URGENT else "",
            folder,
            hidden,
            str(number or 0),
        )
        if folder in URGENT or number is not None
        else ""
    )
    return format_html(
        '<li><a href="{}"{}{}>{}<span class="place">{}</span>{}</a></li>',
        url,
        current,
        shortcut,
        icon(sign),
        word,
        badge_,
    )


@register.simple_tag(takes_context=True)
def found_again(context: RequestContext) -> SafeString:
    """The foot of a page on paper: its address, and of which moment it is."""
    return format_html(
        "<code data-address>{}{}</code> · as of {}<span data-printed></span>",
        settings.AMENDS_URL,
        context["request"].get_full_path(),
        formatting.moment(timezone.now(), "clock"),
    )
