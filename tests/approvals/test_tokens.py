"""A decision is made by a person in a session: no key of an agent and no token decides."""

from itertools import product

import pytest
from django.test import Client

from approvals.models import Approval, ApprovalState
from config.api import api
from tests.approvals import door
from workspaces import keys

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def bearers(acme, ben, key):
    """Of an agent, and of Ben, who may decide in a browser."""
    return {"agent": key, "person": keys.create_token(acme, by=ben, name="script")[1]}


def test_a_bearer_does_not_open_the_pages(ask, bearers, subtests):
    approval = ask()
    said = {"decision": "grant", "digest": approval.digest, "reason": "x", "question": "?"}
    for whose, verb in product(("agent", "person"), ("decide/", "withdraw/", "ask/")):
        headers = {"authorization": f"Bearer {bearers[whose]}"}

        answered = Client().post(f"/w/acme/approvals/{approval.pk}/{verb}", said, headers=headers)

        with subtests.test(whose=whose, verb=verb):
            assert answered.status_code == 302
            assert answered.headers["Location"].startswith("/accounts/login/")
            approval.refresh_from_db()
            assert (approval.state, approval.decisions.count()) == (ApprovalState.WAITING, 0)


def test_the_api_has_no_way_to_decide(ask, bearers, subtests):
    approval = ask()
    said = {"decision": "grant", "digest": approval.digest, "question": 1, "answer": "yes"}
    verbs = ["", "/decide", "/grant", "/reject", "/withdraw", "/answers"]
    asked = list(product(bearers, verbs, ["POST", "PUT"]))

    def request(whose, verb, method):
        bearer = {"authorization": f"Bearer {bearers[whose]}"}
        return (method, f"/api/v1/approvals/{approval.pk}{verb}"), {"headers": bearer}

    async def django(scope, receive, send):
        """What the hot door does not know is answered behind it; asked below by Django itself."""
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def story(client):
        requests = [request(*one) for one in asked]
        return [await client.request(*at, json=said, **headers) for at, headers in requests]

    for one, answer in zip(asked, door.visit(story, behind=django), strict=True):
        with subtests.test(asked=one):
            assert answer.status_code in {401, 403, 404, 405, 422}
            at, headers = request(*one)
            behind = Client().generic(*at, **headers)
            assert behind.status_code in {401, 403, 404, 405}
    assert Approval.objects.get().state == ApprovalState.WAITING


def test_the_api_offers_nothing_about_approvals_but_to_read_and_to_answer_a_question():
    offered = {
        (method, path)
        for path, verbs in api.get_openapi_schema()["paths"].items()
        for method in verbs
        if "approval" in path
    }
    assert offered == {
        ("get", "/api/v1/approval-health"),
        ("get", "/api/v1/approvals/{approval}"),
        ("get", "/api/v1/approvals/{approval}/documents"),
        ("get", "/api/v1/approvals/{approval}/documents/{name}"),
        ("post", "/api/v1/approvals/{approval}/answers"),
    }
