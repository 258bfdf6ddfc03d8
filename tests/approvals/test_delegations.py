"""Ben goes away and hands his right to decide to Dora, who has none: what she answers is his yes,
while he has one to give, never beside his own, and never about what is hers or his."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from approvals import awaiting, deciders, grants, inbox
from approvals.models import Approval, Decision
from approvals.policy import RequiredApprovers
from ledger import desk_events
from tests.approvals.cast import told
from tests.people import person, team
from tests.worlds import kept
from workspaces import delegations, teams
from workspaces.delegations import Term
from workspaces.free_text import InvalidInput
from workspaces.models import Delegation, User

pytestmark = pytest.mark.django_db
FINANCE = RequiredApprovers("finance", 1)
A_WEEK = timedelta(days=7)


@pytest.fixture
@kept
def viewers(acme):
    return team(acme, "viewers", "view")


@pytest.fixture
@kept
def dora(viewers):
    return person("dora", viewers)


@pytest.fixture
def lend(acme):
    def lend(by, to, *, only=None, days=7, begin=None):
        begin = begin or timezone.now()
        term = Term(begin, begin + timedelta(days=days))
        row = delegations.give(acme, by=by, to=to, team=only, term=term, reason="away")
        desk_events.take_in()
        return row

    return lend


def yes(approval, by):
    return inbox.grant(Approval.objects.get(pk=approval.pk), by=by, seen=approval.digest)


def time_passes(row, length):
    """For a delegation, which ends at a time."""
    Delegation.objects.filter(pk=row.pk).update(
        starts_at=row.starts_at - length, until=row.until - length
    )
    delegations.look()
    desk_events.take_in()


def test_who_was_handed_a_right_decides_with_it_and_the_record_says_whose_it_was(
    client, acme, ask, ben, dora, lend
):
    approval = ask(FINANCE)
    card = f"/w/acme/approvals/{approval.pk}/"
    answer = {"digest": approval.digest, "decision": "grant", "reason": "as Ben would"}
    client.force_login(dora)
    assert client.post(f"{card}decide/", answer).status_code == 403
    assert "Charge" not in client.get("/w/acme/approvals/").content.decode()

    row = lend(ben, dora)
    shown = client.get(card).content.decode()
    assert "You decide for <b>Ben, until " in shown
    assert "ch_1" in shown, "she sees the call on which she decides"
    assert awaiting.count(acme, dora, 9) == 1
    assert "Dora (for Ben)" in client.get(card).content.decode()
    assert client.post(f"{card}decide/", answer).status_code == 302

    approval.refresh_from_db()
    assert approval.state == "granted"
    assert "Dora, for Ben" in client.get(card).content.decode()
    [said] = told(acme, "approval.granted")
    assert (said["delegation"], said["in_right_of"]) == (row.pk, str(ben.pk))
    [given], [begun] = told(acme, "delegation.given"), told(acme, "delegation.begun")
    assert given["delegation"] == begun["delegation"] == row.pk
    assert (given["delegator"], given["delegate"], given["reason"]) == (
        ben.email, dora.email, "away",
    )  # fmt: skip
    assert grants.use(approval.pk, approval.digest)


def test_members_see_who_decides_for_whom_and_the_two_and_administrators_end_it(
    client, acme, ada, ben, cleo, dora, ask
):
    approval = ask(FINANCE)
    page, hand = "/w/acme/settings/members/", "/w/acme/settings/delegations/"
    until = (timezone.now() + A_WEEK).strftime("%Y-%m-%dT%H:%M")
    client.force_login(ben)
    assert "Hand my right to decide" in client.get(page).content.decode()
    too_long = (timezone.now() + 20 * A_WEEK).strftime("%Y-%m-%dT%H:%M")
    for wrong in ({"until": too_long}, {"to": ben.pk}, {"reason": ""}, {"until": "never"}):
        said = {"to": dora.pk, "until": until, "reason": "on holiday"} | wrong
        refused = client.post(hand, said)
        assert refused.status_code == 422, wrong
    later = (timezone.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    said = {"to": dora.pk, "until": until, "reason": "on holiday"}
    begun = client.post(hand, said | {"starts_at": later}, follow=True)
    assert re.search("Dora decides for you from .+ on[.]", begun.content.decode())
    Delegation.objects.all().delete()
    for ending in (ben, dora, ada):
        client.force_login(ben)
        for _ in range(2):  # once more, where the answer did not come: else one of two would stay
            again = client.post(hand, {"to": dora.pk, "until": until, "reason": "on holiday"})
            assert again.status_code == 302
        row = Delegation.objects.get(ended_at=None)
        desk_events.take_in()
        client.force_login(cleo)
        shown = client.get(page).content.decode()
        assert "on holiday" in shown
        assert client.post(f"{hand}{row.pk}/revoke/").status_code == 403
        assert f"{hand}{row.pk}/revoke/" not in shown
        assert dora.pk in deciders.entitled(approval)
        client.force_login(ending)
        assert client.post(f"{hand}{row.pk}/revoke/").status_code == 302
        assert dora.pk not in deciders.entitled(approval)
    desk_events.take_in()
    assert [one["because"] for one in told(acme, "delegation.ended")] == ["revoked"] * 3


def test_it_begins_and_ends_by_itself(acme, ask, ben, dora, lend):
    approval = ask(FINANCE)
    row = lend(ben, dora, begin=timezone.now() + A_WEEK)
    assert dora.pk not in deciders.entitled(approval)
    assert told(acme, "delegation.begun") == []

    time_passes(row, A_WEEK + timedelta(hours=1))
    assert dora.pk in deciders.entitled(approval)
    assert len(told(acme, "delegation.begun")) == 1

    row.refresh_from_db()
    time_passes(row, A_WEEK)
    assert dora.pk not in deciders.entitled(approval)
    assert [one["because"] for one in told(acme, "delegation.ended")] == ["time"]


def test_it_is_no_more_than_its_owner_has_and_is_gone_with_that(
    acme, ask, ben, dora, lend, finance, leads
):
    of_finance, of_leads = ask(FINANCE), ask(RequiredApprovers("leads", 1))
    lend(ben, dora)
    assert dora.pk in deciders.entitled(of_finance)
    assert dora.pk not in deciders.entitled(of_leads)

    teams.add(leads, ben, by=None)
    assert dora.pk in deciders.entitled(of_leads)
    teams.remove(leads, ben, by=None)
    assert dora.pk not in deciders.entitled(of_leads)

    teams.remove(finance, ben, by=None)
    assert dora.pk not in deciders.entitled(of_finance)
    teams.add(finance, ben, by=None)
    assert dora.pk not in deciders.entitled(of_finance), "gone is gone"
    desk_events.take_in()
    assert [one["because"] for one in told(acme, "delegation.ended")] == ["lost"]

    lend(ben, dora)
    User.objects.filter(pk=ben.pk).update(is_active=False)
    assert dora.pk not in deciders.entitled(of_finance)


def test_for_one_team_it_is_for_that_team(ask, ben, dora, lend, finance, leads):
    teams.add(leads, ben, by=None)
    lend(ben, dora, only=leads)
    of_leads = ask(RequiredApprovers("leads", 1))

    assert dora.pk in deciders.entitled(of_leads)
    assert dora.pk not in deciders.entitled(ask(FINANCE))
    assert dora.pk not in deciders.entitled(ask())
    assert list(awaiting.among(Approval.objects.all(), dora)) == [of_leads]


def test_a_team_that_only_looks_on_lends_nobody_a_deputy(acme, ben, dora, viewers, lend, client):
    teams.add(viewers, ben, by=None)
    with pytest.raises(InvalidInput, match="viewers may not decide on approvals"):
        lend(ben, dora, only=viewers)

    client.force_login(ben)
    page = client.get("/w/acme/settings/members/").content.decode()
    assert ">viewers</option>" not in page
    assert ">finance</option>" in page, "the other team of Ben"
    until = timezone.now() + A_WEEK
    said = {"to": dora.pk, "team": viewers.pk, "until": until.strftime("%Y-%m-%dT%H:%M"),
            "reason": "away"}  # fmt: skip
    answer = client.post("/w/acme/settings/delegations/", said)
    assert "Choose a team of yours that may decide" in answer.content.decode()
    assert not Delegation.objects.exists()


def test_what_was_lent_is_not_lent_on_nor_to_who_is_no_member(
    acme, ask, ben, dora, viewers, lend, dev
):
    lend(ben, dora)
    with pytest.raises(InvalidInput, match="in their own right"):
        lend(dora, person("emil", viewers))
    with pytest.raises(InvalidInput, match="not a member"):
        lend(ben, dev)
    with pytest.raises(InvalidInput, match="90 days ahead at most"):
        lend(ben, dora, begin=datetime(9999, 12, 1, tzinfo=UTC))
    with pytest.raises(IntegrityError, match="delegation_has_an_end"), transaction.atomic():
        Delegation.objects.create(
            workspace=acme, delegator=ben, delegate=dora, reason="for good",
            starts_at=timezone.now(), until=timezone.now() + timedelta(days=91),
        )  # fmt: skip


@pytest.mark.parametrize("asks", ["ben", "dora", "owner is ben", "owner is dora", "invited dora",
                                  "invited ben"])  # fmt: skip
def test_neither_of_the_two_decides_on_what_is_of_one_of_them(
    asks, acme, ask, ada, ben, dora, viewers, finance, lend
):
    """Not even where the rule lets people approve their own."""
    cast = {"ben": ben, "dora": dora}
    if asks.startswith("invited"):
        new = cast[asks.split()[-1]]
        into = viewers if new == dora else finance
        teams.remove(into, new, by=None)
        teams.add(into, new, by=ada)
    approval = ask(FINANCE, by=cast.get(asks, ada), self_approval=True)
    if asks.startswith("owner"):
        Approval.objects.filter(pk=approval.pk).update(agent_owner=cast[asks.split()[-1]])
        approval = Approval.objects.get(pk=approval.pk)
    row = lend(ben, dora)

    assert dora.pk not in deciders.entitled(approval)
    assert not awaiting.among(Approval.objects.all(), dora).exists()
    with pytest.raises(inbox.NotEntitled):
        yes(approval, dora)
    with pytest.raises(IntegrityError, match="four_eyes"):
        Decision.objects.create(approval=approval, person=dora, granted=True, delegation=row)


@pytest.mark.parametrize("first", ["ben", "dora"])
def test_the_two_are_one_where_two_are_needed(first, ask, ben, cleo, dora, finance, lend):
    teams.add(finance, cleo, by=None)
    approval = ask(RequiredApprovers("finance", 2))
    row = lend(ben, dora)
    cast = {"ben": ben, "dora": dora}
    second = cast["dora" if first == "ben" else "ben"]
    yes(approval, cast[first])

    assert not awaiting.among(Approval.objects.all(), second).exists()
    with pytest.raises(inbox.NotEntitled, match="has answered"):
        yes(approval, second)
    with pytest.raises(IntegrityError), transaction.atomic():
        Decision.objects.create(
            approval=approval, person=second, granted=True,
            delegation=row if second == dora else None,
        )  # fmt: skip
    assert yes(approval, cleo).state == "granted"


def test_nor_does_a_chain_of_rights_make_two_of_two(ask, ben, cleo, dora, finance, lend):
    """Ben decides for Cleo, and Dora for Ben: what Dora answers for Ben is Ben's answer."""
    teams.add(finance, cleo, by=None)
    approval = ask(RequiredApprovers("finance", 2))
    lend(cleo, ben)
    lend(ben, dora)
    yes(approval, dora)

    with pytest.raises(inbox.NotEntitled, match="Dora has answered in your right"):
        yes(approval, ben)
    assert yes(approval, cleo).state == "granted"


@pytest.mark.parametrize(("what", "stands"), [("its time is over", True), ("revoked", False),
    ("ben left", False), ("dora left", False)])  # fmt: skip
def test_a_yes_outlives_the_time_of_its_right_and_nothing_else(
    what, stands, ask, ben, dora, finance, viewers, lend
):
    approval = ask(FINANCE)
    row = lend(ben, dora)
    yes(approval, dora)
    approval = Approval.objects.get(pk=approval.pk)
    assert grants.still_entitled(approval)

    if what == "its time is over":
        time_passes(row, A_WEEK + timedelta(minutes=1))
    elif what == "revoked":
        delegations.revoke(row, by=dora)
    else:
        teams.remove(*((finance, ben) if what == "ben left" else (viewers, dora)), by=None)

    assert grants.still_entitled(Approval.objects.get(pk=approval.pk)) is stands


def test_a_no_is_theirs_too_and_a_bounded_grant_is_nobodys_to_lend(acme, ask, ben, dora, lend):
    approval = ask(FINANCE)
    lend(ben, dora)
    inbox.reject(approval, by=dora, seen=approval.digest, reason="Ben would not")
    assert told(acme, "approval.rejected")[0]["in_right_of"] == str(ben.pk)

    bounded = ask(FINANCE)
    Approval.objects.filter(pk=bounded.pk).update(subject_kind="grant", plan_id=None)
    assert dora.pk not in deciders.entitled(Approval.objects.get(pk=bounded.pk))
    assert not awaiting.among(Approval.objects.filter(pk=bounded.pk), dora).exists()
