"""Log-in with a company's identity provider (OpenID Connect, by allauth), and who left it.

The provider says who somebody is and in which groups; the environment (AMENDS_OIDC_TEAMS) or an
administrator of a workspace (config/providers.py) says which team each group is. Teams follow the
groups at each log-in and every AMENDS_OIDC_LOOK_SECONDS: then
the provider is asked with the person's refresh token, which is kept sealed. Where it no longer
gives any, the person left: they are out of every team, their sessions end, and an approval that
rests on their word is void (approvals/grants.py), for that asks the teams.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Collection
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

import requests
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialLogin, SocialToken
from allauth.socialaccount.signals import social_account_updated
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet, Window
from django.db.models.functions import Now, RowNumber
from django.dispatch import receiver
from django.http import HttpRequest
from django.shortcuts import render

from config.providers import (
    SECONDS_MAX,
    WELL_KNOWN,
    Provider,
    app_of,
    guarded_session,
    in_time,
    provider_of,
)
from workspaces import clock, directory, encryption, entrance, independence, teams
from workspaces.access import workspaces_of
from workspaces.models import Invitation, Team, User, Workspace
from workspaces.periodic import each
from workspaces.views.entrance import choose_with, invited_with

logger = logging.getLogger(__name__)

BOUNDS: dict[str, Any] = {"timeout": SECONDS_MAX, "allow_redirects": False}
PEOPLE_AT_ONCE_MAX = 50
"""Asked about in one turn of the job; the rest in the next."""
SECONDS_A_TURN = 2 * SECONDS_MAX
"""For one provider: where it is silent, fifty people would take minutes, and others wait."""
GROUPS_MAX = 1_000
OUTSIDE = (
    "You work outside {here}, too: log in with your password. If you have none, ask an"
    " administrator of your other workspace to invite you once more: open that link, then log in"
    " here again, in the same browser, and choose one."
)
JSON = "application/json"
GONE = {"invalid_grant"}
"""What a provider answers to a refresh token that it took back (RFC 6749, 5.2)."""


class ProviderUndecided(Exception):
    """We stopped because the provider said neither yes nor no; it is asked again."""


def groups_of(provider: Provider, claims: Any) -> frozenset[str]:
    given = claims.get(provider.groups_claim) if isinstance(claims, dict) else None
    listed = given if isinstance(given, list) else []
    return frozenset(one for one in listed[:GROUPS_MAX] if isinstance(one, str))


def teams_of(provider: Provider, groups: Collection[str]) -> tuple[list[Team], list[Team]]:
    """The teams of these groups, and the others that the provider decides on."""
    theirs, others = {}, {}
    for place in provider.places:
        team = Team.objects.filter(workspace__slug=place.workspace, name=place.team).first()
        if team is None:
            logger.warning("log-in groups: %s has no team %s.", place.workspace, place.team)
        elif place.group in groups:
            theirs[team.pk] = team
        else:
            others[team.pk] = team
    return list(theirs.values()), [one for pk, one in others.items() if pk not in theirs]


@transaction.atomic
def follow(provider: Provider, person: User, groups: Collection[str]) -> None:
    """Put the person into the teams of their groups, and out of the others that groups decide.
    Where a workspace's directory says that they left, no group puts them back. Whoever has set the
    provider for a workspace has brought them in there (workspaces/independence.py).
    """
    wanted, unwanted = teams_of(provider, groups)
    stands = set(person.groups.values_list("pk", flat=True))
    for team in wanted:
        if team.group_id not in stands and not directory.is_out(person, team.workspace):
            teams.add(team, person, by=provider.set_by)
    for team in unwanted:
        if team.group_id in stands:
            directory.take_out(team, person)


def left(provider: Provider, person: User) -> None:
    """Out of every team and every browser, and no link of before lets them in. A later log-in puts
    them back, by their groups.
    """
    SocialToken.objects.filter(account__user=person).delete()
    if provider.workspace is not None:
        directory.put_out(provider.workspace, person)
        return
    for team in Team.objects.filter(group__user=person):
        directory.take_out(team, person)
    directory.withdraw_links(Invitation.objects.all(), person)
    teams.end_sessions(person)


class CompanyAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth ships no types
    """Who stands in a group that has a team here gets in; others only where they were invited."""

    def list_apps(self, request: HttpRequest, provider: Any = None, client_id: Any = None) -> Any:
        """With those of workspaces, each by its own id: the log-in page does not list them, for it
        is shown to strangers.
        """
        apps = super().list_apps(request, provider, client_id)
        known = provider_of(str(provider)) if provider and not apps else None
        return [app_of(known)] if known and known.workspace else apps

    def get_requests_session(self) -> requests.Session:
        session: requests.Session = super().get_requests_session()
        return in_time(session) if settings.OIDC_URL else guarded_session()

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        if not sociallogin.account.pk:  # else it is kept already (`seal_what_comes`)
            seal(sociallogin.token)
        provider = self._provider(request, sociallogin)
        if not any(one.verified for one in sociallogin.email_addresses):
            self._refuse(request, "Your company's log-in does not vouch for your address.")
        if sociallogin.state.get("process") == "connect":
            self._connects_what_is_proven(request)
        if provider.workspace is not None:
            self._believe_less(request, sociallogin, provider, provider.workspace)
        if not sociallogin.is_existing and not self.is_open_for_signup(request, sociallogin):
            self._refuse(request, "None of your groups has a team here, and nobody invited you.")
        if sociallogin.is_existing:
            groups = groups_of(provider, claims_of(sociallogin.account))
            follow(provider, sociallogin.user, groups)

    def _connects_what_is_proven(self, request: HttpRequest) -> None:
        """As a further address is: else who made an account under somebody's address kept a way in
        (config/accounts.py).
        """
        person = request.user
        if isinstance(person, User) and not independence.is_proven(person):
            self._refuse(request, "Prove first that the address of your account is yours.")

    def _believe_less(
        self, request: HttpRequest, sociallogin: SocialLogin, provider: Provider, here: Workspace
    ) -> None:
        """What an administrator of one workspace has set opens nothing of anybody else's."""
        if sociallogin.state.get("process") != "login":
            self._refuse(request, "An account cannot be connected with a workspace's own log-in.")
        addresses = [one.email for one in sociallogin.email_addresses]
        if not all(map(provider.lets_in, addresses)):
            self._refuse(request, f"{here} takes nobody with an address like yours.")
        for one in sociallogin.email_addresses:
            one.verified = False
        if sociallogin.is_existing:
            self._comes_from_here_alone(request, sociallogin, here)
        elif any(User.objects.filter(email__iexact=one).exists() for one in addresses):
            self._refuse(request, "There is an account with your address here: log in to that one.")

    def _comes_from_here_alone(
        self, request: HttpRequest, sociallogin: SocialLogin, here: Workspace
    ) -> None:
        """Who works in another workspace, too, and has no password, is not let in, but may choose
        one: with a new invitation of that workspace. Neither company can do so by itself.
        """
        person: User = sociallogin.user
        elsewhere = workspaces_of(person).exclude(pk=here.pk)
        if not elsewhere.exists():
            return
        link = invited_with(request)
        other = entrance.joins_with(link, person)
        is_all = other is not None and not elsewhere.exclude(pk=other.pk).exists()
        if person.has_usable_password() or not is_all:
            self._refuse(request, OUTSIDE.format(here=here))
        raise ImmediateHttpResponse(choose_with(request, person, link))

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        provider = self._provider(request, sociallogin)
        return bool(teams_of(provider, groups_of(provider, claims_of(sociallogin.account)))[0])

    def _provider(self, request: HttpRequest, sociallogin: SocialLogin) -> Provider:
        found = provider_of(sociallogin.account.provider)
        if found is None:
            self._refuse(request, "This log-in was taken away.")
        return found

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def populate_user(self, request: HttpRequest, sociallogin: SocialLogin, data: Any) -> User:
        person: User = super().populate_user(request, sociallogin, data)
        person.name = str(data.get("name") or "")[:120]
        return person

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        person: User = super().save_user(request, sociallogin, form)
        provider = self._provider(request, sociallogin)
        follow(provider, person, groups_of(provider, claims_of(sociallogin.account)))
        return person

    @staticmethod
    def _refuse(request: HttpRequest, why: str) -> NoReturn:
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
        token.token_secret = encryption.seal(_opened(token.token_secret)).decode()
    token.expires_at = clock.now() + timedelta(seconds=settings.OIDC_LOOK_SECONDS)


@receiver(social_account_updated)
def seal_what_comes(sociallogin: SocialLogin, **_: Any) -> None:
    """Of somebody whose account was here before, ahead of allauth's writing it down. Where no new
    one comes the former one stays as it lies: sealed anew while its key is lost it would be sent so
    to the provider, who knows none such, and its person be taken for one who left.
    """
    seal(sociallogin.token)


def _opened(secret: str) -> str:
    """In clear, however often it was sealed: whom a provider gives no new token at a later log-in
    keeps the former one, and up to 30 November 2026 that was sealed once more.
    """
    try:
        return _opened(encryption.open_sealed(secret.encode()))
    except encryption.CannotOpen:
        return secret


def seal_what_lies_open() -> None:
    """At an upgrade: up to 26 November 2026 a second log-in left its tokens as they came, and whose
    they are was asked about no more. Sealed, they are asked about again.
    """
    for token in SocialToken.objects.exclude(token="").iterator():
        seal(token)
        token.save()


def look_again() -> int:
    """Ask the providers about everybody whose time it is; how many. The job `desk.who_left`.

    What one of them answers, and how long it takes, keeps nobody waiting of whom another tells; of
    its own people whom it leaves no time for, it is asked about first in the next turn.
    """
    known = dict[str, "ProviderSession | None"]()
    spent: defaultdict[str, float] = defaultdict(float)

    def ask(token: SocialToken) -> int:
        who, begun = token.account.provider, time.monotonic()
        if spent[who] > SECONDS_A_TURN or not claim(token):
            return 0
        try:
            if who not in known:
                known[who] = None  # one that does not answer is asked once in a turn
                known[who] = _asked(who)
            if asked := known[who]:
                ask_about(asked, token)
        except (
            ProviderUndecided,
            requests.RequestException,
            encryption.CannotOpen,
            KeyError,
            ValueError,
            RecursionError,
        ) as error:
            logger.warning("%s could not be asked about: %s", token.account.user, error)
        spent[who] += time.monotonic() - begun
        return 1

    return each(due(), ask)


class ProviderSession(NamedTuple):
    """A provider, the way to it, and what it says of itself."""

    provider: Provider
    session: requests.Session
    endpoints: dict[str, Any]


def _asked(provider_id: str) -> "ProviderSession | None":
    provider = provider_of(provider_id)
    if provider is None:
        return None
    session = guarded_session() if provider.workspace else in_time(requests.Session())
    answer = session.get(f"{provider.url}{WELL_KNOWN}", **BOUNDS)
    answer.raise_for_status()
    said = answer.json()
    if not isinstance(said, dict):
        raise ProviderUndecided("its discovery document is none")
    return ProviderSession(provider, session, said)


def due() -> QuerySet[SocialToken]:
    """Whose time it is: of each provider who has waited longest, then of each the second."""
    of_one = Window(RowNumber(), partition_by="account__provider", order_by="expires_at")
    waiting = SocialToken.objects.exclude(token_secret="").filter(expires_at__lte=Now())
    in_turn = waiting.annotate(place=of_one).order_by("place", "expires_at")
    found: QuerySet[SocialToken] = in_turn.select_related("account__user")[:PEOPLE_AT_ONCE_MAX]
    return found


def claim(token: SocialToken) -> bool:
    """Each by one scheduler alone, for a provider may take a refresh token once."""
    later = clock.now() + timedelta(seconds=settings.OIDC_LOOK_SECONDS)
    same = SocialToken.objects.filter(pk=token.pk, expires_at=token.expires_at)
    return bool(same.update(expires_at=later))


def _kept(token: SocialToken, refresh: str) -> str:
    """`refresh` as it is sealed now; nothing where a log-in has put another in its place."""
    found = SocialToken.objects.filter(pk=token.pk).values_list("token_secret", flat=True)
    sealed: str = found.first() or ""
    return sealed if _opened(sealed) == refresh else ""


def ask_about(asked: ProviderSession, token: SocialToken) -> None:
    person: User = token.account.user
    provider, session, endpoints = asked
    refresh = _opened(encryption.open_sealed(token.token_secret.encode()))
    answer = session.post(
        endpoints["token_endpoint"],
        data={"grant_type": "refresh_token", "refresh_token": refresh},
        auth=(provider.client_id, provider.secret),
        **BOUNDS,
    )
    said = answer.json() if answer.headers.get("content-type", "").startswith(JSON) else {}
    said = said if isinstance(said, dict) else {}
    error = str(said.get("error", ""))
    if answer.status_code == requests.codes.bad_request and error in GONE:
        if not _kept(token, refresh):
            return  # they have logged in meanwhile, which ended the former token
        left(provider, person)
        logger.warning("%s left: the identity provider took their log-in back.", person)
        return
    if not answer.ok or "access_token" not in said:
        raise ProviderUndecided(f"the provider answered {answer.status_code} {error}")
    if isinstance(renewed := said.get("refresh_token"), str) and renewed:
        same = SocialToken.objects.filter(pk=token.pk, token_secret=_kept(token, refresh))
        same.update(token_secret=encryption.seal(renewed).decode())
    bearer = {"authorization": f"Bearer {said['access_token']}"}
    claims = session.get(endpoints["userinfo_endpoint"], headers=bearer, **BOUNDS)
    claims.raise_for_status()
    follow(provider, person, groups_of(provider, claims.json()))
