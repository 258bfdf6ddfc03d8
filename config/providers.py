"""Identity providers (OpenID Connect): the desk's own, which the environment names and which holds
for every workspace, or where there is none each workspace's, which an administrator has set.

What an administrator sets is believed less than what stands in the environment: its servers are
reached as a connector's are (connectors/outbound.py), it proves no address, opens no account that
it did not make, and none that works in another workspace as well.
"""

import io
import queue
import threading
from functools import partial
from typing import Any, NamedTuple

import httpx
import requests
from allauth.socialaccount.models import SocialApp
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from requests.adapters import BaseAdapter, HTTPAdapter

from connectors.call_pool import lend
from connectors.outbound import AnswerTooLarge, Deadline, Outbound, OutOfTime, Refused
from workspaces import encryption
from workspaces.models import LoginProvider, User, Workspace

COMPANY = "company"
"""The id of the environment's."""
SECONDS_MAX = 10.0
KIND = "openid_connect"
WELL_KNOWN = "/.well-known/openid-configuration"


class GroupMapping(NamedTuple):
    """One group of the provider, and the team in which its people stand."""

    group: str
    workspace: str
    team: str


class Provider(NamedTuple):
    """Who says who somebody is. `workspace` and `set_by` are of one that a workspace has set."""

    provider_id: str
    url: str
    client_id: str
    secret: str
    groups_claim: str
    places: list[GroupMapping]
    domains: tuple[str, ...] = ()
    workspace: Workspace | None = None
    set_by: User | None = None

    def lets_in(self, address: str) -> bool:
        return not self.domains or address.rpartition("@")[2].lower() in self.domains


def places() -> list[GroupMapping]:
    """AMENDS_OIDC_TEAMS: `group=workspace/team`, divided by commas."""
    found = []
    for word in settings.OIDC_TEAMS:
        group, _, where = word.rpartition("=")
        workspace, _, team = where.partition("/")
        if not (group and workspace and team):
            raise ImproperlyConfigured(
                f"AMENDS_OIDC_TEAMS: {word!r} is not like group=workspace/team."
            )
        found.append(GroupMapping(group.strip(), workspace.strip(), team.strip()))
    return found


def provider_of(provider_id: str) -> Provider | None:
    """Who has this id now; None where the environment names another, or it was taken away."""
    if settings.OIDC_URL:
        if provider_id != COMPANY:
            return None
        return Provider(
            COMPANY, settings.OIDC_URL, settings.OIDC_CLIENT_ID, settings.OIDC_SECRET,
            settings.OIDC_GROUPS_CLAIM, places(),
        )  # fmt: skip
    row = LoginProvider.objects.select_related("workspace", "secret", "set_by").filter(
        provider_id=provider_id, ended_at=None
    )
    return _of_row(found) if (found := row.first()) else None


def _of_row(row: LoginProvider) -> Provider:
    """Raises `encryption.CannotOpen`."""
    here = row.workspace
    return Provider(
        row.provider_id, row.issuer, row.client_id,
        str(row.secret.open()["secret"]) if row.secret else "", row.groups_claim,
        [GroupMapping(group, here.slug, team) for group, team in row.places],
        tuple(row.domains), here, row.set_by,
    )  # fmt: skip


def app_of(provider: Provider) -> SocialApp:
    """As allauth knows it; it is in no table of theirs, where a secret would stand open."""
    return SocialApp(
        provider=KIND,
        provider_id=provider.provider_id,
        name=str(provider.workspace),
        client_id=provider.client_id,
        secret=provider.secret,
        settings={"server_url": provider.url, "email_authentication": False},
    )


# The way to a provider.


NOT_ANSWERED = (Refused, AnswerTooLarge, OutOfTime, httpx.HTTPError)


class _Guarded(BaseAdapter):
    """Each request goes as a connector's does: to public addresses alone, over TLS, in bounds."""

    def send(self, request: Any, *args: Any, **kwargs: Any) -> requests.Response:
        content = request.body or b""
        try:
            came = Outbound(Deadline(SECONDS_MAX)).request(
                request.method,
                request.url,
                headers=dict(request.headers),
                content=content.encode() if isinstance(content, str) else content,
            )
        except NOT_ANSWERED as failure:
            raise requests.ConnectionError(str(failure)) from failure
        answer = requests.Response()
        answer.status_code, answer.url, answer.request = came.status, request.url, request
        answer.headers.update(came.headers)
        answer.raw = io.BytesIO(came.body)
        return answer

    def close(self) -> None:
        """Nothing is kept."""


def guarded_session() -> requests.Session:
    """For a provider that somebody has set on a page; it follows no redirect."""
    session = requests.Session()
    session.trust_env, session.max_redirects = False, 0
    for scheme in ("https://", "http://"):
        session.mount(scheme, _Guarded())
    return session


UNDER_WAY_MAX = 16
"""Questions to the environment's provider that may be under way in one process, left behind or
not: each has a thread."""
_under_way = threading.BoundedSemaphore(UNDER_WAY_MAX)


class _InTime(HTTPAdapter):
    """Each request goes as the system has it (proxies, authorities) and is left behind where the
    whole answer is not here in time: the limit of `requests` is for each piece of it, and for no
    name server, so a provider that answers a byte a second held a thread of the web for ever.
    """

    def send(self, request: Any, *args: Any, **kwargs: Any) -> requests.Response:
        if not _under_way.acquire(timeout=SECONDS_MAX):
            raise requests.Timeout("Too many questions to it are without an answer.")
        came: queue.SimpleQueue[requests.Response | BaseException] = queue.SimpleQueue()
        try:
            lend(partial(self._ask, came, request, args, kwargs))
            answer = came.get(timeout=SECONDS_MAX)
        except RuntimeError:  # the system gives no more threads
            _under_way.release()
            raise requests.ConnectionError("There is no thread to ask it in.") from None
        except queue.Empty:
            raise requests.Timeout(f"No whole answer within {SECONDS_MAX:g} seconds.") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _ask(self, came: Any, request: Any, args: Any, kwargs: Any) -> None:
        try:
            answer = super().send(request, *args, **kwargs)
            _ = answer.content  # it is read here, and kept
        except BaseException as failure:  # noqa: BLE001 - handed to whoever waits for it
            came.put(failure)
        else:
            came.put(answer)
        finally:
            _under_way.release()


def in_time(session: requests.Session) -> requests.Session:
    """For the provider that the environment names."""
    for scheme in ("https://", "http://"):
        session.mount(scheme, _InTime())
    return session


class NoProvider(Exception):
    """We stopped because what is there is no provider that people could log in at; it says why."""


def looked_at(issuer: str) -> list[str]:
    """Fetch the discovery document; what it says, in words. Raises NoProvider."""
    try:
        with guarded_session() as session:
            answer = session.get(f"{issuer}{WELL_KNOWN}")
        answer.raise_for_status()
        said = answer.json()
    except requests.JSONDecodeError as wrong:
        raise NoProvider(f"{issuer}{WELL_KNOWN} is no discovery document.") from wrong
    except (requests.RequestException, ValueError) as wrong:
        raise NoProvider(f"{issuer} does not answer as a provider: {wrong}") from wrong
    if not isinstance(said, dict):
        raise NoProvider(f"{issuer}{WELL_KNOWN} is no discovery document.")
    if str(said.get("issuer", "")).rstrip("/") != issuer:
        raise NoProvider(f"Who answers there calls itself {str(said.get('issuer'))[:200]}.")
    needed = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint")
    if lacking := [name for name in needed if not isinstance(said.get(name), str)]:
        raise NoProvider(f"Its discovery document names no {', no '.join(lacking)}.")
    scopes = said.get("scopes_supported")
    refreshes = not isinstance(scopes, list) or "offline_access" in scopes
    return [
        f"{issuer} answers, and calls itself so.",
        f"People log in at {said['authorization_endpoint'][:200]}.",
        "It gives refresh tokens, so that who leaves is out within a minute."
        if refreshes
        else "It does not say that it gives refresh tokens (offline_access): teams follow at each"
        " log-in alone.",
    ]


def is_openable(row: LoginProvider) -> bool:
    """Whether a key of the desk opens its secret."""
    try:
        return row.secret is not None and bool(row.secret.open())
    except encryption.CannotOpen:
        return False
