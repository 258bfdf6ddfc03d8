"""Agents and their keys, and a person's own API tokens."""

from django.conf import settings as configuration
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import condition, require_GET, require_POST, require_safe

from workspaces import client_packages, clock, exporting, keys, rates
from workspaces.access import may
from workspaces.client_packages import ClientPackage
from workspaces.forms import (
    AgentForm,
    KeyForm,
    TokenForm,
)
from workspaces.models import APIKey, PersonToken, Workspace
from workspaces.pages import Request, page, whole, workspace_or_404, workspace_to
from workspaces.quick_starts import QUICK_STARTS, QuickStart

LIST_MAX = 500


def _keys(
    request: Request,
    here: Workspace,
    *,
    agent: AgentForm | None = None,
    key: KeyForm | None = None,
    token: TokenForm | None = None,
    secret: str = "",
    made: APIKey | None = None,
) -> HttpResponse:
    keys_of = Prefetch("keys", APIKey.objects.order_by("-created_at"))
    agents = here.agents.order_by("name").select_related("owner").prefetch_related(keys_of)
    agents = agents[:LIST_MAX]
    context = {
        "workspace": here,
        "agents": agents,
        "pager": whole(request, agents),
        "tokens": _own_tokens(request, here),
        "agent_form": agent or AgentForm(workspace=here),
        "key_form": key or KeyForm(workspace=here),
        "token_form": token or TokenForm(),
        "secret": secret,
        "made": made,
        "quick_starts": _quick_starts() if made and "begin" in made.scopes else (),
        "client_url": client_packages.wheel.url,
        "desk_url": configuration.AMENDS_URL,
        "rates": rates.usage(here),
        "may_administer": may(request.user, "administer", here),
        "may_pause": any(may(request.user, one, here) for one in ("recover", "administer")),
        "now": clock.now(),
    }
    wrong = any(form is not None and form.errors for form in (agent, key, token))
    return page(request, "workspaces/keys.html", context, status=422 if wrong else 200)


def _quick_starts() -> list[QuickStart]:
    wheel, tarball = client_packages.wheel.url, client_packages.tarball.url
    return [
        one._replace(install=one.install.replace("{wheel}", wheel).replace("{tarball}", tarball))
        for one in QUICK_STARTS
    ]


def _own_tokens(request: Request, here: Workspace) -> QuerySet[PersonToken]:
    mine = PersonToken.objects.filter(workspace=here, person=request.user)
    return mine.order_by("-created_at")


TOKENS: exporting.Columns = {
    "token": "name",
    "prefix": "prefix",
    "made_at": "created_at",
    "last_used_at": "last_used_at",
    "expires_at": "expires_at",
    "revoked_at": "revoked_at",
}
LIMITS: exporting.Columns = {
    "for_each": "limit",
    "requests_a_minute": "per_minute",
    "set_for_this_workspace": "is_own",
    "refused": lambda one: ", ".join(f"{whose} {times} x".strip() for whose, times in one.refused),
}
EXPORTED: exporting.Columns = {
    "agent": "agent.name",
    "owner": lambda one: str(one.agent.owner or ""),
    "key": "name",
    "prefix": "prefix",
    "may": lambda one: ", ".join(one.scopes),
    "trusted_runtime": "trusted_runtime",
    "created_at": "created_at",
    "last_used_at": "last_used_at",
    "expires_at": "expires_at",
    "revoked_at": "revoked_at",
}


@login_required
@require_GET
def list_keys(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    if exporting.is_asked(request):
        found = APIKey.objects.filter(workspace=here).select_related("agent__owner")
        rows = found.order_by("agent__name", "-created_at")
        tables: dict[str, exporting.Table] = {
            "keys": (rows, EXPORTED),
            "your-tokens": (_own_tokens(request, here), TOKENS),
            "limits": (rates.usage(here).limits, LIMITS),
        }
        return exporting.table(request, tables, exporting.cleaner(request.user, here))
    return _keys(request, here)


@login_required
@require_POST
def make_agent(request: Request, workspace: str) -> HttpResponse:
    here = workspace_to("administer", request, workspace)
    form = AgentForm(request.POST, workspace=here)
    if not form.is_valid():
        return _keys(request, here, agent=form)
    keys.create_agent(here, by=request.user, owner=request.user, **form.cleaned_data)
    messages.success(request, f"{form.cleaned_data['name']} is added. It needs a key next.")
    return redirect("workspaces:keys", workspace=here.slug)


@never_cache
@login_required
@require_POST
def make_key(request: Request, workspace: str) -> HttpResponse:
    """Make an agent's key; this answer is the only place where it is ever shown."""
    here = workspace_to("administer", request, workspace)
    form = KeyForm(request.POST, workspace=here)
    if not form.is_valid():
        return _keys(request, here, key=form)
    said = form.cleaned_data
    until = keys.in_days(said.pop("days"))
    made, secret = keys.create_key(by=request.user, expires_at=until, **said)
    return _keys(request, here, secret=secret, made=made)


@never_cache
@login_required
@require_POST
def make_token(request: Request, workspace: str) -> HttpResponse:
    """Make the person's own token; it can do what its owner may, and never decide an approval."""
    here = workspace_or_404(request, workspace)
    form = TokenForm(request.POST)
    if not form.is_valid():
        return _keys(request, here, token=form)
    _, secret = keys.create_token(
        here,
        by=request.user,
        name=form.cleaned_data["name"],
        expires_at=keys.in_days(form.cleaned_data["days"]),
    )
    return _keys(request, here, secret=secret)


@login_required
@require_POST
def revoke_key(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_to("administer", request, workspace)
    key = get_object_or_404(APIKey, pk=pk, workspace=here)
    keys.revoke(key, by=request.user)
    messages.success(request, f"The key {key.name} is revoked: whoever uses it is refused.")
    return redirect("workspaces:keys", workspace=here.slug)


@login_required
@require_POST
def revoke_token(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    mine = PersonToken.objects.filter(workspace=here, person=request.user)
    token = get_object_or_404(mine, pk=pk)
    keys.revoke(token, by=request.user)
    messages.success(request, f"The token {token.name} is revoked: whoever uses it is refused.")
    return redirect("workspaces:keys", workspace=here.slug)


def _tag_of(_request: HttpRequest, package: ClientPackage) -> str:
    return f'"{package.digest}"'


@require_safe
@condition(etag_func=_tag_of)
def client(_request: HttpRequest, package: ClientPackage) -> HttpResponse:
    """A client for agents, for everybody: whoever installs it has no log-in."""
    answer = HttpResponse(package.content, content_type="application/octet-stream")
    answer["Content-Disposition"] = f'attachment; filename="{package.name}"'
    answer["Cache-Control"] = "public, no-cache"
    return answer
