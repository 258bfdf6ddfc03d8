"""The page on which an administrator sets the log-in of their own company (OpenID Connect)."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from amends.protocol.vocabulary import EventType
from config import providers
from config.providers import COMPANY, NoProvider
from workspaces import clock, directory, fresh_login, locks, outbox
from workspaces.forms import without_hint
from workspaces.models import LoginProvider, Secret, User, Workspace
from workspaces.pages import Request, page, workspace_to

GROUPS_MAX = 100
DOMAINS_MAX = 50
TEXT_CHARACTERS_MAX = 20_000
SECRET = "secret of the company’s log-in"  # noqa: S105 - its name


class LoginForm(forms.Form):
    """What a provider is, as an administrator says it; `was` is what is set now."""

    name = forms.CharField(
        max_length=80, label="Name", help_text="What your people call it: “Acme’s directory”."
    )
    issuer = forms.CharField(
        max_length=300,
        label="Issuer",
        help_text="Its address, as its discovery document says it: https://login.example.com/tenant",
    )
    client_id = forms.CharField(max_length=300, label="Client id")
    secret = forms.CharField(
        max_length=2_000,
        required=False,
        label="Client secret",
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Kept encrypted and never shown again.",
    )
    groups_claim = forms.CharField(
        max_length=80, initial="groups", label="Claim with the groups", required=False
    )
    groups = forms.CharField(
        max_length=TEXT_CHARACTERS_MAX,
        label="Groups and their teams",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text="One in a line: group = team. Only who stands in one of these groups may join,"
        " and stands in its team for as long as they have the group.",
    )
    seen = forms.CharField(max_length=40, required=False, widget=forms.HiddenInput)
    domains = forms.CharField(
        max_length=TEXT_CHARACTERS_MAX,
        required=False,
        label="Addresses that may join",
        help_text="Domains, divided by spaces: example.com. Empty: any that the provider vouches"
        " for.",
    )

    def __init__(
        self, *args: Any, workspace: Workspace, was: LoginProvider | None, **kwargs: Any
    ) -> None:
        if was is not None:
            kwargs.setdefault("initial", {
                "name": was.name, "issuer": was.issuer, "client_id": was.client_id,
                "groups_claim": was.groups_claim, "domains": " ".join(was.domains),
                "groups": "\n".join(f"{group} = {team}" for group, team in was.places),
                "seen": was.set_at.isoformat(),
            })  # fmt: skip
        super().__init__(*args, **kwargs)
        self.workspace, self.was = workspace, was
        self.keeps = was is not None and providers.is_openable(was)
        without_hint(self.fields["secret"], really=not self.keeps)
        if self.keeps:
            self.fields["secret"].help_text += " Empty: it stays as it is."

    def clean_issuer(self) -> str:
        issuer = str(self.cleaned_data["issuer"]).rstrip("/")
        if not issuer.startswith(("https://", "http://")) or set(issuer) & set("?#@\\ "):
            raise ValidationError("An issuer is an address that begins with https://.")
        return issuer

    def clean_groups_claim(self) -> str:
        return str(self.cleaned_data["groups_claim"] or "groups")

    def clean_groups(self) -> list[tuple[str, str]]:
        decided = {one.team.name for one in directory.groups_of(self.workspace)}
        known = set(self.workspace.teams.values_list("name", flat=True))
        found = []
        for line in filter(str.strip, str(self.cleaned_data["groups"]).splitlines()):
            group, sign, team = (part.strip() for part in line.rpartition("="))
            if not (group and sign):
                raise ValidationError(f"“{line[:80]}” is not like group = team.")
            if team not in known:
                raise ValidationError(
                    f"There is no team “{team[:80]}” here. Members and teams is where it is made."
                )
            if team in decided:
                raise ValidationError(f"The directory decides on “{team}” already.")
            found.append((group, team))
        if len(found) > GROUPS_MAX:
            raise ValidationError(f"At most {GROUPS_MAX} groups.")
        return found

    def clean_domains(self) -> list[str]:
        words = str(self.cleaned_data["domains"]).lower().replace(",", " ").split()
        found = [one.removeprefix("@") for one in words]
        if len(found) > DOMAINS_MAX or any("." not in one or "@" in one for one in found):
            raise ValidationError(f"At most {DOMAINS_MAX} domains, like example.com.")
        return found

    def clean(self) -> dict[str, Any]:
        """A secret goes to the issuer for whom it was entered, and to no other; and what somebody
        else has set meanwhile is not overwritten unseen: who saves once more has seen it.
        """
        now = self.was.set_at.isoformat() if self.was else ""
        if self.cleaned_data.get("seen") != now:
            self.data = {**self.data.dict(), "seen": now}  # type: ignore[attr-defined]  # a QueryDict
            raise ValidationError(self._set_meanwhile())
        is_same = self.was is not None and self.was.issuer == self.cleaned_data.get("issuer")
        keeps = is_same and self.keeps
        if not self.cleaned_data.get("secret") and not keeps and "issuer" in self.cleaned_data:
            self.add_error("secret", "Enter the secret that this issuer has given you.")
        return self.cleaned_data

    def _set_meanwhile(self) -> str:
        if self.was is None:
            return "Somebody took this log-in away meanwhile. Save once more to set yours again."
        return (
            f"{self.was.set_by} set “{self.was.name}” ({self.was.issuer}) meanwhile. Save once more"
            " to put yours in its place."
        )


@login_required
@require_GET
def overview(request: Request, workspace: str) -> HttpResponse:
    here = workspace_to("administer", request, workspace)
    return _page(request, here, LoginForm(workspace=here, was=_set_for(here)))


def _set_for(here: Workspace) -> LoginProvider | None:
    rows = LoginProvider.objects.select_related("secret", "set_by")
    return rows.filter(workspace=here, ended_at=None).first()


def _page(request: Request, here: Workspace, form: LoginForm, **said: Any) -> HttpResponse:
    was = form.was
    entrance = f"/accounts/oidc/{was.provider_id}/login/" if was else ""
    context = {
        "workspace": here,
        "tab": "company_login",
        "title": "Company log-in",
        "lead": "Your people log in at your company’s identity provider (OpenID Connect), stand in"
        " the teams of their groups, and who leaves it is out.",
        "environment": providers.provider_of(COMPANY) if settings.OIDC_URL else None,
        "was": was,
        "entrance": f"{settings.AMENDS_URL}{entrance}?process=login",
        "redirect": f"{settings.AMENDS_URL}{entrance}callback/",
        "form": form,
        **fresh_login.asked_for(request, reverse("company_login", args=[here.slug])),
        **said,
    }
    status = 422 if form.errors or said.get("wrong") else 200
    return page(request, "workspaces/company_login.html", context, status=status)


@never_cache
@login_required
@require_POST
def try_it(request: Request, workspace: str) -> HttpResponse:
    """What answers at the issuer of the form, before anything is kept."""
    here = workspace_to("administer", request, workspace)
    form = LoginForm(request.POST, workspace=here, was=_set_for(here))
    form.is_valid()
    if "issuer" not in form.cleaned_data:
        return _page(request, here, form)
    try:
        said = providers.looked_at(form.cleaned_data["issuer"])
    except NoProvider as wrong:
        return _page(request, here, form, wrong=str(wrong))
    return _page(request, here, form, found=said)


@never_cache
@login_required
@require_POST
def save(request: Request, workspace: str) -> HttpResponse:
    """Whoever sets it says who gets in, so it takes a fresh log-in, as what is critical does."""
    here = workspace_to("administer", request, workspace)
    may_set = not settings.OIDC_URL and fresh_login.is_fresh(fresh_login.login_at(request))
    with transaction.atomic():
        locks.locked(Workspace.objects.filter(pk=here.pk)).get()
        form = LoginForm(request.POST, workspace=here, was=_set_for(here))
        is_kept = form.is_valid() and may_set
        if is_kept:
            _keep(here, form, by=request.user)
    if not is_kept:
        return _page(request, here, form, wrong="" if form.errors else "Nothing was changed.")
    messages.success(request, "Set. Enter the two addresses below at your provider.")
    return redirect("company_login", workspace=here.slug)


def _keep(here: Workspace, form: LoginForm, *, by: User) -> None:
    said, was = form.cleaned_data, form.was
    row = was if was and was.issuer == said["issuer"] else None
    if row is None:
        if was is not None:
            _end(was)
        row = LoginProvider(workspace=here, issuer=said["issuer"])
    old = row.secret if said["secret"] else None
    if said["secret"]:
        row.secret = Secret.objects.seal(here, SECRET, {"secret": said["secret"]})
    row.name, row.client_id = said["name"], said["client_id"]
    row.groups_claim, row.places = said["groups_claim"], said["groups"]
    row.domains, row.set_by, row.set_at = said["domains"], by, clock.now()
    row.save()
    if old is not None:
        old.delete()
    told = {"log_in": row.name, "issuer": row.issuer, "client": row.client_id,
            "groups": [f"{group} = {team}" for group, team in row.places],
            "domains": row.domains, "changed": form.changed_data}  # fmt: skip
    outbox.record(here, EventType.WORKSPACE_CHANGED, by=by, data=told)


def _end(row: LoginProvider) -> None:
    secret, row.secret, row.ended_at = row.secret, None, clock.now()
    row.save()
    if secret is not None:
        secret.delete()


@login_required
@require_POST
def end(request: Request, workspace: str) -> HttpResponse:
    here = workspace_to("administer", request, workspace)
    with transaction.atomic():
        if row := _set_for(here):
            _end(row)
            data = {"log_in": None, "was": {"log_in": row.name, "issuer": row.issuer}}
            outbox.record(here, EventType.WORKSPACE_CHANGED, by=request.user, data=data)
    messages.success(request, "Taken away. Who stands in teams by it stays there.")
    return redirect("company_login", workspace=here.slug)
