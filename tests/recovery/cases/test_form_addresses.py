"""A refusal is shown at the address of its form, which takes no GET: links of that page lead on."""

import pytest
from django.urls import resolve

from config.middleware import page_above, page_of

BROWSER = {"headers": {"accept": "text/html,application/xhtml+xml"}}


def test_a_tab_of_a_refused_page_opens_on_the_page_of_the_case(client, raised, ada):
    client.force_login(ada)
    case = raised.case()
    there = f"/w/acme/cases/{case.pk}/"
    refused = client.post(f"{there}pause/", {"kind": "agent", "why": " "})
    assert refused.status_code == 422
    [tab] = [one["url"] for one in refused.context["tabs"] if one["label"] == "Activity"]

    followed = client.get(f"{there}pause/{tab}", follow=True, **BROWSER)

    assert followed.redirect_chain == [(f"{there}?tab=activity", 302)]
    assert followed.context["tab"] == "activity"
    here = {"referer": f"http://testserver{there}pause/"}  # as of a link that saves a file
    assert client.get(f"{there}pause/?format=csv", headers=here)["Location"].startswith(there)
    elsewhere = {"referer": f"http://elsewhere{there}pause/"}
    assert client.get(f"{there}pause/", headers=elsewhere).status_code == 405
    assert client.get(f"{there}pause/").status_code == 405, "what is no browser is told so"
    assert client.put(f"{there}pause/", **BROWSER).status_code == 405


@pytest.mark.parametrize(
    ("path", "above"),
    [
        ("/w/acme/settings/members/invite/", "/w/acme/settings/members/"),
        ("/w/acme/settings/keys/new/", "/w/acme/settings/keys/"),
        ("/w/acme/approvals/7/decide/", "/w/acme/approvals/7/"),
        ("/w/acme/policies/lists/payees/change/", "/w/acme/policies/lists/payees/"),
        ("/w/acme/queue/claim/", "/w/acme/queue/"),
        ("/w/acme/nowhere/", "/w/acme/"),
        ("/w/acme/", "/w/acme/"),
    ],
)
def test_the_page_above_is_the_next_that_leads_somewhere(path, above):
    assert page_above(path) == above


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("settings/agents/", "settings/keys/"),
        ("settings/delegations/", "settings/members/"),
        ("approvals/7/revoke/", "approvals/grants/"),
        ("approvals/7/break-glass/review/", "approvals/health/"),
        ("reveal/a/b/", "runs/a/b/"),
        ("ledger/download/x/proof/", "ledger/event/x/proof/"),
    ],
)
def test_a_form_that_stands_elsewhere_leads_there(path, page):
    assert page_of(resolve(f"/w/acme/{path}")) == f"/w/acme/{page}"
