"""One act on many cases: exactly those that were shown, each with its own plan and its own end."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from approvals import versions
from ledger.models import Event
from recovery.casework import bulk, cases
from recovery.casework.bulk_verbs import VERBS
from recovery.models import BulkItem, BulkJob, Case, CaseState, Directive, Plan
from recovery.planning import plans
from recovery.triage import triage
from recovery.views import bulk as bulk_pages
from tests.locks import comes_before_the_commit
from tests.people import person
from tests.recovery.cases.conftest import POLICY
from tests.recovery.engine import by_hand
from tests.worlds import kept
from workspaces.free_text import REASON_CHARACTERS_MAX, InvalidInput
from workspaces.models import Team


def frozen(seen):
    return [bulk.FrozenCase(one.case.pk, one.case.revision, one.digest) for one in seen.eligible]


def test_the_dry_run_says_who_is_meant_and_who_not(three, acme, ada, finn):
    second = Case.objects.get(run__run="run_2")
    cases.claim(second, by=finn, seen=second.revision)

    seen = bulk.dry_run(acme, "compensate", by=ada, query="is:open")

    assert [one.case.run.run for one in seen.eligible] == ["run_1"]
    assert [one.why for one in seen.not_eligible] == [
        "Finn has claimed it.",
        "Settle tickets.update first: nobody knows whether it happened.",
    ]
    assert seen.customers == 1
    assert not BulkItem.objects.exists()


@pytest.mark.parametrize("act", VERBS)
def test_a_dry_run_of_many_cases_asks_the_database_as_often_as_of_one(three, acme, ada, act):
    ids = list(Case.objects.filter(run__run__in=["run_1", "run_2"]).values_list("pk", flat=True))

    def asked(ids):
        with CaptureQueriesContext(connection) as queries:
            assert len(bulk.dry_run(acme, act, by=ada, ids=ids).eligible) == len(ids)
        return len(queries)

    assert asked(ids) == asked(ids[:1])


def test_law_14_each_case_gets_its_own_plan_and_done_is_not_fixed(three, acme, ada, shop):
    seen = bulk.dry_run(acme, "compensate", by=ada, query="")
    job = bulk.start(acme, "compensate", by=ada, reason="Same cause", frozen=frozen(seen))

    assert bulk.sweep() == 2
    assert bulk.counts(job) == {"done": 2, "restored": 0, "asked": 0}
    for plan in Plan.objects.all():
        by_hand.advance(plan.pk)

    assert bulk.counts(job) == {"done": 2, "restored": 2, "asked": 0}
    job.refresh_from_db()
    assert job.ended_at is not None
    assert Event.objects.get(type="case.bulk_started").actor == str(ada.pk)
    priorities = dict(shop.execute("SELECT id, priority FROM tickets").fetchall())
    assert (priorities["T-1"], priorities["T-2"], priorities["T-3"]) == ("normal", "normal", "high")


def test_what_changed_since_the_dry_run_is_refused_by_itself(three, acme, ada, shop):
    seen = bulk.dry_run(acme, "compensate", by=ada)
    first = seen.eligible[0].case
    cases.report(first.run, text="Look at this one", by=ada)
    shop.execute("UPDATE tickets SET assignee = 'Finn' WHERE id = 'T-2'")

    bulk.start(acme, "compensate", by=ada, reason="x", frozen=frozen(seen))
    bulk.sweep()

    assert [(one.state, one.detail) for one in BulkItem.objects.order_by("pk")] == [
        ("refused", "Somebody changed this case since you saw it."),
        ("refused", "Step 1 has drifted: choose what should happen."),
    ]
    assert not Plan.objects.exists()


def test_stop_leaves_out_what_has_not_begun(three, acme, ada):
    seen = bulk.dry_run(acme, "close", by=ada, query="run:run_1 OR run:run_2")
    job = bulk.start(acme, "close", by=ada, reason="A drill", frozen=frozen(seen))

    assert bulk.stop(job, by=ada) == 2
    assert bulk.sweep() == 0
    assert Case.objects.filter(state=CaseState.CLOSED).count() == 0

    again = bulk.start(acme, "close", by=ada, reason="A drill", frozen=frozen(seen))
    bulk.sweep()
    assert bulk.counts(again)["done"] == 2
    assert Case.objects.filter(outcome="expected").count() == 2


@pytest.mark.parametrize("act", ["compensate", "resume"])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_worker_that_was_lost_with_an_item_leaves_nothing_untrue(three, acme, ada, act, stopped):
    """Killed after the act and before its note, and before the act: the page tells each as it is.
    It said of the first that it was refused, and after Stop such a job was at work for ever."""
    seen = bulk.dry_run(acme, act, by=ada, query="run:run_1 OR run:run_2")
    job = bulk.start(acme, act, by=ada, reason="Same cause", frozen=frozen(seen))
    [first], [second] = bulk._taken(), bulk._taken()
    VERBS[act].work([first])
    if stopped:
        assert bulk.stop(job, by=ada) == 0
    BulkItem.objects.update(taken_at=F("taken_at") - timedelta(minutes=10))

    bulk.sweep()
    bulk._keep([second], [PermissionDenied("too late")])

    told = [(one.state, one.plan_id) for one in BulkItem.objects.order_by("pk")]
    plans_of = [plan.pk for plan in Plan.objects.order_by("pk")] or [None, None]
    assert told == (
        [("done", plans_of[0]), ("stopped", None)] if stopped
        else [("done", plans_of[0]), ("done", plans_of[1])]
    )  # fmt: skip
    acted = Plan.objects if act == "compensate" else Directive.objects
    assert acted.count() == (1 if stopped else 2)
    job.refresh_from_db()
    assert job.ended_at is not None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", ["compensate", "close"])
def test_a_worker_that_was_only_slow_is_told_of_by_who_took_its_place(three, acme, ada, act):
    """It counted as lost, and is done first after all: the item said that it was refused."""
    seen = bulk.dry_run(acme, act, by=ada, query="run:run_1")
    bulk.start(acme, act, by=ada, reason="Same cause", frozen=frozen(seen))
    [slow] = bulk._taken()
    BulkItem.objects.update(taken_at=F("taken_at") - timedelta(minutes=10))

    def do():
        bulk._keep([slow], VERBS[act].work([slow]))

    assert comes_before_the_commit(do, bulk.sweep) == 1

    plan = Plan.objects.first()
    assert [(one.state, one.plan_id) for one in BulkItem.objects.all()] == [
        ("done", plan.pk if plan else None)
    ]


def test_runs_of_which_nothing_could_be_done_twice_go_on_together(three, acme, ada):
    seen = bulk.dry_run(acme, "resume", by=ada, query="is:open")

    assert [one.headline for one in seen.eligible] == ["Resume from the start: 1 done"] * 2
    assert [one.why for one in seen.not_eligible] == [
        "Settle tickets.update first: nobody knows whether it happened."
    ]
    job = bulk.start(acme, "resume", by=ada, reason="The gateway is back", frozen=frozen(seen))
    bulk.sweep()

    assert bulk.counts(job)["done"] == 2
    told = Directive.objects.filter(kind="resume", withdrawn_at=None)
    assert sorted(told.values_list("run__run", flat=True)) == ["run_1", "run_2"]
    assert set(told.values_list("issued_by", flat=True)) == {ada.pk}
    assert Case.objects.filter(state=CaseState.RESUMING).count() == 2


@pytest.fixture
@kept(in_turn=True)
def stopped_twice(begin_run):
    """Two runs, each with a checkpoint “booked”; the second has another one behind it."""
    made = []
    for number in (1, 2):
        run = begin_run(f"run_{number}")
        run.does("flights.book", ("booking", f"B-{number}", None, {"to": "Lisbon"}))
        for name in ("booked", "noted")[:number]:
            run.n += 1
            run.send("run.checkpoint", name=name, state={}, completed=[], pending=[])
            run.does("notes.add", ("note", f"{name}-{number}", None, {"text": "x"}))
        run.fails("hotels.book")
        run.ends("failed")
        made.append(run.case())
    return made


def test_many_runs_go_on_from_a_checkpoint_that_all_of_them_have(stopped_twice, acme, ada):
    ids = [case.pk for case in stopped_twice]

    def seen(resume_from=""):
        return bulk.dry_run(acme, "resume", by=ada, ids=ids, chosen=resume_from)

    assert seen().checkpoints == ["booked"]
    assert [one.headline.split(":")[0] for one in seen().eligible] == [
        "Resume from booked", "Resume from noted",
    ]  # fmt: skip
    alone = seen("named:noted")
    assert [one.why for one in alone.not_eligible] == ["It has no checkpoint “noted”."]
    assert [one.case.pk for one in alone.eligible] == ids[1:]

    both = seen("named:booked")
    bulk.start(acme, "resume", by=ada, reason="x", frozen=frozen(both), chosen=both.chosen)
    bulk.sweep()

    told = Directive.objects.order_by("run__run").values_list("checkpoint__name", flat=True)
    assert list(told) == ["booked", "booked"]


def test_a_checkpoint_that_came_since_the_dry_run_is_not_resumed_from(raises, acme, ada):
    run = raises(1)
    run.ends("failed")
    case = run.case()
    seen = bulk.dry_run(acme, "resume", by=ada, ids=[case.pk])
    run.n += 1
    run.send("run.checkpoint", name="moved", state={}, completed=["act_1"], pending=[])
    triage.look()
    case.refresh_from_db()
    frozen_now = [bulk.FrozenCase(case.pk, case.revision, seen.eligible[0].digest)]

    bulk.start(acme, "resume", by=ada, reason="x", frozen=frozen_now)
    bulk.sweep()

    assert BulkItem.objects.get().detail == "What would happen has changed since you saw it."
    assert not Directive.objects.exists()


def test_a_reason_is_kept_whole_or_refused_in_words(three, acme, ada):
    seen = bulk.dry_run(acme, "close", by=ada, query="run:run_1 OR run:run_2")
    given = {"by": ada, "frozen": frozen(seen)}
    longest = "x" * REASON_CHARACTERS_MAX
    with pytest.raises(InvalidInput, match="it has 2,001 characters, of which 2,000 can be kept"):
        bulk.start(acme, "close", reason=longest + "x", **given)
    assert not BulkJob.objects.exists()

    assert bulk.start(acme, "close", reason=longest, **given).reason == longest


def test_many_cases_are_closed_as_what_they_are(three, acme, ada):
    seen = bulk.dry_run(acme, "close", by=ada, query="run:run_1 OR run:run_2")
    given = {"by": ada, "reason": "Support did it by hand", "frozen": frozen(seen)}
    with pytest.raises(InvalidInput):
        bulk.start(acme, "close", chosen="restored", **given)

    bulk.start(acme, "close", chosen="already_handled", **given)
    bulk.sweep()

    assert Case.objects.filter(outcome="already_handled").count() == 2


@pytest.fixture
@kept(in_turn=True)
def five(raises):
    """Five failed runs with a raised ticket each, and their cases, in order."""
    runs = [raises(number).ends("failed") for number in range(1, 6)]
    return [(run, run.case()) for run in runs]


def test_closed_together_each_case_keeps_its_own_checks_and_its_own_event(five, acme, ada, finn):
    seen = bulk.dry_run(acme, "close", by=ada)
    (first, _), (_, second), (third, _), (fourth, _), (fifth, _) = five
    cases.report(first.row, text="Look at this one", by=ada)
    cases.claim(second, by=finn, seen=second.revision)
    third.plans("tickets.update", ("ticket", "main/T-3"))  # heard late, and not looked at yet

    bulk.start(acme, "close", by=ada, reason="A drill", frozen=frozen(seen))
    assert bulk.sweep() == 5

    assert [(one.state, one.detail) for one in BulkItem.objects.order_by("pk")] == [
        ("refused", "Somebody changed this case since you saw it."),
        ("refused", "Finn has claimed it."),
        ("refused", "Settle tickets.update first: nobody knows whether it happened."),
        ("done", ""),
        ("done", ""),
    ]
    told = {one.run: one for one in Event.objects.filter(type="case.closed")}
    assert told.keys() == {fourth.run, fifth.run}
    assert {one.actor for one in told.values()} == {str(ada.pk)}
    assert [one["target"]["id"] for one in told[fifth.run].data["standing"]] == ["main/T-5"]
    closed = Case.objects.filter(state=CaseState.CLOSED).order_by("pk")
    assert [(one.run.run, one.closed_by, one.closing_reason) for one in closed] == [
        (fourth.run, ada, "A drill"),
        (fifth.run, ada, "A drill"),
    ]
    triage.look()
    assert Case.objects.filter(state=CaseState.CLOSED).count() == 2, "its reasons are answered"


def test_many_are_closed_for_the_price_of_two(five, acme, ada):
    meant = frozen(bulk.dry_run(acme, "close", by=ada))

    def asked(some):
        bulk.start(acme, "close", by=ada, reason="A drill", frozen=some)
        with CaptureQueriesContext(connection) as queries:
            assert bulk.sweep() == len(some)
        return len(queries)

    assert asked(meant[:2]) == asked(meant[2:])


def test_one_that_cannot_be_closed_at_all_holds_up_no_other(five, acme, ada):
    meant = frozen(bulk.dry_run(acme, "close", by=ada))
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'a broken row'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER broken BEFORE UPDATE ON recovery_case FOR EACH ROW"
            f" WHEN (OLD.id = {meant[1][0]}) EXECUTE FUNCTION broken()"
        )

    job = bulk.start(acme, "close", by=ada, reason="A drill", frozen=meant)

    assert bulk.sweep() == 4
    assert bulk.counts(job) == {"done": 4, "working": 1, "restored": 0, "asked": 0}
    assert Case.objects.filter(state=CaseState.CLOSED).count() == 4
    assert Event.objects.filter(type="case.closed").count() == 4


def test_who_may_no_longer_recover_starts_nothing(three, acme, ada, operators):
    seen = bulk.dry_run(acme, "compensate", by=ada)
    bulk.start(acme, "compensate", by=ada, reason="x", frozen=frozen(seen))
    ada.groups.remove(operators.group)

    bulk.sweep()

    assert set(BulkItem.objects.values_list("state", flat=True)) == {"refused"}
    assert not Plan.objects.exists()


def test_the_dry_run_refuses_what_the_job_would_refuse_in_the_same_words(three, acme, ada, shop):
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1 WHERE id = 'T-2'")

    seen = bulk.dry_run(acme, "compensate", by=ada, query="run:run_1 OR run:run_2")

    assert [one.case.run.run for one in seen.eligible] == ["run_1"]
    [refused] = seen.not_eligible
    assert refused.why == "Step 1 has drifted: choose what should happen."
    bulk.start(acme, "compensate", by=ada, reason="x", frozen=frozen(seen))
    bulk.sweep()
    assert [one.state for one in BulkItem.objects.all()] == ["done"], "none of them was refused"
    draft = plans.draft(refused.case)
    with pytest.raises(plans.CannotSubmit) as said:
        plans.submit(
            refused.case, digest=draft.digest, revision=draft.case.revision, by=ada, reason="x"
        )
    assert str(said.value) == refused.why


def test_what_waits_for_people_is_counted_beside_what_is_restored(three, acme, ada, leads):
    asks = POLICY.replace(
        "      - {risk: LOW, approval: AUTO}",
        "      - {risk: LOW, approval: MANUAL, requires: [{group: leads}]}",
    )
    versions.activate(versions.save(acme, asks, by=None), by=None)
    person("gwen", leads)
    seen = bulk.dry_run(acme, "compensate", by=ada, query="")
    job = bulk.start(acme, "compensate", by=ada, reason="Same cause", frozen=frozen(seen))

    bulk.sweep()

    assert bulk.counts(job) == {"done": 2, "restored": 0, "asked": 2}


def test_a_dry_run_names_the_team_that_nobody_can_be_asked_from(three, acme, ada):
    asks = POLICY.replace(
        "      - {risk: LOW, approval: AUTO}",
        "      - {risk: LOW, approval: MANUAL, requires: [{group: leads}]}",
    )
    versions.activate(versions.save(acme, asks, by=None), by=None)
    Team.objects.filter(workspace=acme, name="leads").delete()

    seen = bulk.dry_run(acme, "compensate", by=ada, query="run:run_1")

    assert seen.eligible == []
    assert "which Acme does not have" in seen.not_eligible[0].why


def test_a_target_that_cannot_be_read_is_told_and_decided_at_the_submission(three, acme, ada):
    seen = bulk.dry_run(acme, "compensate", by=ada, query="run:run_1")
    assert seen.unread == 0
    assert bulk_pages.tiles(seen)[-1]["name"] == "Irreversible"

    unread = replace(seen.eligible[0], unread=1)
    seen.eligible[:] = [unread]

    assert bulk_pages.tiles(seen)[-1] == {"name": "Not read yet", "value": "1"}
    assert "when it is submitted" in bulk_pages.eligible(unread)["note"]
