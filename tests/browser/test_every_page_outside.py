"""Every page outside of a workspace is for everybody, too: who comes, their account, their links.

The walk goes over the same list as that of roles: a page that is neither looked at nor said to be
none fails.
"""

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import (
    TOTP,
    format_hotp_value,
    generate_totp_secret,
    hotp_value,
    yield_hotp_counters_from_time,
)
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin
from django.conf import settings
from django.test import Client, RequestFactory
from django.utils import timezone
from playwright.sync_api import Page, expect

from approvals import consent_requests, notifications
from config.providers import KIND
from recovery import corrections
from recovery.corrections import contesting
from recovery.models import Contest, Correction
from tests.approvals.security_key import SecurityKey
from tests.browser.conftest import Visit
from tests.browser.test_every_page import look
from tests.people import person
from tests.recovery.cases import test_disclosure, test_roles_outside
from tests.recovery.cases.test_roles_outside import BY_ROUTE
from workspaces import client_packages
from workspaces.models import LoginProvider, Team, User, Workspace

finance, known, links = test_disclosure.finance, test_disclosure.known, test_roles_outside.links

STRANGERS = {
    "accounts/login/": 200, "accounts/signup/": 200, "accounts/password/reset/": 200,
    "accounts/password/reset/done/": 200, "accounts/password/reset/key/done/": 200,
    "accounts/confirm-email/": 200, "accounts/inactive/": 200,
    "accounts/3rdparty/login/cancelled/": 200, "accounts/3rdparty/login/error/": 401,
    "accounts/password/reset/key/1-x/": 200, "accounts/confirm-email/nothing/": 200,
    "setup/nothing/": 410, "join/nothing/": 410, "ask/nothing/": 404, "c/nothing/": 404,
    "summary/stop/nothing/": 404, "no-such-page/": 404,
}  # fmt: skip
SETTING_UP = "accounts/2fa/totp/activate/"
OWN = (
    "address/", "accounts/logout/", "accounts/reauthenticate/", "accounts/email/",
    "accounts/sessions/", "accounts/3rdparty/", "accounts/password/change/", "accounts/2fa/",
    "accounts/2fa/webauthn/", "accounts/2fa/webauthn/add/",
    "accounts/2fa/webauthn/keys/<int:pk>/edit/", "accounts/2fa/webauthn/keys/<int:pk>/remove/",
    "accounts/2fa/recovery-codes/", "accounts/2fa/recovery-codes/generate/",
    "accounts/2fa/totp/deactivate/", "accounts/2fa/reauthenticate/",
    "accounts/2fa/webauthn/reauthenticate/",
)  # fmt: skip
WITH_A_LINK = {
    "setup/<str:token>/", "join/<str:token>/", "ask/<str:token>/", "summary/stop/<str:token>/",
    "c/<str:token>/", "c/<str:token>/verify/", "c/<str:token>/report/",
    "c/<str:token>/contested/<str:receipt>/",
}  # fmt: skip
MIDWAY = {"accounts/2fa/authenticate/", "accounts/3rdparty/signup/"}
NO_PAGES = {
    "": "leads to the queue", "accounts/password/set/": "leads elsewhere",
    "accounts/2fa/recovery-codes/download/": "a file", "c/<str:token>/record.json": "a file",
    "accounts/login/code/confirm/": "no code is mailed: it leads back",
    "demo/guide/": "leads elsewhere, in tests/examples",
    "verifier.html": "a file, in test_verifier", f"client/{client_packages.wheel.name}": "a file",
    f"client/{client_packages.tarball.name}": "a file",
    "api/docs": "leads to the next", "api/v1/docs": "in test_api_docs",
    "api/v1/openapi.json": "a file", "api/v1/": "nothing is there",
    "api/v1/<path:rest>": "a problem",
}  # fmt: skip
IN_OTHER_WORDS = (test_roles_outside.PATHS, ("accounts/social/", "accounts/oidc/", "scim/"))


def test_every_page_outside_of_a_workspace_is_looked_at_or_says_why_not() -> None:
    asked, elsewhere = IN_OTHER_WORDS
    served = {route for route, (get, _) in BY_ROUTE.items() if get is not None}
    served = {asked.get(one, one) for one in served if not one.startswith(elsewhere)}

    assert served - {SETTING_UP, *STRANGERS, *OWN, *WITH_A_LINK, *MIDWAY, *NO_PAGES} == set()


def seen(page: Page, address: str, *, status: int = 200) -> str:
    """What is wrong with it, or where it leads instead; empty if nothing."""
    said = look(page, address, status=status)
    parts = urlsplit(page.url)
    there = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return said or ("" if there == address else f"{address} leads to {there}")


def test_who_is_not_logged_in_can_use_each_page(visit: Visit, acme: Any) -> None:
    page = visit()

    wrong = [
        said for one, status in STRANGERS.items() if (said := seen(page, f"/{one}", status=status))
    ]

    assert not wrong, "\n\n".join(wrong)


def test_each_page_of_an_account_is_for_everybody(
    visit: Visit, transactional_db: None, ada: User
) -> None:
    page = visit()
    page.goto("/accounts/login/?next=/accounts/2fa/")
    page.get_by_label("E-mail address").fill(ada.email)
    page.get_by_label("Password").fill("correct horse")
    page.keyboard.press("Enter")
    page.wait_for_url("/accounts/2fa/")
    page.goto(f"/accounts/reauthenticate/?next=/{SETTING_UP}")
    page.get_by_label("Password").fill("correct horse")
    page.keyboard.press("Enter")
    page.wait_for_url(f"/{SETTING_UP}")
    wrong = [seen(page, f"/{SETTING_UP}")]
    key = SecurityKey(ada).row
    secret = generate_totp_secret()
    TOTP.activate(ada, secret)
    RecoveryCodes.activate(ada)
    page.goto("/accounts/2fa/reauthenticate/?next=/accounts/2fa/webauthn/")
    code = format_hotp_value(hotp_value(secret, next(yield_hotp_counters_from_time())))
    page.locator("[name=code]").fill(code)
    page.keyboard.press("Enter")
    page.wait_for_url("/accounts/2fa/webauthn/")

    wrong += [seen(page, f"/{one.replace('<int:pk>', str(key.pk))}") for one in OWN]

    assert not any(wrong), "\n\n".join(filter(None, wrong))


def test_each_page_in_the_middle_of_a_log_in_is_for_everybody(
    visit: Visit, site: str, acme: Any, ada: User, leads: Team
) -> None:
    TOTP.activate(ada, generate_totp_secret())
    page = visit()
    page.goto("/accounts/login/")
    page.get_by_label("E-mail address").fill(ada.email)
    page.get_by_label("Password").fill("correct horse")
    page.keyboard.press("Enter")
    page.wait_for_url("/accounts/2fa/authenticate/")
    key = page.get_by_role("button", name="Touch a security key instead")
    wrong = [seen(page, "/accounts/2fa/authenticate/")]
    expect(key).to_have_count(0)
    SecurityKey(ada)
    wrong.append(seen(page, "/accounts/2fa/authenticate/"))
    expect(key).to_be_visible()
    page.goto("/accounts/login/code/confirm/")
    assert urlsplit(page.url).path == "/accounts/2fa/authenticate/", "no code was mailed"
    new = visit()
    new.context.add_cookies([half_logged_in(acme, ada, leads, site)])
    wrong.append(seen(new, "/accounts/3rdparty/signup/"))
    expect(new.get_by_role("heading", name="Your first log-in")).to_be_visible()

    assert not any(wrong), "\n\n".join(filter(None, wrong))


def half_logged_in(acme: Workspace, ada: User, leads: Team, site: str) -> Any:
    """The cookie of somebody whom a provider vouched for, and whose address is still asked for.

    No log-in here stops there (`is_auto_signup_allowed`); the page is served all the same.
    """
    provider = LoginProvider.objects.create(
        workspace=acme, name="Acme’s directory", issuer="https://login.example.com",
        client_id="desk", places=[["deciders", leads.name]], set_by=ada,
    )  # fmt: skip
    account = SocialAccount(
        provider=provider.provider_id, uid="cleo", extra_data={"userinfo": {"groups": ["deciders"]}}
    )
    SocialApp.objects.create(
        provider=KIND, provider_id=provider.provider_id, name="Acme", client_id="desk"
    )
    known = get_adapter().get_provider(RequestFactory().get("/"), provider.provider_id)
    session = Client().session
    session["socialaccount_sociallogin"] = SocialLogin(
        user=User(name="Cleo"), account=account, provider=known
    ).serialize()
    session.save()
    return {"name": settings.SESSION_COOKIE_NAME, "value": session.session_key, "url": site}


def test_each_page_behind_a_link_is_for_everybody_in_each_of_its_states(
    visit: Visit, links: Any, acme: Any, ada: User, operators: Team
) -> None:
    tokens, receipt = links
    notifications.choose_hour(acme, ada, 8)
    page = visit()
    trail = f"/c/{tokens['c']}/"
    receipt = f"{trail}contested/{receipt}/"
    wrong = [
        seen(page, address)
        for address in (
            trail, f"{trail}verify/", f"{trail}report/", f"{trail}?lang=de", receipt,
            f"/ask/{tokens['ask']}/", f"/join/{tokens['join']}/", f"/setup/{tokens['setup']}/",
            f"/summary/stop/{tokens['summary/stop']}/",
        )
    ]  # fmt: skip
    wrong.append(seen(visit(ada), f"/join/{tokens['join']}/", status=409))
    nils = person("nils", operators)
    contesting.answer(Contest.objects.get(), by=nils, upheld=False, text="It stays as it is.")
    consent_requests.answer(consent_requests.find(tokens["ask"]), "yes", "Soon")
    page.goto(f"/summary/stop/{tokens['summary/stop']}/")
    page.get_by_role("button").first.click()
    page.wait_for_load_state()
    wrong += [
        seen(page, address)
        for address in (
            receipt,
            f"/ask/{tokens['ask']}/",
            f"/summary/stop/{tokens['summary/stop']}/",
        )
    ]
    told = Correction.objects.get(state="published")
    corrections.revoke(told, by=ada, seen=told.revision, reason="A drill")
    wrong.append(seen(page, trail, status=404))
    Correction.objects.update(expires_at=timezone.now() - timedelta(days=1))
    wrong.append(seen(page, trail, status=404))

    assert not any(wrong), "\n\n".join(filter(None, wrong))
