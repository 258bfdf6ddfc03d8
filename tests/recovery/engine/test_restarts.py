"""Law 7: a process that ends between any two writes leaves the queue and the undo unchanged."""

import itertools
from contextlib import ExitStack, suppress
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from approvals import pauses, plan_sums
from approvals.models import Approval, Pause
from ledger.merkle import ParsedHead
from ledger.models import Effect, Event, Run
from recovery import restoration
from recovery.casework import settling
from recovery.engine import faults, outbound_calls
from recovery.engine.faults import Fault, Injected
from recovery.models import Case, Plan
from tests.people import person, team
from tests.proxy import CommitInDoubt, Proxy
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import advance, asked, case_of, make_due, plan_for, run_that, states
from workspaces.replica import DATABASE_AWAY

pytestmark = pytest.mark.django_db(transaction=True)

POINTS = (
    "claimed", "checked", "intending", "intended", "answered", "settling", "settled", "ending",
)  # fmt: skip


@pytest.fixture
def fail_at(monkeypatch):
    """Let a crash point end the work, the n-th time that it is passed; "1+3" is twice."""

    def arrange(**nth):
        faults._passed.clear()
        for point, counts in nth.items():
            monkeypatch.setitem(faults.FAULTS, point, Fault("raise", str(counts)))

    yield arrange
    faults._passed.clear()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("operation", ["restore", "refund_unseen"])
def test_law_7_an_end_at_any_point_of_any_step_leaves_one_effect(
    case, world, outside, fail_at, point, operation
):
    plan = plan_for(case, world, operation)
    fail_at(**{point: "1+3"})

    for _ in range(2):
        with pytest.raises(Injected):
            advance(plan)
    advance(plan)

    assert set(states(plan)) <= {"verified", "reported"}
    assert outside.effects() == ["c", "b", "a"]
    plan.refresh_from_db()
    case.refresh_from_db()
    closes = operation == "restore"  # of the other, nothing can be read back
    assert (plan.state, case.state) == ("finished", "closed" if closes else "open")
    assert Case.objects.get() == case, "nothing more is in the queue"


@pytest.fixture
def through(monkeypatch):
    """Our connection to PostgreSQL goes through a proxy that cuts it."""
    connection.ensure_connection()
    socket = f"{connection.connection.info.host}/.s.PGSQL.5432"
    with ExitStack() as proxies:

        def goes(kind, *how):
            proxy = proxies.enter_context(kind(socket, *how))
            monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
            monkeypatch.setitem(connection.settings_dict, "PORT", str(proxy.port))
            connection.close()
            return proxy

        yield goes
        monkeypatch.undo()
        connection.close()


def run_while_it_is_cut(plan):
    """As the sweeper does: once more, where the database went away."""
    for _ in range(5):
        try:
            return advance(plan)
        except DATABASE_AWAY:
            connection.close()
    raise AssertionError("It does not come to its end.")


@pytest.mark.parametrize("fate", ["never", "silent"])
@pytest.mark.parametrize(("operation", "trouble"), [("restore", {"fail_after": 1}), ("mail", {})])
def test_the_line_to_the_database_is_cut_at_each_commit_in_turn_and_each_effect_comes_once(
    handy, world, outside, through, operation, trouble, fate
):
    """Before it arrives, or after it is made."""
    for nth in itertools.count():
        name = f"{fate}-{nth}"
        outside.seed({name: {"v": 2}})
        outside.mischief(name, **trouble)
        case = case_of(run_that(handy, name, {name: ({"v": 1}, {"v": 2})}))
        plan = plan_for(case, world, operation)
        proxy = through(CommitInDoubt, b"", ["kept"] * nth + [fate])

        run_while_it_is_cut(plan)

        step, done = plan.steps.get(), outside.effects().count(name)
        stands = Effect.objects.get(pk=step.effect_id).compensated == "none"
        if operation == "mail" and step.state == "needs_human":
            assert (stands, step.is_lost, done <= 1) == (True, True, True)
        else:
            assert (step.state in {"verified", "reported"}, stands, done) == (True, False, 1)
            assert Plan.objects.get(pk=plan.pk).state == "finished"
        told = Event.objects.filter(type="action.compensated", run=name)
        assert told.count() == (not stands)
        if fate not in proxy.met:
            assert nth > 5
            return


class CutAtSettling(Proxy):
    """Cuts once, as what a plan holds of the sums of rules is let go."""

    is_cut = False

    def _heard(self, near, piece):
        cuts = not self.is_cut and plan_sums.SETTLE[:40].encode() in piece
        self.is_cut |= cuts
        return not cuts


def test_a_database_that_goes_away_as_sums_are_settled_is_no_failure_of_the_engine(
    case, world, outside, through
):
    """People were told that the desk itself failed at the plan."""
    plan = plan_for(case, world, "restore")
    proxy = through(CutAtSettling)

    run_while_it_is_cut(plan)

    assert proxy.is_cut
    plan.refresh_from_db()
    assert plan.state == "finished"


@pytest.mark.parametrize(
    ("point", "ends", "sent"),
    [("claimed", "reported", 1), ("intended", "needs_human", 0), ("answered", "needs_human", 1)],
)
def test_law_3_killed_where_nothing_keeps_a_mail_from_going_twice_people_are_asked(
    case, world, outside, fail_at, point, ends, sent
):
    """Before the intent it is simply sent; after it, nobody knows, and it is never repeated."""
    plan = plan_for(case, world, {"a": "restore", "b": "restore", "c": "mail"})
    fail_at(**{point: 1})

    with suppress(Injected):
        by_hand.advance(plan.pk)
    advance(plan)

    assert states(plan) == [ends, "verified", "verified"]
    assert outside.effects().count("c") == sent


def test_a_desk_that_was_restored_sends_nothing_more_of_what_ran_and_voids_what_was_granted(
    case, world, outside, fail_at, handy, ada
):
    """What the backup has of a plan is old: a call on its way is unknown, the rest is not sent."""
    second = case_of(run_that(handy, "second", {"d": ({"v": 1}, {"v": 2})}))
    other = asked(plan_for(second, world, "restore"), ada)
    Approval.objects.filter(pk=other.pk).update(
        state="granted", was="waiting", decided_at=timezone.now()
    )
    plan = plan_for(case, world, "restore")
    fail_at(intended=1)
    with suppress(Injected):
        by_hand.advance(plan.pk)
    assert "intended" in states(plan)

    with transaction.atomic():
        held = restoration.hold_everything(
            timezone.now(), {"acme": ["7 signed entries are missing"]}
        )
    lost = plan.steps.get(state="unknown")  # nobody waits for an answer that was due before it
    waits = (lost.wake_at - lost.moved_at).total_seconds()
    limit = outbound_calls.operation_of(lost).limit_seconds
    assert waits >= limit - 0.1, "it may have left just then"
    advance(plan)

    assert held["plans stopped"] == held["calls now unknown"] == held["grants void"] == 1
    advance(plan)
    assert states(plan) == ["cancelled"] * 3, "it was looked for, and had not happened"
    assert outside.effects() == []
    plan.refresh_from_db()
    assert plan.state == "stopped"
    assert Approval.objects.get(pk=other.pk).state == "withdrawn"
    assert "7 signed entries are missing" in Pause.objects.get().reason


@pytest.mark.parametrize("ran", [True, False])
def test_law_3_after_a_restore_a_mail_that_may_have_gone_since_is_a_persons_to_send(
    case, world, outside, ran
):
    """Nobody can look for it, and nothing would keep it from going twice; a key would."""
    operations = {"a": "restore", "b": "refund_unseen", "c": "mail"}
    earlier = plan_for(case, world, operations)
    if ran:
        by_hand.advance_once(earlier.pk)

    with transaction.atomic():
        restoration.hold_everything(timezone.now(), {})
    boss = person("boss", team(case.workspace, "bosses", "view", "administer"))
    pauses.lift(Pause.objects.get(), by=boss)
    plan = earlier
    if ran:
        advance(earlier)
        plan = plan_for(case, world, operations)
    advance(plan)

    assert states(plan) == ["needs_human", "reported", "verified"]
    assert "c" not in outside.effects()
    assert "b" in outside.effects()


@pytest.mark.parametrize(
    ("drafted", "ends"),
    [
        (timedelta(), "reported"),
        (timedelta(minutes=2), "needs_human"),  # its key is no longer remembered
    ],
)
def test_law_3_after_a_log_went_back_a_mail_that_may_have_gone_is_a_persons_to_send(
    case, world, outside, drafted, ends
):
    """F16: the intent, and that it was sent, may be among the entries that are gone."""
    plan = plan_for(case, world, {"a": "restore", "b": "mail", "c": "refund_unseen"})
    Plan.objects.update(drafted_at=F("drafted_at") - drafted)
    with transaction.atomic():
        pauses.hold(case.workspace, ParsedHead("desk/acme", 9, b"r" * 32), 3)

    boss = person("boss", team(case.workspace, "bosses", "view", "administer"))
    pauses.lift(Pause.objects.get(), by=boss)
    advance(plan)

    assert states(plan) == [ends, "needs_human", "verified"]
    assert ("c" in outside.effects()) == (ends == "reported")
    assert "b" not in outside.effects()


@pytest.mark.parametrize("lost_by", ["a restore", "a log that went back"])
@pytest.mark.parametrize(
    ("began", "operations", "ends"),
    [
        (timedelta(), ("refund_unseen", "mail", "note"),
         ["reported", "needs_human", "needs_human"]),
        # The key of the refund is no longer remembered; of a restore a look tells.
        (timedelta(minutes=2), ("refund_unseen", "restore", "mail"),
         ["needs_human", "verified", "needs_human"]),
    ],
)  # fmt: skip
def test_law_3_a_plan_that_was_forgotten_whole_may_have_sent_what_a_new_one_would_send(
    case, world, outside, ada, lost_by, began, operations, ends
):
    with transaction.atomic():
        if lost_by == "a restore":
            restoration.hold_everything(timezone.now(), {})
        else:
            pauses.hold(case.workspace, ParsedHead("desk/acme", 9, b"r" * 32), 3)
    boss = person("boss", team(case.workspace, "bosses", "view", "administer"))
    Run.objects.update(started_at=F("started_at") - began)
    plan = plan_for(case, world, dict(zip("cba", operations, strict=True)))
    pauses.lift(Pause.objects.get(), by=boss)
    advance(plan)

    assert states(plan) == ends
    asked = plan.steps.filter(state="needs_human").order_by("position")
    held = {step.target_id for step in asked}
    assert {*outside.effects()} == {*"abc"} - held
    for step in asked:
        assert "the ledger here lost entries since the run began" in step.note
        case.refresh_from_db()
        settling.try_again(step, reason="Nobody has it.", by=ada, seen=case.revision)
        advance(plan)
        assert outside.effects().count(step.target_id) == 1, "a person has said that it goes"


def test_a_run_that_began_since_the_loss_is_undone_as_ever(case, world, outside):
    with transaction.atomic():
        restoration.hold_everything(timezone.now(), {})
    boss = person("boss", team(case.workspace, "bosses", "view", "administer"))
    pauses.lift(Pause.objects.get(), by=boss)
    Run.objects.update(started_at=timezone.now())
    plan = plan_for(case, world, {"a": "restore", "b": "restore", "c": "mail"})
    advance(plan)
    assert states(plan) == ["reported", "verified", "verified"]


def test_a_database_that_forgot_the_last_step_finds_it_done(case, world, outside):
    """F16: the intent is lost, the key is not: it is a function of the undo alone."""
    plan = plan_for(case, world, "refund")
    advance(plan)
    step = plan.steps.get(position=1)
    step.attempts.all().delete()
    plan.steps.filter(pk=step.pk).update(was="blocked", state="ready", fence=0, claims=0, tries=0)
    Plan.objects.filter(pk=plan.pk).update(was="waiting", state="running")

    advance(plan)

    assert states(plan) == ["verified"] * 3
    assert outside.effects() == ["c", "b", "a"]


MISCHIEF = ({"fail_after": 1}, {"reset_after": 1}, {"truncate": 1}, {"fail": 1}, {"refuse": "no"})
faults_of = st.dictionaries(st.sampled_from(POINTS), st.integers(1, 6), max_size=3)
names = st.sampled_from("abcd")
walks = st.fixed_dictionaries(
    {
        "order": st.permutations("abcd"),
        "operations": st.lists(
            st.sampled_from(["restore", "conditional", "refund", "refund_unseen", "mail"]),
            min_size=4,
            max_size=4,
        ),
        "faults": faults_of,
        "losses": st.dictionaries(names, st.sampled_from(MISCHIEF), max_size=3),
        "drifts": st.sets(names, max_size=2),
    }
)


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(walk=walks)
def test_random_plans_crashes_and_drifts_keep_the_invariants(walk, handy, world, outside, fail_at):
    """I1, I2, I3 and I4, whatever comes together."""
    outside.fresh()
    tag = uuid4().hex[:8]  # its own targets: what an earlier walk left to people holds its own
    changes = {tag + name: ({"v": 1}, {"v": 2}) for name in walk["order"]}
    outside.seed({name: {"v": 77 if name[-1] in walk["drifts"] else 2} for name in changes})
    case = case_of(run_that(handy, f"run_{tag}", changes))
    plan = plan_for(case, world, dict(zip(changes, walk["operations"], strict=True)))
    for name, how in walk["losses"].items():
        outside.mischief(tag + name, **how)
    fail_at(**walk["faults"])

    for _ in range(8):
        with suppress(Injected):
            by_hand.advance(plan.pk)
        make_due(plan)
    faults.FAULTS.clear()
    advance(plan)

    journal = outside.journal()
    assert_sound(plan, journal, walk)
    connection.close()


def assert_sound(plan, journal, walk):
    known = list(plan.steps.order_by("position"))
    keys = [line["key"] for line in journal]
    assert len(keys) == len(set(keys))
    for step in known:
        assert step.state in {"verified", "reported", "drifted", "needs_human"}, step.note
        assert step.attempts.exists() or step.key not in keys
        if step.state == "verified":
            assert step.key in keys
        if step.operation in {"restore", "conditional", "refund"}:
            drifted = step.target_id[-1] in walk["drifts"]
            assert step.state == ("drifted" if drifted else "verified"), step.note
    order = [step.key for step in known if step.key in keys]
    assert order == keys
