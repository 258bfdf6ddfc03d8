"""A desk that came back from a backup goes on with nothing that may have happened after it."""

from datetime import timedelta

import pytest
from allauth.socialaccount.models import SocialAccount, SocialToken
from cryptography.fernet import Fernet
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone

from amends.protocol.vocabulary import EventType
from approvals import approval_requests, inbox, pauses, signatures, signing_keys
from approvals.gate import slow_path
from approvals.models import Approval, Pause
from config import sealed
from ledger import desk_events, logkeys, sealer
from ledger.merkle import ParsedHead
from ledger.models import Action, Run
from recovery import restoration
from recovery.triage import triage
from tests.approvals.cast import put_in_force, told
from tests.approvals.door import Agent as Trip
from tests.approvals.security_key import DESK, SecurityKey
from tests.people import person, team
from tests.worlds import kept
from workspaces.access import NotAllowed
from workspaces.models import Heartbeat, opened_masking_key

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
@kept(in_turn=True)
def trip(key, acme, ada, ben, leads):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    return Trip(key)


@pytest.fixture
def come_back(acme):
    def restore(**lost):
        with transaction.atomic():
            return restoration.hold_everything(timezone.now(), lost)

    return restore


def lift(workspace, held=None):
    held = held or Pause.objects.get(workspace=workspace, lifted_at=None)
    bosses = team(workspace, f"bosses {held.pk}", "view", "administer")
    pauses.lift(held, by=person(f"boss{held.pk}", bosses))


def test_everything_is_held_until_an_administrator_has_looked(
    trip, come_back, acme, globex, ada, ben, client
):
    client.force_login(ada)
    account = SocialAccount.objects.create(user=ada, provider="company", uid="ada")
    SocialToken.objects.create(account=account, token_secret="t")
    Heartbeat.objects.create(name="scheduler", beat_at=timezone.now(), every_seconds=1)

    held = come_back(acme=["7 signed entries are missing"])

    assert (held["workspaces paused"], held["people logged out"]) == (2, 1)
    assert not Session.objects.exists()
    assert not SocialToken.objects.exists(), "what a provider gave then it may have taken back"
    assert not Heartbeat.objects.exists()
    said = trip.begin().json()
    assert (said["answer"], said["code"]) == ("denied", "paused")
    assert "7 signed entries are missing." in said["reason"]
    assert told(acme, "alert.log_went_back")[0]["missing"] == ["7 signed entries are missing"]
    assert set(Pause.objects.values_list("workspace__slug", flat=True)) == {"acme", "globex"}
    with pytest.raises(NotAllowed):
        pauses.lift(Pause.objects.get(workspace=acme), by=ben)


@pytest.mark.parametrize("left", [3, 9], ids=["entries are gone", "nobody can tell"])
def test_a_grant_from_before_a_log_went_back_lets_nothing_run_once_the_pause_is_lifted(
    trip, acme, ben, settings, tmp_path, left
):
    """It looks unused; the entry that told of its use may be one of those that are gone."""
    trip.begin(key="k1", attempt="a1", tool="crm.update")
    trip.begin(key="k2", action="act_2", tool="pay.card", attempt="a2")
    granted = Approval.objects.get()
    inbox.grant(granted, by=ben, seen=granted.digest, reason="fine")
    if left == 9:
        settings.AMENDS_HEADS_FOLDER = str(tmp_path)
        sealer._path("desk/acme").write_text("half a he")
    with transaction.atomic():
        pauses.hold(acme, ParsedHead("desk/acme", 9, b"r" * 32), left)
    trip.send("run.started", run="run_2")

    lift(acme)

    granted.refresh_from_db()
    assert (granted.state, "log went back" in granted.closing_reason) == ("withdrawn", True)
    card = trip.begin(key="k2", action="act_2", tool="pay.card", attempt="b2").json()["answer"]
    other = trip.begin(key="k9", action="act_9", tool="crm.update", attempt="b9").json()["answer"]
    assert (card, other) == (("in_doubt", "in_doubt") if left == 3 else ("wait", "proceed"))
    later = trip.begin(key="k8", action="act_8", tool="crm.update", attempt="b8", run="run_2")
    assert later.json()["answer"] == "proceed", "it began when that was known"


def test_in_a_run_that_lived_a_call_that_is_not_known_is_in_doubt_and_a_case(
    trip, come_back, acme, ben
):
    done = trip.begin(key="k1", attempt="a1")
    trip.succeeded(done, attempt="a1", result={"id": "r1"})
    trip.begin(key="k2", action="act_2", tool="pay.card", attempt="a2")
    granted = Approval.objects.get()
    inbox.grant(granted, by=ben, seen=granted.digest, reason="fine")
    trip.begin(key="k3", action="act_3", run="run_2", attempt="a3")
    trip.send("run.completed", run="run_2")
    trip.begin(key="k4", action="act_4", run="run_3", attempt="a4")
    Run.objects.filter(run="run_3").update(held_by="case 9")
    triage.look()
    come_back()
    lived = Run.objects.get(run="run_1")
    assert lived.revision > lived.seen_revision, "it is looked at anew"
    lift(acme)

    granted.refresh_from_db()
    assert (granted.state, "restored" in granted.closing_reason) == ("withdrawn", True)
    assert trip.begin(key="k1", attempt="b1").json()["answer"] == "replay", "it is known"
    for attempt in ("b2", "b3"):
        assert trip.begin(key="k9", action="act_9", attempt=attempt).json()["answer"] == "in_doubt"
    assert Action.objects.get(key="k9").state == "unknown"
    asked = {"key": "k2", "action": "act_2", "tool": "pay.card"}
    assert trip.begin(**asked, attempt="b4").json()["answer"] == "in_doubt"
    assert trip.begin(key="k8", action="act_8", run="run_2").json()["code"] == "run_ended"
    held = trip.begin(key="k7", action="act_7", run="run_3").json()
    assert held["code"] == "recovery", "nothing begins where a recovery is at work"
    assert trip.begin(key="k6", action="act_6", run="run_9").json()["answer"] == "proceed"


def test_of_one_key_it_is_told_once_though_the_call_is_stopped_for_another_reason_since(
    trip, come_back, acme, ada
):
    """People's word counts from then on: neither a pause nor a rule brings the doubt back."""
    trip.begin(key="k1", attempt="a1")
    come_back()
    lift(acme)
    assert trip.begin(key="k9", action="act_9", attempt="b1").json()["answer"] == "in_doubt"
    settled = {"outcome": "no_effect", "evidence": {"text": "It is not on the bank’s list."}}
    desk_events.record(
        acme, EventType.ACTION_SETTLED, run="run_1", action="act_9", by=ada, data=settled
    )
    placed = pauses.pause(acme, "tool", "crm.*", by=ada, reason="a look")
    for _ in range(2):
        assert trip.begin(key="k9", action="act_9", attempt="b2").json()["code"] == "paused"
    assert len(told(acme, "approval.denied")) == 1, "told once for a reason"
    pauses.lift(placed, by=ada)
    rules = {"pay.*": {"approval": "MANUAL"}, "crm.*": {"approval": "DENY"}}
    put_in_force(acme, ada, {"policies": rules})
    assert trip.begin(key="k9", action="act_9", attempt="b2").json()["code"] == "rule"
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})

    assert trip.begin(key="k9", action="act_9", attempt="b2").json()["answer"] == "proceed"


@pytest.mark.parametrize("again", ["another restore", "a log that went back"])
def test_what_a_key_was_told_of_one_loss_says_nothing_of_the_next(
    trip, come_back, acme, ada, again
):
    """Settled after the first restore, made after the next backup, and forgotten once more."""
    trip.begin(key="k1", attempt="a1")
    come_back()
    lift(acme)
    assert trip.begin(key="k9", action="act_9", attempt="b1").json()["answer"] == "in_doubt"
    settled = {"outcome": "no_effect", "evidence": {"text": "It is not on the bank’s list."}}
    desk_events.record(
        acme, EventType.ACTION_SETTLED, run="run_1", action="act_9", by=ada, data=settled
    )

    if again == "another restore":
        come_back()
    else:
        with transaction.atomic():
            pauses.hold(acme, ParsedHead("desk/acme", 9, b"r" * 32), 3)
    lift(acme)

    assert trip.begin(key="k9", action="act_9", attempt="b2").json()["answer"] == "in_doubt"
    assert Action.objects.get(key="k9").state == "unknown"


def test_a_second_restore_holds_anew_what_the_pause_of_the_first_holds_in_the_backup(
    trip, come_back, acme
):
    """The backup was taken while the first pause stood; it was lifted since, and agents went on."""
    trip.begin(key="k1", attempt="a1")
    come_back()
    come_back(acme=["7 signed entries are missing"])

    with transaction.atomic():  # what the heads outside tell is the same loss
        pauses.hold(acme, ParsedHead("desk/acme", 9, b"r" * 32), 3)
    first, second = pauses.standing_in(acme)
    lift(acme, first)
    said = trip.begin(key="k9", action="act_9", attempt="b1").json()
    assert (said["answer"], said["code"]) == ("denied", "paused")
    assert "7 signed entries" in said["reason"]
    assert "7 signed entries" in pauses.of_the_desk(acme.pk)
    lift(acme, second)
    said = trip.begin(key="k9", action="act_9", attempt="b2").json()
    assert said["answer"] == "in_doubt"


def test_a_run_that_lived_goes_on_so_its_questions_stand_and_it_does_not_fall_silent(
    trip, come_back, acme, ada, ben
):
    trip.begin(key="k1", attempt="a1")
    come_back()
    lift(acme)
    asked = {"key": "k2", "action": "act_2", "tool": "pay.card"}
    assert trip.begin(**asked, attempt="b1").json()["answer"] == "in_doubt"
    settled = {"outcome": "no_effect", "evidence": {"text": "It is not on the bank’s list."}}
    desk_events.record(
        acme, EventType.ACTION_SETTLED, run="run_1", action="act_2", by=ada, data=settled
    )
    assert trip.begin(**asked, attempt="b2").json()["answer"] == "wait"

    assert approval_requests.sweep() == 0

    question = Approval.objects.get()
    inbox.grant(question, by=ben, seen=question.digest, reason="fine")
    assert approval_requests.sweep() == 0
    Run.objects.update(lease_until=timezone.now() - timedelta(hours=1))
    assert trip.begin(**asked, attempt="b2").json()["answer"] == "proceed"
    assert Run.objects.get().lease_until > timezone.now()


def test_what_is_asked_in_runs_that_lived_counts_among_what_an_agent_may_ask_at_once(
    trip, come_back, acme, ada, monkeypatch
):
    trip.begin(key="k1", attempt="a1")
    come_back()
    lift(acme)
    monkeypatch.setattr(slow_path, "OPEN_PER_AGENT_MAX", 1)
    answers = []
    for number in (2, 3):
        asked = {"key": f"k{number}", "action": f"act_{number}", "tool": "pay.card"}
        trip.begin(**asked, attempt=f"b{number}")
        settled = {"outcome": "no_effect", "evidence": {"text": "It is not on the bank’s list."}}
        desk_events.record(
            acme, EventType.ACTION_SETTLED, run="run_1", action=f"act_{number}", by=ada,
            data=settled,
        )  # fmt: skip
        answers.append(trip.begin(**asked, attempt=f"c{number}").json().get("code"))

    assert answers == [None, "too_many_open"]


def test_a_signing_key_is_put_on_record_again_where_the_key_of_the_log_is_lost(
    acme, ada, ben, settings, tmp_path
):
    settings.AMENDS_URL, settings.AMENDS_HEADS_FOLDER = DESK, str(tmp_path)
    blue = SecurityKey(ben)

    def enrol():
        options = signatures.enrolment_options(acme, ben, blue.row)
        return signatures.enrol(acme, blue.row, by=ben, answer=blue.sign(options)).event

    first = enrol()
    assert set(signing_keys.believed(acme, ben)) == {first}
    for opened in (logkeys._private, opened_masking_key):
        opened.cache_clear()
    settings.AMENDS_SECRET_KEYS = [Fernet.generate_key().decode()]
    assert sealed.lost_keys(acme) == [sealed.MASKING, sealed.LOG]

    assert sealed.replace_lost(acme) == [sealed.MASKING, sealed.LOG]

    assert sealed.lost_keys(acme) == []
    assert not signatures.told_of(acme, ben), "nobody can tell that the desk has signed it"
    again = enrol()
    assert set(signing_keys.believed(acme, ben)) == {again}
    assert [one.event for one in signatures.on_record(acme, ben)] == [again]
    for opened in (logkeys._private, opened_masking_key):
        opened.cache_clear()
