"""Log-in with a company's identity provider (OpenID Connect, by allauth), and who left it.

The provider says who somebody is and in which groups; the environment says which team each group is
(AMENDS_OIDC_TEAMS). Teams follow the groups at each log-in and every AMENDS_OIDC_LOOK_SECONDS: then
the provider is asked with the person's refresh token, which is kept sealed. Where it no longer
gives any, the person left: they are out of every team, their sessions end, and an approval that
rests on their word is void (approvals/grants.py), for that asks the teams.
"""

import logging
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import httpx
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialLogin, SocialToken
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models.functions import Now
from django.http import HttpRequest
from django.shortcuts import render

from workspaces import clock, directory, encryption, teams
from workspaces.models import Team, User

logger = logging.getLogger(__name__)

SECONDS_MAX = 10.0
PEOPLE_AT_ONCE_MAX = 50
"""Asked about in one turn of the job; the rest in the next."""
GROUPS_MAX = 1_000
JSON = "application/json"
GONE = {"invalid_grant"}
"""What a provider answers to a refresh token that it took back (RFC 6749, 5.2)."""


class Unsure(Exception):
    """We stopped because the provider said neither yes nor no; it is asked again."""


class Place(NamedTuple):
    """One group of the provider, and the team in which its people stand."""

    group: str
    workspace: str
    team: str


def places() -> list[Place]:
    """AMENDS_OIDC_TEAMS: `group=workspace/team`, divided by commas."""
    found = []
    for word in settings.OIDC_TEAMS:
        group, _, where = word.rpartition("=")
        workspace, _, team = where.partition("/")
        if not (group and workspace and team):
            raise ImproperlyConfigured(
                f"AMENDS_OIDC_TEAMS: {word!r} is not like group=workspace/team."
            )
        found.append(Place(group.strip(), workspace.strip(), team.strip()))
    return found


def groups_of(claims: Any) -> frozenset[str]:
    given = claims.get(settings.OIDC_GROUPS_CLAIM) if isinstance(claims, dict) else None
    listed = given if isinstance(given, list) else []
    return frozenset(one for one in listed[:GROUPS_MAX] if isinstance(one, str))


def teams_of(groups: Collection[str]) -> tuple[list[Team], list[Team]]:
    """The teams of these groups, and the others that the provider decides on."""
    theirs, others = {}, {}
    for place in places():
        team = Team.objects.filter(workspace__slug=place.workspace, name=place.team).first()
        if team is None:
            logger.warning("AMENDS_OIDC_TEAMS: %s has no team %s.", place.workspace, place.team)
        elif place.group in groups:
            theirs[team.pk] = team
        else:
            others[team.pk] = team
    return list(theirs.values()), [one for pk, one in others.items() if pk not in theirs]


@transaction.atomic
def follow(person: User, groups: Collection[str]) -> None:
    """Put the person into the teams of their groups, and out of the others that groups decide.
    Where a workspace's directory says that they left, no group puts them back.
    """
    wanted, unwanted = teams_of(groups)
    stands = set(person.groups.values_list("pk", flat=True))
    for team in wanted:
        if team.group_id not in stands and not directory.is_out(person, team.workspace):
            teams.add(team, person, by=None)
    for team in unwanted:
        if team.group_id in stands:
            directory.take_out(team, person)


def left(person: User) -> None:
    """Out of every team and every browser. A later log-in puts them back, by their groups."""
    for team in Team.objects.filter(group__user=person):
        directory.take_out(team, person)
    for session in UserSession.objects.filter(user=person):
        session.end()
    SocialToken.objects.filter(account__user=person).delete()


class CompanyAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth ships no types
    """Who stands in a group that has a team here gets in; others only where they were invited."""

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        if not any(one.verified for one in sociallogin.email_addresses):
            self._refuse(request, "Your company's log-in does not vouch for your address.")
        if not sociallogin.is_existing and not self.is_open_for_signup(request, sociallogin):
            self._refuse(request, "None of your groups has a team here, and nobody invited you.")
        seal(sociallogin.token)
        if sociallogin.is_existing:
            follow(sociallogin.user, groups_of(claims_of(sociallogin.account)))

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return bool(teams_of(groups_of(claims_of(sociallogin.account)))[0])

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def populate_user(self, request: HttpRequest, sociallogin: SocialLogin, data: Any) -> User:
        person: User = super().populate_user(request, sociallogin, data)
        person.name = str(data.get("name") or "")[:120]
        return person

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        person: User = super().save_user(request, sociallogin, form)
        follow(person, groups_of(claims_of(sociallogin.account)))
        return person

    @staticmethod
    def _refuse(request: HttpRequest, why: str) -> None:
        page = render(request, "socialaccount/refused.html", {"why": why}, status=403)
        raise ImmediateHttpResponse(page)


def claims_of(account: SocialAccount) -> Any:
    data = account.extra_data
    return data.get("userinfo") or data.get("id_token") or data


def seal(token: SocialToken | None) -> None:
    """Keep of the tokens only the one that asks again, and that sealed."""
    if token is None:
        return
    token.token = ""
    if token.token_secret:
        token.token_secret = encryption.seal(token.token_secret).decode()
    token.expires_at = clock.now() + timedelta(seconds=settings.OIDC_LOOK_SECONDS)


def look_again() -> int:
    """Ask the provider about everybody whose time it is; how many. The job `desk.who_left`."""
    if not settings.OIDC_URL:
        return 0
    with httpx.Client(timeout=SECONDS_MAX, follow_redirects=False) as client:
        due = list(claimed())
        endpoints = _document(client) if due else {}
        for token in due:
            try:
                ask_about(client, endpoints, token)
            except (Unsure, httpx.HTTPError, encryption.CannotOpen) as error:
                logger.warning("%s could not be asked about: %s", token.account.user, error)
    return len(due)


def claimed() -> Iterator[SocialToken]:
    """Each by one scheduler alone, for a provider may take a refresh token once."""
    due = SocialToken.objects.exclude(token_secret="").filter(expires_at__lte=Now())
    for token in due.select_related("account__user").order_by("expires_at")[:PEOPLE_AT_ONCE_MAX]:
        later = clock.now() + timedelta(seconds=settings.OIDC_LOOK_SECONDS)
        same = SocialToken.objects.filter(pk=token.pk, expires_at=token.expires_at)
        if same.update(expires_at=later):
            yield token


def _document(client: httpx.Client) -> dict[str, Any]:
    answer = client.get(f"{settings.OIDC_URL}/.well-known/openid-configuration")
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def ask_about(client: httpx.Client, endpoints: dict[str, Any], token: SocialToken) -> None:
    person: User = token.account.user
    asked = client.post(
        endpoints["token_endpoint"],
        data={
            "grant_type": "refresh_token",
            "refresh_token": encryption.open_sealed(token.token_secret.encode()),
        },
        auth=(settings.OIDC_CLIENT_ID, settings.OIDC_SECRET),
    )
    said = asked.json() if asked.headers.get("content-type", "").startswith(JSON) else {}
    if asked.status_code == httpx.codes.BAD_REQUEST and said.get("error") in GONE:
        left(person)
        logger.warning("%s left: the identity provider took their log-in back.", person)
        return
    if not asked.is_success or "access_token" not in said:
        raise Unsure(f"the provider answered {asked.status_code} {said.get('error', '')}")
    if renewed := said.get("refresh_token"):
        token.token_secret = encryption.seal(renewed).decode()
        SocialToken.objects.filter(pk=token.pk).update(token_secret=token.token_secret)
    bearer = {"authorization": f"Bearer {said['access_token']}"}
    claims = client.get(endpoints["userinfo_endpoint"], headers=bearer)
    claims.raise_for_status()
    follow(person, groups_of(claims.json()))
