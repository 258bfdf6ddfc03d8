"""What opens a case, what it says, and that looking twice changes nothing."""

from datetime import timedelta

import pytest
from django.utils import timezone

from amends.protocol.vocabulary import EventType
from approvals import versions
from approvals.models import PolicyVersion
from connectors import connections
from connectors.contract import Money
from ledger import desk_events
from ledger.models import Effect, Event, Run
from recovery.casework import closing, settling
from recovery.models import AdviceRenewal, Case, CaseState, Suggestion
from recovery.triage import advice, triage
from recovery.triage.detectors import reasons as reasons_of
from tests.recovery.cases.conftest import POLICY

TICKET = ("ticket", "main/T-182", {"priority": "normal"}, {"priority": "high"})
OTHER = ("ticket", "main/T-204", {"priority": "normal"}, {"priority": "high"})


NO_TWINS = POLICY.partition("  twins:")[0] + "  due: {low: 3d, high: 4h}\n"


def test_open_cases_follow_a_policy_that_comes_into_force_and_keep_what_went_wrong(
    three, acme, ada, globex, monkeypatch
):
    monkeypatch.setattr(advice, "ADVISED_CASES", 1)
    first, second, third = three
    closing.close(second, outcome="expected", reason="As meant", by=ada, seen=second.revision)
    told = {one.pk: (one.headline, one.evidence, one.risk) for one in Case.objects.all()}
    assert first.suggestion == "compensate"

    versions.activate(versions.save(acme, NO_TWINS, by=None), by=None)
    assert triage.look() == 0, "no run has changed"
    assert advice.renew() == 2

    first.refresh_from_db()
    assert (first.suggestion, first.suggestion_text) == (
        "compensate",
        "Teach the desk to undo tickets.update",
    )
    third.refresh_from_db()
    assert third.suggestion == "settle"
    assert {one.pk: (one.headline, one.evidence, one.risk) for one in Case.objects.all()} == told
    assert Case.objects.get(pk=second.pk).suggestion == "compensate", "it is closed"
    seen = first.revision
    advice.renew()
    first.refresh_from_db()
    assert first.revision == seen, "looking twice changes nothing"

    versions.activate(versions.save(acme, POLICY, by=None), by=None)
    advice.renew()
    first.refresh_from_db()
    assert (first.suggestion, first.revision) == ("compensate", seen + 1)


def test_open_cases_are_advised_once_for_each_policy_and_again_after_an_upgrade(three, acme):
    PolicyVersion.objects.update(activated_at=timezone.now() - timedelta(hours=1))

    assert (advice.renew(), advice.renew(), advice.renew()) == (3, 0, 0)
    assert AdviceRenewal.objects.get().is_done
    advice.advise_all_anew()
    assert advice.renew() == 3


def test_a_good_run_opens_no_case(begin_run):
    run = begin_run()
    action = run.does("tickets.update", TICKET)
    run.is_verified(action, ok=True)
    run.ends()

    assert run.case() is None
    assert run.row.seen_revision == run.row.revision


def test_a_failed_verification_opens_a_case_in_plain_words(begin_run, shop_connection):
    run = begin_run()
    action = run.does("tickets.update", TICKET)
    run.is_verified(action, ok=False)
    run.ends()

    case = run.case()

    assert case.headline == (
        "Agent “ticket-desk” changed priority on ticket main/T-182,"
        " and a check found it wrong: “flights” is not so"
    )
    assert case.headline_in_full == "Not so: “flights”; found HAT290 instead of HAT074"
    assert case.reasons == ["verification_failed"]
    assert (case.failed_tool, case.failed_target) == ("tickets.update", "ticket main/T-182")
    assert (case.customer, case.customer_name) == ("eve", "Eve Adams")
    assert case.suggestion == Suggestion.COMPENSATE
    assert case.suggestion_reason == (
        "1 effect of this run stands, and what it did was found to be wrong."
    )
    assert case.risk == "low"
    assert case.standing_count == 1
    opened = Event.objects.get(type="case.opened")
    assert opened.run == "run_1"
    assert opened.data["reasons"][0]["code"] == "verification_failed"


def test_an_undo_of_more_than_a_column_holds_is_a_case_as_any_other(begin_run, acme, ada):
    settings = {
        "url": "https://payments.test/amends",
        "operations": {
            "refund": {"title": "Refund {money}", "kind": "money",
                       "amount": "amount", "currency": "currency"}
        },
    }  # fmt: skip
    connections.create(acme, "payments", "webhook", settings, by=ada)
    twins = "twins:\n    cards.charge: {connection: payments, operation: refund}\n"
    document = POLICY.replace("twins:\n", twins)
    versions.activate(versions.save(acme, document, by=None), by=None)
    run = begin_run()
    run.does("cards.charge", ("charge", "ch_1", None, {"amount": 10**30, "currency": "EUR"}))
    run.ends("failed", error={"type": "Broken", "message": "boom"})

    case = run.case()

    assert case is not None
    assert (case.amount_minor, case.currency) == (None, "EUR")
    assert Money(10**30, "EUR").in_column is None


def test_looking_twice_changes_nothing(begin_run):
    run = begin_run()
    run.does("tickets.update", TICKET)
    run.ends("failed", error={"type": "Boom", "message": "it broke"})
    case = run.case()

    triage.look([case.run_id])
    triage.look()

    case.refresh_from_db()
    assert case.revision == 1
    assert Event.objects.filter(type__startswith="case.").count() == 1


def test_a_run_that_failed_after_an_effect(begin_run):
    run = begin_run()
    run.does("tickets.update", TICKET)
    run.does("tickets.update", OTHER)
    failed = run.fails("mail.send", message="504 Gateway Timeout")
    run.ends("failed", error={"type": "GatewayTimeout", "message": "504"}, failed_action=failed)

    case = run.case()

    assert case.headline == (
        "Agent “ticket-desk” changed 2 tickets, then failed at mail.send"
        " (no answer in time: “504 Gateway Timeout”)"
    )
    assert case.reasons == ["failed_with_effects"]
    assert case.failed_tool == "mail.send"
    assert case.cause.error_type == "GatewayTimeout"


def test_an_error_is_told_without_the_addresses_that_http_clients_add(begin_run):
    run = begin_run()
    run.does("tickets.update", TICKET)
    said = "504 Server Error: Gateway Timeout for url: https://mail.example/send?to=eve"
    failed = run.fails("mail.send", message=said)
    run.ends("failed", failed_action=failed)

    case = run.case()

    assert case.brief == "Failed: no answer in time (“504 Gateway Timeout”)"
    assert "mail.example" not in case.headline


def test_a_headline_names_what_was_changed_and_not_who_keeps_the_books(begin_run):
    run = begin_run()
    before, after = ({"priority": one, "updated_by": one} for one in ("normal", "high"))
    action = run.does("tickets.update", ("ticket", "T-1", before, after))
    run.is_verified(action, ok=False)
    run.ends()

    assert "changed priority on ticket T-1" in run.case().headline


def test_like_failures_share_a_cause(begin_run):
    for name in ("run_1", "run_2"):
        run = begin_run(name)
        run.does("tickets.update", TICKET)
        failed = run.fails("mail.send", message=f"504 from mx{name} after 31.7 s for id 8f3a77c1")
        run.ends("failed", failed_action=failed)

    triage.look()

    first, second = Case.objects.order_by("pk")
    assert first.cause == second.cause
    assert first.cause.case_count == 2


def test_an_unknown_outcome_is_settled_first(begin_run):
    run = begin_run()
    run.does("tickets.update", TICKET)
    run.fails("cards.charge", outcome="unknown")
    run.ends("failed")

    case = run.case()

    assert "outcome_unknown" in case.reasons
    assert [one["words"] for one in case.evidence if one["code"] == "failed_with_effects"] == [
        "The run failed and what it did to ticket main/T-182 stands",
        "The run failed and what it may have done to mail welcome may stand",
    ]
    assert case.suggestion == Suggestion.SETTLE
    assert case.unknown_count == 1
    assert "its outcome is unknown" in case.headline


def test_work_that_finishes_after_the_user_cancelled_is_found(begin_run):
    run = begin_run()
    action = run.plans("tickets.update", TICKET[:2])
    run.ends("cancelled", by="Eve")
    assert run.case().reasons == ["past_its_time"]

    run.send(EventType.ACTION_SUCCEEDED, action, attempt="1", before=TICKET[2], after=TICKET[3])

    case = run.case()
    assert case.reasons[0] == "late_effect"
    assert "took effect after the run was cancelled" in case.headline


def test_what_somebody_finds_out_after_the_user_cancelled_took_effect_before(begin_run, ada):
    run = begin_run()
    run.fails("tickets.update", outcome="unknown")
    run.ends("cancelled", by="Eve")
    case = run.case()
    (action,) = settling.facts_now(case).unknown()
    words = {"outcome": "applied", "evidence": "It is there", "by": ada, "seen": case.revision}

    assert "late_effect" not in settling.settle_action(case, action, **words).reasons


def test_a_run_that_cannot_be_looked_at_holds_up_no_other(begin_run, monkeypatch):
    """It stays unseen and the loop fails, so that somebody is told; the others are in the queue."""
    for number in (1, 2, 3):
        run = begin_run(f"run_{number}")
        run.does("tickets.update", TICKET)
        run.ends("failed")

    def reasons(facts, case):
        if facts.run.run == "run_2":
            raise ZeroDivisionError
        return reasons_of(facts, case)

    monkeypatch.setattr(triage, "reasons", reasons)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            triage.look()

    assert list(Case.objects.order_by("pk").values_list("run__run", flat=True)) == [
        "run_1",
        "run_3",
    ]
    assert list(Run.objects.filter(is_unseen=True).values_list("run", flat=True)) == ["run_2"]
    monkeypatch.undo()
    assert triage.look() == 1
    assert Case.objects.count() == 3


def test_law_10_a_silent_run_with_a_call_under_way_may_have_acted(begin_run):
    run = begin_run()
    run.plans("cards.charge", ("card", "4421"))
    assert run.case() is None
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))

    assert triage.listen_for_silence() == 1
    assert triage.listen_for_silence() == 0

    case = Case.objects.get()
    assert case.reasons == ["past_its_time"]
    assert case.suggestion == Suggestion.SETTLE
    (words,) = [one["words"] for one in case.evidence]
    assert "it may have happened" in words
    assert "did not happen" not in words + case.headline + case.suggestion_reason


def test_what_ran_past_the_gate_without_its_approval(begin_run):
    run = begin_run()
    run.does("repos.delete", ("repository", "acme/site", None, None))
    run.ends()

    case = run.case()

    assert case.reasons == ["unapproved"]
    assert case.risk == "critical"


def test_a_broken_order_of_the_saga(begin_run):
    run = begin_run()
    run.does("cards.charge", ("card", "4421", None, None), planned={"saga": "pivot"})
    run.does("tickets.update", TICKET)
    run.ends()

    case = run.case()

    assert case.reasons == ["out_of_order"]
    assert case.failed_tool == "tickets.update"


@pytest.mark.parametrize(("saga", "why"), [("pivot", "a second pivot"), (None, "neither pivot")])
def test_a_broken_order_is_noticed_when_it_is_planned(begin_run, saga, why):
    """Before the call has had any effect, and while the run still goes on."""
    run = begin_run()
    run.does("cards.charge", ("card", "4421", None, None), planned={"saga": "pivot"})
    assert run.case() is None
    run.n += 1
    planned = {"tool": "tickets.update", "targets": [{"type": "ticket", "id": "main/T-182"}]}

    run.send(EventType.ACTION_PLANNED, "act_2", **planned, **({"saga": saga} if saga else {}))

    case = run.case()
    assert (case.reasons, case.standing_count, run.row.state) == (["out_of_order"], 1, "running")
    assert why in case.evidence[0]["words"]
    assert case.evidence[0]["words"].endswith("was planned after the pivot cards.charge")


def test_what_may_be_retried_may_follow_the_pivot_and_anything_one_that_was_never_made(begin_run):
    run = begin_run()
    run.fails("cards.hold", saga="pivot")
    run.does("tickets.close", ("ticket", "main/T-183", {"open": True}, {"open": False}))
    run.does("cards.charge", ("card", "4421", None, None), planned={"saga": "pivot"})
    run.does("tickets.update", TICKET, planned={"saga": "retriable"})
    run.does("tickets.read", planned={"class": "read_only"})
    run.ends()

    assert run.case() is None


def contradicts_itself(run):
    action = run.does("tickets.update", TICKET)
    run.send(
        EventType.ACTION_FAILED, action, attempt="1", outcome="no_effect", error={"type": "Odd"}
    )


def cancels_after_an_effect(run):
    run.does("tickets.update", TICKET)
    run.ends("cancelled", by="Eve")


def falls_silent_after_an_effect(run):
    run.does("tickets.update", TICKET)
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    triage.listen_for_silence()


def succeeds_twice(run):
    action = run.does("tickets.update", TICKET)
    run.send(EventType.ACTION_SUCCEEDED, action, attempt="2", before=TICKET[2], after=TICKET[3])
    run.ends()


def says_other_arguments_under_one_key(run):
    action = run.does("tickets.update", TICKET, planned={"args": {"to": "high"}})
    target = {"type": "ticket", "id": "main/T-182"}
    run.send(
        EventType.ACTION_PLANNED,
        action,
        tool="tickets.update",
        targets=[target],
        args={"to": "low"},
    )
    run.ends()


def does_what_is_never_allowed(run):
    run.does("repos.wipe", ("repository", "acme/site", None, None))
    run.ends()


@pytest.mark.parametrize(
    ("story", "code"),
    [
        (contradicts_itself, "contradiction"),
        (cancels_after_an_effect, "cancelled_with_effects"),
        (falls_silent_after_an_effect, "stalled"),
        (succeeds_twice, "effect_twice"),
        (says_other_arguments_under_one_key, "key_reused"),
        (does_what_is_never_allowed, "denied"),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_what_opens_a_case(begin_run, acme, story, code):
    never = POLICY.replace("  twins:", '    "repos.wipe": {approval: DENY}\n  twins:')
    versions.activate(versions.save(acme, never, by=None), by=None)
    run = begin_run()

    story(run)

    case = run.case()
    assert code in case.reasons
    (told,) = [one["words"] for one in case.evidence if one["code"] == code]
    assert told


def test_going_forward_where_the_pivot_has_passed(begin_run):
    run = begin_run()
    run.does("cards.charge", ("card", "4421", None, None), planned={"saga": "pivot"})
    failed = run.fails("mail.send", saga="retriable")
    run.ends("failed", failed_action=failed)

    case = run.case()

    assert case.suggestion == Suggestion.RESUME
    assert case.suggestion_reason.startswith("cards.charge was the point of no return")


def test_a_closed_case_comes_back_only_for_something_new(begin_run, ada):
    from recovery.casework import closing

    run = begin_run()
    run.does("tickets.update", TICKET)
    run.ends("failed")
    case = run.case()
    closing.close(case, outcome="expected", reason="A drill", by=ada, seen=case.revision)

    triage.look([case.run_id])
    case.refresh_from_db()
    assert case.state == CaseState.CLOSED

    run.does("tickets.update", OTHER)

    case = run.case()
    assert case.state == CaseState.OPEN
    assert Event.objects.filter(type="case.reopened").count() == 1


def test_due_is_the_earlier_of_policy_and_undo_window(begin_run):
    soon = timezone.now() + timedelta(hours=1)
    run = begin_run()
    action = run.plans("tickets.update", TICKET[:2])
    effect = {
        "target": {"type": "ticket", "id": "main/T-182"},
        "before": TICKET[2],
        "after": TICKET[3],
        "undo_until": soon.isoformat(),
    }
    run.send(EventType.ACTION_SUCCEEDED, action, attempt="1", effects=[effect])
    run.ends("failed")

    assert run.case().due_at == soon


@pytest.mark.parametrize("text", ["", "   "])
def test_a_report_needs_words(begin_run, ada, text):
    from recovery.casework import cases
    from workspaces.free_text import InvalidInput

    run = begin_run()
    with pytest.raises(InvalidInput):
        cases.report(run.row, text=text, by=ada)


def test_somebody_reports_a_run_that_looked_good(begin_run, ada, shop_connection):
    from recovery.casework import cases

    run = begin_run()
    run.does("tickets.update", TICKET)
    run.ends()

    case = cases.report(run.row, text="This was the wrong ticket", by=ada)

    assert case.reasons == ["reported"]
    assert case.headline.endswith("and somebody reported it")
    assert case.suggestion == Suggestion.COMPENSATE


def test_what_was_corrected_waits_for_a_person_to_close_it(begin_run, acme):
    """A receipt is no proof: the engine closes only what it has read back."""
    run = begin_run()
    action = run.does("mail.send", ("mail", "M-1", None, {"to": "eve@other.example"}))
    run.ends("failed")
    assert "say who looks after what is left" in run.case().suggestion_reason
    effect = Effect.objects.get()
    said = {"positions": [effect.position], "outcome": "corrected", "verified": False}

    desk_events.record(
        acme, EventType.ACTION_COMPENSATED, run="run_1", action=action, data=said, part="engine"
    )

    case = run.case()
    assert (case.state, case.suggestion) == ("open", Suggestion.CLOSE)
    assert "was corrected" in case.suggestion_reason
