"""Who may ask for what: each address of the console, for each right, by GET and by POST.

The walk goes over the URL configuration itself: a new address without an entry in NEEDS fails.
Nobody who is not logged in gets in, and for who is from elsewhere nothing is there.
"""

import pytest
from django.db import transaction
from django.test import Client

from tests.people import person, team
from tests.recovery.cases import test_disclosure
from tests.recovery.cases.test_disclosure import PLACES, W, asked, routes

finance, known = test_disclosure.finance, test_disclosure.known

RIGHTS = ("view", "view_sensitive", "recover", "approve", "administer", "edit_lists")
# By what GET needs and what POST needs: one of these rights ("" is every member's), or None where
# the method is not served.
NEEDS: tuple[tuple[tuple[str | None, str | None], tuple[str, ...]], ...] = (
    (("", ""), (
        "settings/", "ledger/verify/", "views/new/",
    )),
    (("", "recover"), (
        "residue/<int:pk>/",
    )),
    (("", None), (
        "", "settings/members/", "settings/keys/", "audit/", "runs/", "ledger/", "connectors/",
        "channels/", "approvals/", "approvals/fresh/", "approvals/history/", "approvals/health/",
        "approvals/grants/", "policies/", "tools/", "queue/fresh/", "views/", "causes/", "bulk/",
        "find/", "insights/", "corrections/", "residue/", "policies/reported/",
        "approvals/<int:pk>/outcome/", "queue/", "queue/suggest/", "x/<path:query>",
        "settings/keys/<int:pk>/first/", "bulk/<int:pk>/", "bulk/<int:pk>/progress/",
        "policies/<int:number>/", "views/<slug:slug>/", "causes/<str:fingerprint>/",
        "runs/<path:run>/",
        *(f"ledger/{one}<path:event>/" for one in ("", "event/", "proof/")),
        "connectors/<slug:name>/", "approvals/<int:pk>/", "approvals/<int:pk>/<slug:name>.json",
        "cases/<int:pk>/", "cases/<int:pk>/progress/", "corrections/<int:pk>/",
    )),
    (("administer", "administer"), (
        "settings/kept/", "connectors/new/", "policies/new/", "corrections/settings/",
    )),
    (("administer", None), (
        "settings/kept/progress/",
    )),
    (("approve", None), (
        "approvals/<int:pk>/alike/",
    )),
    (("recover", "recover"), (
        "bulk/new/", "report/<path:run>/", "cases/<int:pk>/resume/", "cases/<int:pk>/confirm/",
        "cases/<int:pk>/close/", "cases/<int:pk>/compensate/", "cases/<int:pk>/settle/",
    )),
    (("recover", None), (
        "cases/<int:pk>/outlook/",
    )),
    (("view_sensitive recover", None), (
        "corrections/<int:pk>/preview/",
    )),
    (("view_sensitive", None), (
        "ledger/snapshots/<str:sha256>/",
    )),
    ((None, ""), (
        "settings/tokens/", "settings/tokens/<int:pk>/revoke/",
        "settings/delegations/<int:pk>/revoke/", "bulk/<int:pk>/stop/",
        "settings/teams/<int:pk>/leave/",
        "approvals/<int:pk>/break-glass/", "approvals/<int:pk>/break-glass/review/",
        "views/<slug:slug>/remove/", "approvals/<int:pk>/withdraw/", "approvals/<int:pk>/revoke/",
        "approvals/<int:pk>/answer/<int:enquiry>/",
    )),
    (("administer", None), ("settings/directory/", "settings/log-in/")),
    ((None, "administer"), (
        "settings/directory/tokens/", "settings/directory/tokens/<int:pk>/revoke/",
        "settings/directory/people/<int:pk>/let-back-in/",
        "settings/directory/people/let-back-in/",
        "settings/directory/teams/", "settings/log-in/try/", "settings/log-in/save/",
        "settings/log-in/end/",
        "settings/members/invite/", "settings/teams/", "settings/keys/new/", "settings/agents/",
        "channels/new/", "settings/members/invitations/<int:pk>/withdraw/",
        "settings/teams/<int:pk>/", "settings/teams/<int:pk>/people/",
        "settings/keys/<int:pk>/revoke/", "channels/<int:pk>/switch/", "channels/<int:pk>/test/",
        "policies/<int:number>/activate/", "policies/<int:number>/shadow/",
        "connectors/<slug:name>/settings/", "connectors/<slug:name>/switch/",
        "connectors/<slug:name>/rehearse/",
    )),
    ((None, "approve"), (
        "approvals/<int:pk>/decide/", "approvals/<int:pk>/change/",
        "approvals/<int:pk>/alike/decide/", "approvals/<int:pk>/more/", "approvals/<int:pk>/ask/",
    )),
    ((None, "recover administer"), (
        "policies/pauses/", "policies/pauses/<int:pk>/lift/",
    )),
    ((None, "recover"), (
        "queue/claim/", "connectors/<slug:name>/try/", "cases/<int:pk>/claim/",
        "cases/<int:pk>/comment/", "cases/<int:pk>/stop/", "cases/<int:pk>/reopen/",
        "cases/<int:pk>/pause/", "cases/<int:pk>/corrections/", "cases/<int:pk>/hand-over/",
        "cases/<int:pk>/snooze/", "corrections/<int:pk>/contests/<int:contest>/",
        "corrections/<int:pk>/save/", "corrections/<int:pk>/publish/",
        "corrections/<int:pk>/revoke/", "corrections/<int:pk>/handed-on/",
    )),
    ((None, "view_sensitive"), (
        "reveal/<path:run>/", "ledger/download/<path:event>/", "ledger/reveal/<path:event>/",
    )),
    (("", None), ("settings/signing-keys/", "approvals/<int:pk>/signed/<int:decision>/")),
    (("", "approve"), ("settings/summary/",)),
    (("administer", "administer"), ("approvals/health/proposal/", "teach/")),
    ((None, "approve"), ("settings/signing-keys/<int:pk>/", "settings/delegations/")),
    (("", "edit_lists"), ("policies/lists/",)),
    (("", None), ("policies/lists/<slug:name>/",)),
    ((None, "edit_lists"), ("policies/lists/<slug:name>/change/",)),
    ((None, "approve"), ("approvals/<int:pk>/later/",)),
)  # fmt: skip
CREDENTIALS = next(one for one in PLACES if one.startswith("^w/"))
BY_ROUTE = {W + route: needs for needs, found in NEEDS for route in found}
BY_ROUTE |= {CREDENTIALS: (None, "administer")}


def test_every_address_of_a_workspace_says_whom_it_needs():
    found = {one for one in routes() if one.startswith((W, "^w/"))}

    assert found - set(BY_ROUTE) == set(), "say in NEEDS who may ask for these"
    assert set(BY_ROUTE) - found == set()


@pytest.fixture
def who(acme, known):
    """Somebody with these rights and no other: `who("view", "recover")`, logged in."""
    browsers: dict[frozenset[str], Client] = {}

    def logged_in(*named):
        rights = frozenset({"view", *named})
        if rights not in browsers:
            number = len(browsers)
            someone = person(f"someone{number}", team(acme, f"some-{number}", *rights))
            browsers[rights] = Client()
            browsers[rights].force_login(someone)
        return browsers[rights]

    return logged_in


@pytest.mark.django_db
def test_each_right_opens_what_it_is_for_and_nothing_else(known, who):
    wrong = {}
    for route, needs in BY_ROUTE.items():
        for post, needed in enumerate(needs):
            one_of = (needed or "").split()
            others = [right for right in RIGHTS if right not in one_of]
            let_in = [_status(who(right), route, known, post) for right in one_of or ["view"]]
            kept_out = [_status(who(*others), route, known, post)] if one_of else []
            is_right = (
                set(let_in) == {405}
                if needed is None
                else 403 not in let_in and set(kept_out) <= {403} and 405 not in let_in
            )
            if not is_right:
                wrong[f"{'POST' if post else 'GET'} {route}"] = (needed, let_in, kept_out)

    assert wrong == {}


@pytest.mark.django_db
def test_nobody_gets_in_and_for_who_is_from_elsewhere_nothing_is_there(known, dev):
    nobody, elsewhere = Client(), Client()
    elsewhere.force_login(dev)
    wrong = {}
    for route, needs in BY_ROUTE.items():
        for post, needed in enumerate(needs):
            if needed is None or route == W:  # the way to the queue, whoever asks
                continue
            answers = [_answer(one, route, known, post) for one in (nobody, elsewhere)]
            way = answers[0].get("Location", "")
            if not (way.startswith("/accounts/login/") and answers[1].status_code == 404):
                found = [one.status_code for one in answers]
                wrong[f"{'POST' if post else 'GET'} {route}"] = (way, found)

    assert wrong == {}


def _status(browser, route, known, post):
    return _answer(browser, route, known, post).status_code


def _answer(browser, route, known, post):
    """What is answered, with nothing of it done: each address is asked of the same desk."""
    with transaction.atomic():
        answer = asked(browser, route, PLACES[route][0], known, {}, post=bool(post))
        transaction.set_rollback(True)
    assert answer.status_code < 500, route
    return answer
