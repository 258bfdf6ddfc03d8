"""Who left the company is out of the desk, and nobody else: by an identity provider that answers as
it is told to.
"""

import json
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from unittest.mock import Mock
from urllib.parse import parse_qs

import pytest
import requests
from allauth.account.models import EmailAddress
from allauth.core import context
from allauth.socialaccount.internal.flows.login import pre_social_login
from allauth.socialaccount.models import SocialAccount, SocialLogin, SocialToken
from cryptography.fernet import Fernet
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.core.management import call_command
from django.db.models.functions import Now
from django.test import RequestFactory

from config import providers, sealed, single_sign_on
from tests.people import acme, ada, ben, cleo, globex, leads, operators, team
from tests.ports import answering
from workspaces import encryption, entrance, teams
from workspaces.models import User

__all__ = ["acme", "ada", "ben", "cleo", "globex", "leads", "operators"]
pytestmark = pytest.mark.django_db(transaction=True)


class Provider:
    """`says` of a refresh token: a status and a body; what was asked is kept."""

    url: str

    def __init__(self):
        self.says, self.asked, self.groups = {}, [], ["deciders"]
        self.drips_token_seconds = 0.0

    def handler(provider):  # noqa: N805 - the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path.startswith("/.well-known"):
                    self.tell(200, {"token_endpoint": f"{provider.url}/token",
                                    "userinfo_endpoint": f"{provider.url}/userinfo"})  # fmt: skip
                else:
                    self.tell(200, {"groups": provider.groups})

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                token = parse_qs(body)["refresh_token"][0]
                provider.asked.append(token)
                answer = provider.says.get(token, (200, {"access_token": "short"}))
                self.tell(*answer, drips_seconds=provider.drips_token_seconds)

            def tell(self, status, body, *, drips_seconds=0.0):
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                step = 1 if drips_seconds else len(content)
                for at in range(0, len(content), step):
                    self.wfile.write(content[at : at + step])
                    time.sleep(drips_seconds)

        return Handler


@pytest.fixture
def provider(settings):
    found = Provider()
    settings.OIDC_TEAMS = ["deciders=acme/leads", "bosses=acme/leads", "on-call=acme/operators"]
    with answering(found.handler()) as found.url:
        settings.OIDC_URL = found.url
        yield found


# By the database's own clock, which may be a little behind what this process takes it for.
A_MOMENT_AGO = Now() - timedelta(seconds=1)


def came(person, token):
    """Somebody who logged in by the provider, and is asked about now."""
    account = SocialAccount.objects.create(user=person, provider="company", uid=person.email)
    return SocialToken.objects.create(
        account=account, token_secret=encryption.seal(token).decode(), expires_at=A_MOMENT_AGO
    )


def comes_again(person, *, token=""):
    """A later log-in, with a new refresh token or none; what is kept of it then."""
    request = RequestFactory().get("/accounts/oidc/company/login/callback/")
    request.user, request.session = AnonymousUser(), SessionStore()
    account = SocialAccount(provider="company", uid=person.email)
    account.extra_data = {"groups": ["deciders"]}
    proven = EmailAddress(email=person.email, verified=True)
    came = SocialLogin(user=User(), account=account, email_addresses=[proven])
    came.token, came.state = SocialToken(token="short", token_secret=token), {"process": "login"}
    with context.request_context(request):
        pre_social_login(request, came)
    kept = SocialToken.objects.get()
    assert kept.token == ""
    return kept.token_secret


def due():
    SocialToken.objects.update(expires_at=A_MOMENT_AGO)


def teams_of(person):
    return set(person.groups.values_list("team__name", flat=True))


@pytest.mark.parametrize(
    "answer",
    [(400, {"error": "invalid_client"}), (401, {"error": "invalid_grant"}), (500, {}),
     (503, {"error": "temporarily_unavailable"}), (200, {"no": "token"}), (400, ["invalid_grant"]),
     (400, {"error": []}), (200, b"[" * 200_000), (200, {"access_token": "€"})],
)  # fmt: skip
def test_a_provider_that_is_unwell_throws_nobody_out(provider, cleo, answer):
    came(cleo, "t1")
    provider.says["t1"] = answer

    assert single_sign_on.look_again() == 1

    assert (provider.asked, teams_of(cleo)) == (["t1"], {"leads"})
    assert SocialToken.objects.exists(), "she is asked about again"
    due()
    provider.says["t1"] = (400, {"error": "invalid_grant"})
    single_sign_on.look_again()
    assert (teams_of(cleo), SocialToken.objects.exists()) == (set(), False)


def test_an_answer_that_drips_in_holds_up_nobody_and_is_asked_for_again(
    provider, cleo, monkeypatch
):
    """Each byte came within the time that there is for one; the job, or a log-in, waited on."""
    came(cleo, "t1")
    provider.says["t1"] = (400, {"error": "invalid_grant"})
    provider.drips_token_seconds = 0.2
    monkeypatch.setattr(providers, "SECONDS_MAX", 2.0)

    assert single_sign_on.look_again() == 1

    assert (provider.asked, teams_of(cleo)) == (["t1"], {"leads"})


def test_where_no_thread_is_given_nobody_is_thrown_out_and_none_of_the_places_is_lost(
    provider, cleo, monkeypatch
):
    came(cleo, "t1")
    with monkeypatch.context() as full:
        full.setattr(providers, "lend", Mock(side_effect=RuntimeError("can't start new thread")))
        for _ in range(providers.UNDER_WAY_MAX):
            with pytest.raises(requests.ConnectionError):
                providers.in_time(requests.Session()).get(provider.url)
    provider.says["t1"] = (400, {"error": "invalid_grant"})
    monkeypatch.setattr(providers, "SECONDS_MAX", 2.0)

    single_sign_on.look_again()

    assert (provider.asked, teams_of(cleo)) == (["t1"], set())


def test_who_left_is_not_let_in_again_by_a_link_of_before(provider, acme, ada, cleo):
    came(cleo, "t1")
    teams.add(team(acme, "admins", "view", "administer"), ada, by=None)
    link = entrance.invite(acme, cleo.email, [team(acme, "late", "view")], by=ada)
    provider.says["t1"] = (400, {"error": "invalid_grant"})

    single_sign_on.look_again()

    with pytest.raises(entrance.LinkIsOver):
        entrance.accept(link, by=cleo)
    assert teams_of(cleo) == set()


def test_what_is_no_answer_keeps_nobody_waiting_who_left(provider, ada, cleo):
    """The answers of a provider that another workspace has set are as they please."""
    came(ada, "t1")
    came(cleo, "t2")
    provider.says = {"t1": (200, ["no answer"]), "t2": (400, {"error": "invalid_grant"})}

    assert single_sign_on.look_again() == 2

    assert teams_of(cleo) == set()


def test_a_provider_that_takes_its_time_has_so_much_of_a_turn_and_no_more(
    provider, ada, cleo, monkeypatch
):
    monkeypatch.setattr(single_sign_on, "SECONDS_A_TURN", 0.0)
    came(ada, "t1")
    came(cleo, "t2")

    assert single_sign_on.look_again() == 1
    assert single_sign_on.look_again() == 1

    assert provider.asked == ["t1", "t2"], "who had no turn is the first of the next"
    assert single_sign_on.look_again() == 0


def test_whoever_waits_for_one_provider_keeps_nobody_of_another_from_their_turn(
    provider, ada, ben, cleo, monkeypatch
):
    """Of a silent one as many may wait as are asked about in a turn."""
    monkeypatch.setattr(single_sign_on, "PEOPLE_AT_ONCE_MAX", 2)
    for person in (ada, ben, cleo):
        came(person, person.name)
    SocialAccount.objects.filter(user=cleo).update(provider="another")
    SocialToken.objects.filter(account__user=cleo).update(expires_at=Now())

    assert [token.account.user for token in single_sign_on.due()] == [ada, cleo]


def test_a_token_that_is_given_anew_is_the_one_that_asks_next(provider, cleo):
    """The former one is used up: the provider would take it for a sign that it was stolen."""
    came(cleo, "the first token")
    anew = {"access_token": "short", "refresh_token": "the second token"}
    provider.says["the first token"] = (200, anew)
    single_sign_on.look_again()
    assert single_sign_on.look_again() == 0, "it is not her time yet"
    due()

    single_sign_on.look_again()

    assert provider.asked == ["the first token", "the second token"]
    assert "the second token" not in SocialToken.objects.get().token_secret


def test_what_an_older_version_left_in_clear_is_sealed_and_who_left_is_noticed_again(
    provider, cleo
):
    token = came(cleo, "t1")
    SocialToken.objects.update(token="short", token_secret="t1", expires_at=None)

    single_sign_on.seal_what_lies_open()

    token.refresh_from_db()
    assert (token.token, encryption.open_sealed(token.token_secret.encode())) == ("", "t1")
    single_sign_on.seal_what_lies_open()  # by each upgrade
    due()
    provider.says["t1"] = (400, {"error": "invalid_grant"})
    single_sign_on.look_again()
    assert (provider.asked, teams_of(cleo)) == (["t1"], set())


def test_whom_a_later_log_in_gives_no_new_token_is_asked_about_by_the_former(provider, cleo):
    """Sealed once more it was none that the provider knew, and she was out of all her teams."""
    token = came(cleo, "t1")
    provider.says = {token.token_secret: (400, {"error": "invalid_grant"})}

    comes_again(cleo)

    due()
    single_sign_on.look_again()
    twice = encryption.seal(SocialToken.objects.get().token_secret).decode()
    SocialToken.objects.update(token_secret=twice)  # as an older version left it
    due()
    single_sign_on.look_again()
    assert (provider.asked, teams_of(cleo)) == (["t1", "t1"], {"leads"})


def test_a_log_in_while_the_provider_is_asked_about_the_former_token_stands(provider, cleo):
    """The log-in ended that token: she was taken for somebody who left, or the new one was lost."""
    before = came(cleo, "t1")
    SocialToken.objects.update(token_secret=encryption.seal("t2").decode())
    asked, anew = single_sign_on._asked("company"), {"access_token": "a", "refresh_token": "t3"}
    for said in (
        (400, {"error": "invalid_grant"}),
        (200, anew),
    ):
        provider.says["t1"] = said

        single_sign_on.ask_about(asked, before)

        kept = encryption.open_sealed(SocialToken.objects.get().token_secret.encode())
        assert (kept, teams_of(cleo)) == ("t2", {"leads"})


def test_a_token_whose_key_is_lost_is_let_go_and_never_sent_as_it_lies(provider, cleo, settings):
    token = came(cleo, "t1")
    settings.AMENDS_SECRET_KEYS = [Fernet.generate_key().decode()]
    provider.says = {token.token_secret: (400, {"error": "invalid_grant"})}

    call_command("replace_lost_keys")
    assert comes_again(cleo) == token.token_secret, "it was only looked at"
    due()
    assert (single_sign_on.look_again(), provider.asked) == (1, [])
    lost = sealed.lost_log_ins()
    call_command("replace_lost_keys", for_good=True)

    assert comes_again(cleo) == ""
    due()
    assert (single_sign_on.look_again(), provider.asked) == (0, [])
    assert teams_of(cleo) == {"leads"}

    anew = comes_again(cleo, token="t2")  # while the lost ones are looked for
    sealed.let_go(lost)
    assert SocialToken.objects.get().token_secret == anew
    due()
    assert (single_sign_on.look_again(), provider.asked) == (1, ["t2"])


def test_of_two_schedulers_one_asks_about_somebody(provider, ada, cleo):
    came(ada, "t1")
    came(cleo, "t2")
    one, other = list(single_sign_on.due()), list(single_sign_on.due())

    mine = [single_sign_on.claim(one[0])]
    theirs = [single_sign_on.claim(token) for token in other]
    mine += [single_sign_on.claim(one[1])]

    assert (mine, theirs) == ([True, False], [False, True])


@pytest.fixture
def namesake(globex):
    return team(globex, "operators", "approve")


def test_the_groups_of_one_workspace_are_no_teams_of_another(namesake, provider, ada, cleo):
    provider.groups = ["deciders", "on-call"]
    came(cleo, "t1")

    for _ in range(2):  # a second look changes nothing: one of the two groups of a team is enough
        due()
        single_sign_on.look_again()
        assert teams_of(cleo) == {"leads", "operators"}
    assert not namesake.group.user_set.exists()


def test_the_last_who_may_administer_stays_when_the_provider_lets_them_go(provider, acme, ada):
    teams.add(team(acme, "bosses", "administer"), ada, by=None)
    came(ada, "t1")
    provider.says["t1"] = (400, {"error": "invalid_grant"})

    single_sign_on.look_again()

    assert teams_of(ada) == {"bosses"}
