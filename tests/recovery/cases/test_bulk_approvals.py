"""What a bulk job asks: an approver finds it, looks at all of it at once, and gives one reason;
each plan is still a decision of its own.
"""

import re

import pytest

from approvals import versions
from approvals.models import Approval, ApprovalState, Decision
from recovery.casework import bulk
from recovery.models import BulkItem
from recovery.triage import triage
from tests.people import person
from tests.recovery.cases.conftest import POLICY
from tests.recovery.cases.test_bulk import frozen
from tests.recovery.engine import by_hand


@pytest.fixture
def gwen(leads):
    return person("gwen", leads)


@pytest.fixture
def asked(raises, acme, ada, gwen, client):
    """Three plans of one job and one of ada's own, each of which waits for the leads; four tickets
    that look the same but for their ids.
    """
    for number in (1, 2, 3, 4):
        raises(number).ends("failed")
    triage.look()
    asks = POLICY.replace(
        "      - {risk: LOW, approval: AUTO}",
        "      - {risk: LOW, approval: MANUAL, requires: [{group: leads}]}",
    )
    versions.activate(versions.save(acme, asks, by=None), by=None)
    seen = bulk.dry_run(acme, "compensate", by=ada, query="")
    first, *others = frozen(seen)
    bulk.start(acme, "compensate", by=ada, reason="Same cause", frozen=others)
    bulk.sweep()
    job = bulk.start(acme, "compensate", by=ada, reason="Same cause", frozen=[first])
    bulk.sweep()
    client.force_login(gwen)
    return list(Approval.objects.exclude(plan_id__in=job.items.values("plan_id")).order_by("pk"))


def test_the_questions_of_a_job_are_found_from_the_job_and_beside_the_inbox(asked, client, acme):
    job = BulkItem.objects.get(plan_id=asked[0].plan_id).job_id

    [link] = re.findall(r'href="([^"]*q=job[^"]*)"', client.get(f"/w/acme/bulk/{job}/").text)
    inbox = client.get(link.replace("&amp;", "&"))
    assert [one["id"] for one in inbox.context["approvals"]] == [one.pk for one in asked]

    groups = client.get("/w/acme/approvals/").context["find"]["groups"]
    [of_jobs] = [one for one in groups if one["name"] == "Bulk job"]
    assert [(one["name"], one["count"]) for one in of_jobs["choices"]] == [(str(job), "3")]


def test_plans_that_are_alike_stand_side_by_side_and_each_is_decided_by_itself(
    asked, client, gwen, shop
):
    card = client.get(f"/w/acme/approvals/{asked[0].pk}/")
    assert "4 alike: look at them together" in card.text

    page = client.get(f"/w/acme/approvals/{asked[0].pk}/alike/")

    assert page.context["title"] == f"4 plans like “{asked[0].headline}”"
    assert "restore_row" not in page.context["title"], "in words, not by a bare operation"
    [section] = [one for one in page.context["sections"] if one["rows"]]
    assert len(section["rows"]) == 4
    changed = {"digest-" + str(one.pk): one.digest for one in asked}
    changed[f"digest-{asked[2].pk}"] = "0" * 64
    answer = client.post(
        f"/w/acme/approvals/{asked[0].pk}/alike/decide/",
        {"chosen": [one.pk for one in asked], "decision": "grant", "reason": "looked", **changed},
    )
    words = [one["words"] for one in answer.context["results"]]
    assert words[:2] == ["Approved.", "Approved."]
    assert words[2].startswith("Not decided")
    states = [Approval.objects.get(pk=one.pk).state for one in asked]
    assert states == [ApprovalState.GRANTED, ApprovalState.GRANTED, ApprovalState.WAITING]
    given = Decision.objects.order_by("pk")
    assert [(one.approval_id, one.reason, one.person) for one in given] == [
        (one.pk, "looked", gwen) for one in asked[:2]
    ]
    for one in asked:
        by_hand.advance(one.plan_id)
    tickets = dict(shop.execute("SELECT id, priority FROM tickets").fetchall())
    del tickets["T-182"]
    assert tickets == {"T-1": "high", "T-2": "normal", "T-3": "normal", "T-4": "high"}


def test_a_plan_with_another_call_or_by_somebody_else_is_not_alike(asked, client, finn):
    Approval.objects.filter(pk=asked[1].pk).update(requested_by=finn)
    second = asked[2].calls[0]
    Approval.objects.filter(pk=asked[2].pk).update(calls=[second, second])

    page = client.get(f"/w/acme/approvals/{asked[0].pk}/alike/")

    shown = {row["id"] for one in page.context["sections"] for row in one["rows"]}
    assert asked[0].pk in shown
    assert len(shown) == 2
    assert not shown & {asked[1].pk, asked[2].pk}


def test_alike_plans_go_to_one_system_and_one_account_and_the_page_says_which(asked, client):
    """Two that went to two customers' accounts stood side by side, with nothing to tell them."""
    elsewhere = asked[1].calls[0] | {"connection_digest": "e" * 64}
    Approval.objects.filter(pk=asked[1].pk).update(calls=[elsewhere])
    other = asked[2].subject | {"accounts": {"shop": {"compensate": "acct_2"}}}
    Approval.objects.filter(pk=asked[2].pk).update(subject=other)

    page = client.get(f"/w/acme/approvals/{asked[0].pk}/alike/")

    shown = {row["id"] for one in page.context["sections"] for row in one["rows"]}
    assert asked[0].pk in shown
    assert not shown & {asked[1].pk, asked[2].pk}
    on_card = dict(row for row in asked[0].previews[0]["rows"] if row[0] in {"Over", "As"})
    [told] = [one["value"] for one in page.context["why"] if one["name"] == "Over"]
    assert told == f"shop: {on_card['Over']}, as {on_card['As']}"
