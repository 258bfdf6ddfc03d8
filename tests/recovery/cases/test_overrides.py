"""Who approves that a later change is lost reads that it is, on the card and wherever it stands."""

import pytest

from approvals import alike
from approvals.models import Approval
from ledger.models import Effect
from tests.recovery.cases.cast import submitted
from tests.worlds import kept

LOST = "Somebody changed it since the agent: that later change is overwritten."


@pytest.fixture
@kept(in_turn=True)
def changed(raised, shop):
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    return raised.case()


def test_the_preview_does_not_call_unchanged_what_it_overwrites(changed, client, ada):
    client.force_login(ada)
    effect = Effect.objects.get()
    there = f"/w/acme/cases/{changed.pk}/compensate/"
    chosen = {f"effect-{effect.pk}": "override", "act": "preview"}

    [step] = client.post(there, chosen | {"revision": changed.revision}).context["steps"]

    assert step["drift_words"] == "overwrites a later change"


def test_the_card_says_what_is_overwritten_and_why_people_are_asked(changed, client, ada, ben):
    submitted(changed, ada, choices={Effect.objects.get().pk: "override"})
    approval = Approval.objects.get()
    client.force_login(ben)

    page = client.get(f"/w/acme/approvals/{approval.pk}/")

    [call] = page.context["calls"]
    assert call["warnings"] == [LOST]
    assert {"name": "Beware", "value": LOST} in page.context["why"]
    assert page.text.count(LOST) == 2
    assert LOST.rstrip(".") in alike.pointed_out(approval, [])


def test_a_card_of_what_nobody_touched_warns_of_nothing(raised, client, acme, ada, ben):
    from approvals import versions
    from tests.recovery.cases.conftest import POLICY

    asks = POLICY.replace(
        "      - {risk: LOW, approval: AUTO}", "      - {risk: LOW, approval: MANUAL}"
    )
    versions.activate(versions.save(acme, asks, by=None), by=None)
    submitted(raised.case(), ada)
    client.force_login(ben)

    page = client.get(f"/w/acme/approvals/{Approval.objects.get().pk}/")

    assert page.context["calls"][0]["warnings"] == []
    assert "Beware" not in page.text
