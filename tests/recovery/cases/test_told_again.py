"""Eve hears how it stands when people put it right by hand."""

from recovery import corrections
from recovery.casework import closing
from recovery.corrections import contesting, publishing
from recovery.models import Correction, Plan, PlanState, Step, StepState
from recovery.views.public import trail_context


def closed(case, by, outcome, **more):
    case.refresh_from_db()
    said = {"outcome": outcome, "reason": "So it is", "seen": case.revision}
    return closing.close(case, by=by, **said, **more)


def published(case, by, *ways):
    [drafted] = corrections.draft(case)
    return publishing.publish(drafted, by=by, seen=drafted.revision, ways=ways or ["link"])


def acts(correction):
    return [one["act"] for one in correction.facts["items"]]


def test_what_was_put_right_by_hand_stays_so_while_its_case_is_open_again(raised, ada):
    case = raised.case()
    told = published(closed(case, ada, "already_handled"), ada)
    contesting.contest(told, ground="other", text="Not so")
    case.refresh_from_db()

    [now] = corrections.draft(case)

    assert (case.state, acts(now)) == ("open", ["by_hand"])
    assert trail_context(told, {})["since"] == {}
    assert acts(*corrections.draft(closed(case, ada, "expected"))) == ["left"]


def test_who_was_told_otherwise_is_told_of_what_was_put_right_by_hand(raised, ada):
    case = raised.case()
    told = published(case, ada)
    assert acts(told) == ["left"]
    closed(case, ada, "already_handled")

    assert publishing.draft_due() == 1

    new = Correction.objects.get(state="draft")
    assert (acts(new), publishing.draft_due()) == (["by_hand"], 0)


def test_nobody_is_written_to_of_what_was_put_right_by_hand_and_nobody_was_told_of(raised, ada):
    closed(raised.case(), ada, "already_handled")

    assert (publishing.draft_due(), Correction.objects.count()) == (0, 0)


def test_who_was_told_of_it_hears_how_it_stands_though_it_was_as_expected(raised, ada):
    case = raised.case()
    told = published(case, ada)
    Correction.objects.filter(pk=told.pk).update(facts=told.facts | {"why": "Because"})
    [drafted] = corrections.draft(closed(case, ada, "expected"))

    assert publishing.why_not(drafted) == ""


def test_nothing_is_told_while_a_stopped_plan_has_a_step_on_its_way(lost, ada):
    Plan.objects.update(was=PlanState.RUNNING, state=PlanState.STOPPED)
    Step.objects.update(was=StepState.INTENDED, state=StepState.APPLIED)
    [drafted] = corrections.draft(lost)

    assert publishing.why_not(drafted) == "The recovery has not ended yet."


def test_what_a_call_left_as_it_was_is_not_told_as_changed(begin_run, ticket):
    run = begin_run()
    run.does("tickets.touch", ("ticket", "main/T-182", ticket, dict(ticket)))
    run.ends("failed")
    [drafted] = corrections.draft(run.case())

    told = [one["what"] for one in trail_context(drafted, {})["changed"]]

    assert told == ["“Touch” was done for ticket T-182."]
