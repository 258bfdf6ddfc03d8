"""Nobody of finance can be reached. Ada and Olga administer, are asked nothing, and decide
together: loudly, each by a fresh log-in and with a reason; Cleo looks at it afterwards."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from approvals import (
    glass_decisions,
    glass_eligibility,
    grants,
    inbox,
    pauses,
    periodic,
    versions,
)
from approvals.models import Approval, BrokenGlass, Decision, PolicyVersion
from approvals.policy import Invalid, RequiredApprovers, active
from connectors.models import Delivery
from tests.approvals.cast import put_in_force, told
from tests.people import person, team
from tests.worlds import kept
from workspaces import teams
from workspaces.models import Membership, User

pytestmark = pytest.mark.django_db
FINANCE = RequiredApprovers("finance", 1)
WHY = "finance is on a plane"


@pytest.fixture
@kept
def olga(operators):
    return person("olga", operators)


@pytest.fixture
@kept
def eli(acme):
    """Asks; administers nothing."""
    return person("eli", team(acme, "agents", "view", "recover"))


@pytest.fixture
def glass(acme, ada):
    def glass(**said):
        put_in_force(acme, ada, {"policies": {}, "breakGlass": {"after": "15m"} | said})

    return glass


@pytest.fixture
def waits(ask, eli, ben):
    """Asked an hour ago of finance, which is Ben."""

    def waits(*requires, **judged):
        approval = ask(*(requires or (FINANCE,)), by=eli, **judged)
        Approval.objects.filter(pk=approval.pk).update(asked_at=timezone.now() - timedelta(hours=1))
        return Approval.objects.get(pk=approval.pk)

    return waits


def breaks(approval, by, *, reason=WHY, login_at="now"):
    return glass_decisions.agree(
        Approval.objects.get(pk=approval.pk),
        by=by,
        seen=approval.digest,
        reason=reason,
        login_at=timezone.now() if login_at == "now" else login_at,
    )


def test_two_others_decide_together_and_everybody_hears_of_it(
    client, acme, ada, olga, ben, cleo, eli, glass, waits
):
    glass()
    User.objects.filter(pk=ben.pk).update(mail_approvals=False)
    approval = waits(risk="high")
    card = f"/w/acme/approvals/{approval.pk}/"
    client.force_login(ada)
    assert "If nobody who is asked can be reached" in client.get(card).content.decode()
    client.force_login(eli)
    assert "If nobody who is asked can be reached" not in client.get(card).content.decode()

    assert breaks(approval, ada).state == "waiting"
    assert not grants.still_entitled(Approval.objects.get(pk=approval.pk))
    client.force_login(cleo)
    begun_card = client.get(card).content.decode()
    assert "it takes a second person" in begun_card
    assert "Somebody began to break the glass" in begun_card
    assert "So far:" not in begun_card, "a yes of the glass is none of those that are asked for"
    assert breaks(approval, olga).state == "granted"

    written = {one.recipient for one in Delivery.objects.filter(subject="approval.break_glass")}
    assert written == {one.email for one in (ada, olga, ben, cleo)}
    begun, opened = told(acme, "break_glass.begun"), told(acme, "break_glass.opened")
    assert (begun[0]["people"], opened[0]["people"]) == (["Ada"], ["Ada", "Olga"])
    assert [one["complete"] for one in told(acme, "approval.granted")] == [False, True]
    client.force_login(cleo)
    assert "The glass was broken" in client.get("/w/acme/queue/").content.decode()
    assert "Ada and Olga decided in place of those" in client.get(card).content.decode()
    assert grants.use(approval.pk, approval.digest)


def test_somebody_who_took_no_part_looks_at_it(client, acme, ada, olga, cleo, eli, glass, waits):
    glass()
    approval = waits()
    review, health = (
        f"/w/acme/approvals/{approval.pk}/break-glass/review/",
        "/w/acme/approvals/health/",
    )
    breaks(approval, ada)
    client.force_login(cleo)
    assert client.post(review, {"review": "fine"}).status_code == 403, "it still waits"
    breaks(approval, olga)
    for who in (ada, olga, eli):
        client.force_login(who)
        assert "You cannot close this" in client.get(health).content.decode()
        assert client.post(review, {"review": "fine"}).status_code == 403
    client.force_login(cleo)
    assert client.get(health).content.decode().count(WHY) == 1, "they said the same"
    much = "The plane was real. " * 200
    for typed, wrong in ((" ", "say what you found"), (much, "Shorten what you wrote")):
        kept = client.post(review, {"review": typed})
        assert (kept.status_code, wrong.lower() in kept.text.lower()) == (422, True)
        assert f">{typed.strip()}" in kept.text.replace("\n", ""), "nothing typed is lost"
    assert BrokenGlass.objects.get().reviewed_at is None

    client.post(review, {"review": "The plane was real."})

    assert "to be reviewed" not in client.get(health).content.decode()
    assert "The glass was broken" not in client.get("/w/acme/queue/").content.decode()
    shown = client.get(f"/w/acme/approvals/{approval.pk}/").content.decode()
    assert "The plane was real." in shown
    assert "Who was asked" in shown
    assert [one["review"] for one in told(acme, "break_glass.reviewed")] == ["The plane was real."]


def test_it_is_off_unless_the_policy_says_otherwise(acme, ada, olga, glass, waits):
    approval, critical = waits(), waits(risk="critical")
    with pytest.raises(inbox.NotEntitled, match="lets nobody"):
        breaks(approval, ada)
    glass()
    with pytest.raises(inbox.NotEntitled, match="lets nobody"):
        breaks(critical, ada)
    glass(upTo="CRITICAL")
    breaks(critical, ada)
    glass(after="2h")
    with pytest.raises(inbox.NotEntitled, match="have until"):
        breaks(approval, ada)


def test_it_takes_a_fresh_login_a_reason_and_who_the_policy_names(
    acme, ada, olga, cleo, glass, waits
):
    glass()
    approval = waits()
    for old in (None, timezone.now() - timedelta(minutes=6)):
        with pytest.raises(inbox.NeedsFreshLogin):
            breaks(approval, ada, login_at=old)
    with pytest.raises(ValueError, match="Say why"):
        breaks(approval, ada, reason=" ")
    with pytest.raises(inbox.NotEntitled, match="lets others"):
        breaks(approval, cleo)

    person("lea", acme.teams.get(name="leads"))
    glass(group="leads")
    breaks(approval, cleo)
    with pytest.raises(inbox.NotEntitled, match="lets others"):
        breaks(approval, ada)


TAKE_NO_PART = (
    "asked", "owns the agent", "is asked", "answered already", "was invited by who asks",
    "was invited by the other",
)  # fmt: skip


@pytest.mark.parametrize("who", TAKE_NO_PART)
def test_whom_it_concerns_takes_no_part(
    who, acme, ada, olga, eli, operators, finance, glass, waits
):
    glass()
    approval = waits()
    if who == "asked":
        Approval.objects.filter(pk=approval.pk).update(requested_by=ada)
    elif who == "owns the agent":
        Approval.objects.filter(pk=approval.pk).update(agent_owner=ada, self_approval=True)
    elif who == "is asked":
        teams.add(finance, ada, by=None)
        teams.grant(operators, "approve", by=None)
    elif who == "answered already":
        breaks(approval, ada)
    else:
        by = eli if "asks" in who else olga
        Membership.objects.filter(person=ada).update(added_by=by, sponsors=[by.pk],
                                                     added_at=timezone.now())  # fmt: skip
        if by == olga:
            breaks(approval, olga)

    with pytest.raises(inbox.NotEntitled):
        breaks(approval, ada)
    if who not in {"is asked", "answered already"}:
        BrokenGlass.objects.get_or_create(approval=approval, defaults={"workspace": acme})
        with pytest.raises(IntegrityError), transaction.atomic():
            Decision.objects.create(
                approval=approval, person=ada, granted=True, break_glass=True,
                fresh_login_at=timezone.now(),
            )  # fmt: skip


@pytest.mark.parametrize("lost", ["the right", "the policy's word", "nothing"])
def test_it_is_used_only_while_both_still_may(lost, acme, ada, olga, operators, glass, waits):
    glass()
    approval = waits()
    breaks(approval, ada)
    breaks(approval, olga)
    person("piet", operators)
    if lost == "the right":
        teams.remove(operators, olga, by=None)
    elif lost == "the policy's word":
        put_in_force(acme, ada, {"policies": {}})

    assert grants.still_entitled(Approval.objects.get(pk=approval.pk)) is (lost == "nothing")


def test_of_one_who_may_no_longer_the_yes_counts_again_once_they_may(
    acme, ada, olga, cleo, operators, glass, waits
):
    """Two had agreed of whom one might not just then: it waited for a third, as “3 of 2”."""
    glass()
    approval, piet = waits(), person("piet", operators)
    breaks(approval, ada)
    teams.remove(operators, ada, by=None)
    breaks(approval, olga)
    offer = glass_decisions.offer(approval, piet, fresh_login_url="")
    assert offer["label"] == "Break the glass (2 of 2)"
    assert [one["people"] for one in told(acme, "break_glass.begun")] == [["Ada"], ["Olga"]]
    assert periodic.complete_due() == 0

    teams.add(operators, ada, by=None)
    assert glass_decisions.offer(approval, piet, fresh_login_url="") is None, "“3 of 2”"

    assert periodic.complete_due() == 1
    assert [one["people"] for one in told(acme, "break_glass.opened")] == [["Ada", "Olga"]]
    assert BrokenGlass.objects.get().opened_at is not None
    assert len(set(Delivery.objects.filter(recipient=cleo.email).values_list("pk"))) == 3
    assert grants.use(approval.pk, approval.digest)
    assert periodic.complete_due() == 0


def test_those_who_are_asked_decide_as_ever(acme, ada, ben, glass, waits):
    glass()
    approval = waits()
    breaks(approval, ada)

    inbox.reject(
        Approval.objects.get(pk=approval.pk), by=ben, seen=approval.digest, reason="I am here"
    )

    assert not glass_eligibility.stands(approval)
    assert BrokenGlass.objects.get().opened_at is None


def test_what_must_be_signed_is_signed_by_each_of_the_two(acme, ada, glass, waits):
    from approvals import signatures

    glass()
    approval = waits(signed=True)

    with pytest.raises(signatures.NotSigned):
        breaks(approval, ada)


def test_nobody_breaks_it_while_the_desk_itself_holds_everything(acme, ada, glass, waits):
    glass()
    approval = waits()
    pauses.hold_after_restore(acme, "The log went back.", {}, taken_at=timezone.now())

    with pytest.raises(inbox.NotEntitled, match="The log went back"):
        breaks(approval, ada)
    assert not BrokenGlass.objects.exists()


def test_the_database_lets_nobody_break_it_past_the_desk(acme, ada, waits):
    approval = waits()
    with pytest.raises(IntegrityError, match="nobody has broken the glass"), transaction.atomic():
        Decision.objects.create(approval=approval, person=ada, granted=True, break_glass=True,
                                fresh_login_at=timezone.now())  # fmt: skip
    BrokenGlass.objects.create(approval=approval, workspace=acme)
    with pytest.raises(IntegrityError, match="glass_is_broken_by_two_others"):
        Decision.objects.create(approval=approval, person=ada, granted=True, break_glass=True)


def test_a_policy_names_a_team_of_two_at_least_or_is_not_saved(acme, ada, glass):
    for name, why in (("nobody", "there is no team “nobody”"), ("pair", "“pair” has 1")):
        if name == "pair":
            person("pia", team(acme, "pair", "view", "approve"))
        with pytest.raises(Invalid, match=why):
            glass(group=name)
    person("pat", acme.teams.get(name="pair"))
    glass(group="pair")


def test_a_team_that_only_looks_on_is_named_by_no_new_policy_and_one_that_stands_is_read(
    acme, ada, glass
):
    onlookers = team(acme, "onlookers", "view", "administer")
    for name in ("pia", "pat"):
        person(name, onlookers)
    glass(group="onlookers")

    teams.withdraw(onlookers, "administer", by=ada)

    with pytest.raises(Invalid, match="“onlookers” may only look on"):
        glass(group="onlookers")
    [standing] = PolicyVersion.objects.filter(workspace=acme, active=True)
    assert active(acme).break_glass.group == "onlookers", "what is in force is read as it was"
    assert versions.activate(standing, by=ada).active
