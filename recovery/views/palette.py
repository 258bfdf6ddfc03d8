"""What the palette finds besides what the page can do: people, teams, pauses, views, connections,
lists and settings of the workspace.

Each kind is one bounded query, and none is asked of which its reader may not see the page.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import Any, NamedTuple
from urllib.parse import quote

from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpResponse, JsonResponse
from django.views.decorators.http import require_GET

from approvals import pauses
from approvals.models import NamedList, Pause
from connectors.models import ChannelKind, Connection
from recovery.views.saved_views import visible_to
from workspaces import formatting
from workspaces.access import Codename, may
from workspaces.models import Team, User, Workspace
from workspaces.pages import Request, workspace_or_404

QUERY_CHARACTERS_MAX = 100
WORDS_MAX = 5
OF_A_KIND_MAX = 6


class PaletteRow(NamedTuple):
    """`kind` is what it is, for people; `url` a page of the workspace."""

    label: str
    kind: str
    url: str


class SettingsPage(NamedTuple):
    """A settings page: the words that find it, and whom it is for (empty: every member)."""

    label: str
    path: str
    words: str = ""
    needs: Codename | None = None


PLACES = (
    SettingsPage(
        "Workspace and you", "settings/", "name time zone shortcuts keys compact mail password"
    ),
    SettingsPage(
        "Members and teams", "settings/members/", "people invite roles permissions rights"
    ),
    SettingsPage("Agents and keys", "settings/keys/", "api token limits rates"),
    SettingsPage("Signing keys", "settings/signing-keys/", "passkey security webauthn signature"),
    SettingsPage("Daily summary", "settings/summary/", "mail digest notifications approvals"),
    SettingsPage(
        "Company log-in", "settings/log-in/", "sso single sign-on oidc openid", "administer"
    ),
    SettingsPage("Directory", "settings/directory/", "scim provisioning people", "administer"),
    SettingsPage("Channels", "channels/", f"{' '.join(ChannelKind)} siem notifications alerts"),
    SettingsPage(
        "Kept and forgotten", "settings/kept/", "retention erase privacy gdpr", "administer"
    ),
    SettingsPage("Audit", "audit/", "who did what log"),
    SettingsPage("New connection", "connectors/", "connector system", "administer"),
    SettingsPage("New version of the policy", "policies/new/", "rules write edit", "administer"),
    SettingsPage("Lists", "policies/lists/", "allow deny named payees"),
    SettingsPage("Bounded grants", "approvals/grants/", "approve more revoke"),
    SettingsPage(
        "Health of approvals", "approvals/health/", "time to decide proposals near-instant"
    ),
    SettingsPage("Decided approvals", "approvals/history/", "granted rejected expired"),
    SettingsPage(
        "Words and settings of corrections", "corrections/settings/", "trail", "administer"
    ),
    SettingsPage("Saved views", "views/", "queries"),
    SettingsPage("Verify the log", "ledger/verify/", "proof merkle head"),
)


@login_required
@require_GET
def find(request: Request, workspace: str) -> HttpResponse:
    """`{"found": [{"label", "kind", "url"}]}`: what has every word of `q` in its name."""
    here = workspace_or_404(request, workspace)
    words = request.GET.get("q", "")[:QUERY_CHARACTERS_MAX].replace("\x00", "").split()[:WORDS_MAX]
    found = [one for kind in KINDS for one in kind(here, request.user, words)] if words else []
    return JsonResponse({"found": [one._asdict() for one in found]})


def _of(here: Workspace, path: str) -> str:
    return f"/w/{here.slug}/{path}"


def _having(rows: QuerySet[Any], words: list[str], *fields: str) -> QuerySet[Any]:
    """Those of which each word stands in one of the fields."""
    for word in words:
        rows = rows.filter(reduce(or_, (Q(**{f"{one}__icontains": word}) for one in fields)))
    return rows[:OF_A_KIND_MAX]


def _people(here: Workspace, reader: User, words: list[str]) -> Iterator[PaletteRow]:
    members = User.objects.filter(groups__team__workspace=here).distinct().order_by("name", "pk")
    for one in _having(members, words, "name", "email"):
        label = formatting.plain(str(one))
        label = label if label == one.email else f"{label}, {one.email}"
        yield PaletteRow(label, "Person", _of(here, f"settings/members/#person-{one.pk}"))


def _teams(here: Workspace, reader: User, words: list[str]) -> Iterator[PaletteRow]:
    for one in _having(Team.objects.filter(workspace=here).order_by("name"), words, "name"):
        where = _of(here, f"settings/members/#team-{one.pk}")
        yield PaletteRow(formatting.plain(one.name), "Team", where)


def _pauses(here: Workspace, reader: User, words: list[str]) -> Iterator[PaletteRow]:
    standing = Pause.objects.standing().filter(workspace=here).order_by("-pk")
    asked = [one for one in words if not "paused".startswith(one.lower())]
    for one in _having(standing, asked, "kind", "name", "reason"):
        label = f"{formatting.plain(pauses.what(one))} is paused: {formatting.plain(one.reason)}"
        yield PaletteRow(label, "Pause", _of(here, f"policies/#pause-{one.pk}"))


def _views(here: Workspace, reader: User, words: list[str]) -> Iterator[PaletteRow]:
    for one in _having(visible_to(here, reader), words, "name", "query"):
        yield PaletteRow(formatting.plain(one.name), "View", _of(here, f"views/{one.slug}/"))


def _connections(here: Workspace, reader: User, words: list[str]) -> Iterator[PaletteRow]:
    mine = Connection.objects.in_workspace(here).order_by("name")
    for one in _having(mine, words, "name", "connector"):
        yield PaletteRow(one.name, "Connection", _of(here, f"connectors/{one.name}/"))


def _lists(here: Workspace, reader: User, words: list[str]) -> Iterator[PaletteRow]:
    kept = NamedList.objects.filter(workspace=here).order_by("name")
    for one in _having(kept, words, "name", "kind"):
        yield PaletteRow(one.name, "List", _of(here, f"policies/lists/{quote(one.name)}/"))


def _settings(here: Workspace, reader: User, words: list[str]) -> Iterator[PaletteRow]:
    fitting = [
        one
        for one in PLACES
        if all(word.lower() in f"{one.label} {one.words} settings".lower() for word in words)
    ]
    allowed = {one: may(reader, one, here) for one in {place.needs for place in fitting} if one}
    for place in fitting:
        if place.needs is None or allowed[place.needs]:
            yield PaletteRow(place.label, "Page", _of(here, place.path))


KINDS: tuple[Callable[[Workspace, User, list[str]], Iterator[PaletteRow]], ...] = (
    _settings, _people, _teams, _pauses, _views, _connections, _lists,
)  # fmt: skip
