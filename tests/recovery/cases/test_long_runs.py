"""A run of many steps: what went wrong is in front of who looks, the rest lies in folds that say
what is in them, and nothing is left out without a word.
"""

import re
import time

import pytest

from ledger import replaying
from ledger.models import Action, Checkpoint, Effect, Event
from recovery import corrections
from recovery.casework import closing, resuming
from recovery.engine.steps import let_triage_look
from recovery.models import Case, Plan, PlanState, Step, StepState
from recovery.planning import drafting, drifts, plans
from recovery.run_facts import long_runs, runs
from recovery.run_facts.sentences import many
from recovery.triage import automatic, case_projection, triage
from recovery.views import case as case_page
from recovery.views import compensate, plan_card, story
from tests.recovery.cases.cast import stands, submitted, undone

TICKETS = 20


@pytest.fixture
def long_run(begin_run, shop, ticket):
    """Twenty tickets raised, of which the eighth failed, with a search after each."""
    run = begin_run()
    for number in range(1, TICKETS + 1):
        row = ticket | {"id": f"T-{number}"}
        high = row | {"priority": "high"}
        stands(shop, high)
        if number == 8:
            run.fails("tickets.update", message="no answer")
        else:
            run.does("tickets.update", ("ticket", f"main/{row['id']}", row, high))
        run.does("tickets.read")
    run.ends("failed")
    return run


def folds(page):
    return [
        re.sub(r"<[^>]+>|\s+", " ", one).strip()
        for one in re.findall(r"<details class=\"more fold\"[^>]*><summary>(.*?)</summary>", page)
    ]


def test_the_story_of_a_long_run_is_told_in_short_and_shows_what_went_wrong(desk, long_run):
    case = long_run.case()

    page = desk.get(f"/w/acme/cases/{case.pk}/").text

    shown = page[: page.index("</section>", page.index("What the agent did"))]
    assert "20 × tickets.update, 20 × tickets.read" in shown
    first, second = folds(shown)
    assert first == "11 steps that went well: 6 × tickets.read, 5 × tickets.update"
    assert second.startswith("22 steps that went well")
    between = shown[shown.index(first.split(":")[0]) :]
    folded_away = between[: between.index("</details>")]
    assert "no answer" not in folded_away
    assert "no answer" in between


def test_a_short_run_has_no_folds_and_no_outline(desk, raised):
    page = desk.get(f"/w/acme/cases/{raised.case().pk}/").text
    assert folds(page) == []
    assert "×" not in page[page.index("What the agent did") : page.index("</ol>")]


def test_what_a_page_cannot_hold_is_said_with_the_way_to_it(desk, long_run, monkeypatch):
    monkeypatch.setattr(story, "ITEMS_SHOWN_MAX", 10)

    page = desk.get(f"/w/acme/cases/{long_run.case().pk}/").text

    assert '30 earlier actions on <a href="/w/acme/runs/run_1/">the page of the run</a>' in page


def test_of_a_very_long_run_the_newest_stand_there_and_all_that_went_wrong(
    desk, long_run, monkeypatch
):
    """Five thousand actions made a page of 640 kB, and a failure before the last 300 was on none of
    it.
    """
    monkeypatch.setattr(story, "NEWEST_SHOWN_MAX", 6)
    monkeypatch.setattr(story, "ITEMS_SHOWN_MAX", 8)
    monkeypatch.setattr(case_page, "PLAIN_SHOWN_MAX", 4)

    page = desk.get(f"/w/acme/cases/{long_run.case().pk}/")

    assert "no answer" in page.text[page.text.index("What the agent did") :]
    assert len(page.context["story"]["items"]) == 7
    assert "33 earlier actions on <a" in page.text
    assert len(page.context["effects"]) == 4
    assert page.context["effects_count"] == "19"
    assert "15 older ones on <a" in page.text
    assert many(1_201, "action") == "1\u00a0201 actions"


def test_of_a_very_long_run_what_succeeded_and_is_marked_stands_there_too(
    desk, long_run, monkeypatch
):
    """Of what went wrong only what had not succeeded was there: not the action that the case is
    about where its own check had failed, nor what a person had settled.
    """
    monkeypatch.setattr(story, "NEWEST_SHOWN_MAX", 6)
    case, (wrong, settled, blamed) = long_run.case(), Action.objects.order_by("pk")[4:7]
    Action.objects.filter(pk=wrong.pk).update(checks=[{"name": "is open", "ok": False}])
    Action.objects.filter(pk=settled.pk).update(settled_by="ada")
    Case.objects.filter(pk=case.pk).update(failed_action=blamed)

    items = desk.get(f"/w/acme/cases/{case.pk}/").context["story"]["items"]

    assert [one["url"].partition("#")[2] for one in items[:3]] == [
        wrong.action, settled.action, blamed.action,
    ]  # fmt: skip


def test_a_run_of_more_events_than_are_read_back_leads_to_all_of_them(desk, long_run, monkeypatch):
    monkeypatch.setattr(replaying, "EVENTS_REPLAYED_MAX", 9)

    page = desk.get("/w/acme/runs/run_1/").text

    assert '<a href="/w/acme/ledger/?run=run_1">the ledger has them all</a>' in page
    assert "Known after step 9 of the first 9<" in page
    assert re.search(r"Running</span> then: it went on<", page), "nor does it run still"
    assert "it went on" not in desk.get("/w/acme/runs/run_1/?step=4").text
    assert desk.get("/w/acme/ledger/?run=run_1").text.count("run_1</") > 9


def test_the_page_of_a_run_folds_what_went_well_up_to_the_step_that_is_looked_at(desk, long_run):
    page = desk.get("/w/acme/runs/run_1/").text

    known = page[page.index("Known after step") : page.index("Step by step")]
    assert "20 × tickets.update, 20 × tickets.read" in known
    assert [one.split(":")[0] for one in folds(known)] == [
        "11 that went well", "22 that went well",
    ]  # fmt: skip


def test_a_long_plan_on_its_case_shows_the_step_that_waits_for_a_person(desk, long_run, ada):
    case = long_run.case()
    plan = submitted(case, ada)
    Step.objects.filter(plan=plan, position=9).update(
        was=StepState.UNKNOWN, state=StepState.NEEDS_HUMAN, note="Nobody knows."
    )

    page = desk.get(f"/w/acme/cases/{case.pk}/").text

    card = page[page.index('id="plan"') : page.index("</section>", page.index('id="plan"'))]
    first, second = folds(card)
    assert first.startswith("Steps 4 to 8: 5 × ")
    assert second.startswith("Steps 10 to 16: 7 × ")
    assert Case.objects.get(pk=case.pk).state != "closed"


def test_of_a_plan_longer_than_its_page_all_steps_are_counted(desk, long_run, ada, monkeypatch):
    monkeypatch.setattr(plan_card, "STEPS_SHOWN_MAX", 5)
    case = long_run.case()
    plan = submitted(case, ada)
    steps = Step.objects.filter(plan=plan)
    left = steps.count()
    steps.filter(position__lte=5).update(was=StepState.READY, state=StepState.NEEDS_HUMAN)
    steps.filter(position__gt=5).update(was=StepState.BLOCKED, state=StepState.READY)

    card = desk.get(f"/w/acme/cases/{case.pk}/").context["plan"]

    assert card["state"] == PlanState.RUNNING, "what is not shown goes on"
    assert card["outline"] == f"{left - 5} × Queued, 5 × Needs a person"
    assert card["untouched"] == [f"and {left - 5} steps more"]
    late = steps.get(position=17)
    steps.filter(pk=late.pk).update(was=StepState.UNKNOWN, state=StepState.NEEDS_HUMAN)
    *_, last = desk.get(f"/w/acme/cases/{case.pk}/").context["plan"]["steps"]
    assert (last["number"], last["url"][-len(f"={late.pk}") :]) == (17, f"={late.pk}")


def test_what_compensating_would_do_and_the_effects_fold_what_is_as_it_was_left(desk, long_run):
    case = long_run.case()

    page = desk.get(f"/w/acme/cases/{case.pk}/").text
    outlook = desk.get(f"/w/acme/cases/{case.pk}/outlook/").text

    effects = page[page.index('id="effects-title"') :]
    assert folds(effects) == ["13 more: all stand"]
    assert folds(outlook) == ["Steps 4 to 16"]
    assert plans.draft(case).headline == "Restore priority on 19 tickets"
    again = desk.get(f"/w/acme/cases/{case.pk}/resume/")
    assert folds(again.text) == ["11 more: all skipped", "22 more: all skipped"]
    assert again.context["counts"].startswith("39 skipped · 1 repeated")


def test_targets_that_are_gone_fold_where_most_are_and_stand_open_where_few_are(
    desk, long_run, shop
):
    case = long_run.case()
    outlook = f"/w/acme/cases/{case.pk}/outlook/"
    shop.execute("DELETE FROM tickets WHERE id = 'T-10'")
    assert folds(desk.get(outlook).text) == ["Steps 4 to 10", "Steps 12 to 16"]

    shop.execute("DELETE FROM tickets WHERE id <> 'T-12'")

    [fold] = folds(desk.get(outlook).text)
    assert fold == "Steps 4 to 16: 12 × gone, 1 × unchanged since the agent"


def test_a_long_list_of_what_stands_folds_before_its_case_is_closed(desk, long_run):
    page = desk.get(f"/w/acme/cases/{long_run.case().pk}/close/").text

    assert folds(page) == ["13 more: all stand"]
    assert "tickets.update changed ticket main/T-20" in page


def test_effects_that_the_page_cannot_hold_are_said(desk, long_run, monkeypatch):
    monkeypatch.setattr(case_page, "EFFECTS_SHOWN_MAX", 5)

    page = desk.get(f"/w/acme/cases/{long_run.case().pk}/").text

    assert '14 older ones on <a href="/w/acme/runs/run_1/">the page of the run</a>' in page


@pytest.fixture
def in_parts(monkeypatch):
    """Of a run only ten actions are looked at, and a plan has room for four steps."""
    monkeypatch.setattr(long_runs, "ACTIONS_LOOKED_AT_MAX", 10)
    monkeypatch.setattr(drafting, "STEPS_MAX", 4)


def test_of_a_run_longer_than_is_looked_at_every_page_counts_all_of_it(desk, long_run, in_parts):
    """Of twenty thousand calls only the last two thousand were looked at: what stood before them
    was told by no page, and no plan could undo it.
    """
    case = long_run.case()
    page = desk.get(f"/w/acme/cases/{case.pk}/").text
    undo = desk.get(f"/w/acme/cases/{case.pk}/compensate/").text
    close = desk.get(f"/w/acme/cases/{case.pk}/close/").text

    assert "changed tickets (19 effects in 40 actions), then failed" in case.headline
    assert (case.standing_count, case.reversibility) == (19, "exact")
    assert case.suggestion_reason.startswith("19 effects of this run stand")
    assert "40 actions · 19 with effects" in page
    assert '<span class="end">19 in all, 19 stand</span>' in page
    assert "Part 1: the newest 4 of 19; the rest is planned when this is done." in undo
    assert "19 standing" in close
    assert "11 older ones on <a" in close


def test_a_run_of_more_than_one_plan_is_undone_in_parts_until_nothing_stands(
    desk, long_run, in_parts, shop, ada
):
    """What the newest thousand steps did not reach could never be planned."""
    case, told = long_run.case(), []
    for _ in range(5):
        told.append(plans.draft(case).lead.partition(".")[0])
        plan = undone(case, ada)
        card = desk.get(f"/w/acme/cases/{case.pk}/").context["plan"]
        left = f"A part, with {plan.more_standing} more effects left to later plans."
        assert card["part"] == (left if plan.more_standing else "")
        case = long_run.case()
        assert case.standing_count == plan.more_standing

    assert told == [
        *(
            f"Part {part}: the newest 4 of {left}; the rest is planned when this is done"
            for part, left in enumerate((19, 15, 11, 7), 1)
        ),
        "Part 5, the last: what was left of it",
    ]  # fmt: skip
    assert (case.state, case.outcome) == ("closed", "restored")
    raised = shop.execute("SELECT id FROM tickets WHERE priority = 'high'").fetchall()
    assert [row[0] for row in raised] == ["T-8"], "which the agent never reached"


def test_what_has_no_way_back_takes_no_room_from_what_can_be_undone(
    begin_run, ticket, shop, in_parts
):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    for number in range(20):
        run.does("cards.charge", ("charge", f"ch_{number}", None, {"sum": 1}))
    run.ends("failed")

    draft = plans.draft(run.case())

    assert [one.step.target_id for one in draft.steps] == ["main/T-182"]
    assert (len(draft.cannot), draft.more) == (7, 13)


def test_a_plan_back_to_a_checkpoint_counts_what_stands_behind_it(long_run, in_parts):
    case = long_run.case()
    last = Action.objects.filter(tool="tickets.update").order_by("n")[9]
    point = Checkpoint.objects.create(
        run=case.run, event_id="e", name="half", n=last.n, place=last.last_place, at=case.opened_at
    )

    draft = plans.draft(case, reach=point)

    assert (len(draft.steps), draft.more) == (4, 6)


def test_no_part_of_a_long_run_is_undone_without_a_person(long_run, in_parts):
    assert automatic.why_not(plans.draft(long_run.case())).endswith("one plan can undo.")


def test_whoever_closes_a_long_run_leaves_all_of_it(long_run, in_parts, ada):
    case = long_run.case()

    closing.close(case, outcome="expected", reason="As it should", by=ada, seen=case.revision)

    told = Event.objects.get(type="case.closed").data
    assert (len(told["standing"]), told["more_standing"]) == (8, 11)
    assert Case.objects.get().standing_count == 19


def test_a_resume_of_a_long_run_goes_by_all_of_its_calls(long_run, in_parts, monkeypatch):
    """What was undone, or might be done twice, was sought among the last two thousand calls."""
    case = long_run.case()
    first, second = Action.objects.filter(tool="tickets.update").order_by("n")[:2]
    assert len(resuming.preview(case).steps) == 40
    Action.objects.filter(pk=first.pk).update(key="")
    point = Checkpoint(run=case.run, event_id="e", name="x", n=second.n, place=second.last_place)

    assert "tickets.update might be done twice" in resuming.preview(case).why_not
    assert not resuming.preview(case, checkpoint=point).why_not
    Action.objects.filter(pk=first.pk).update(compensated="compensated")
    stale = resuming.preview(case, checkpoint=point)
    assert stale.why_not == (
        "The checkpoint is stale. It rests on tickets.update, which was undone since."
    )
    monkeypatch.setattr(resuming, "STEPS_MAX", 1)
    assert not resuming.preview(case).why_not
    Action.objects.filter(pk=second.pk).update(key="")
    assert "tickets.update might be done twice" in resuming.preview(case).why_not


def test_whoever_is_affected_by_a_long_run_reads_how_much_of_it_is_listed(
    long_run, in_parts, ada, monkeypatch
):
    case = long_run.case()
    Effect.objects.filter(action__n=1).update(affects={"id": "mia", "name": "Mia"})
    undone(case, ada)

    corrections.draft(case)

    eve, mia = case.corrections.order_by("person_id")
    assert eve.facts["more"] == {"count": 18 - len(eve.facts["items"]), "undone": 0}
    assert f"{len(eve.facts['items'])} of 18 changes are listed here; 4 of all" in eve.lead
    assert "several things of yours, and undid a part of it" in eve.title
    assert (len(mia.facts["items"]), "more" in mia.facts) == (1, False)


def test_a_call_for_which_a_directive_has_no_room_is_not_done_twice_for_that(
    desk, long_run, monkeypatch
):
    """Only the first thousand were looked through for what the gate would not recognise."""
    monkeypatch.setattr(resuming, "STEPS_MAX", 38)
    case = long_run.case()
    last = Action.objects.filter(tool="tickets.update").latest("n")
    Action.objects.filter(pk=last.pk).update(key="")
    seen = resuming.preview(case)
    page = desk.get(f"/w/acme/cases/{case.pk}/resume/").text

    assert "might be done twice: undo it first." in seen.why_not
    assert (len(seen.steps), seen.left_out) == (38, 2)
    assert [action.action for action, _ in seen.standing] == [last.action]
    assert "2 later calls more, not listed here, and the agent is told nothing of them." in page


def test_what_stands_is_looked_at_whatever_number_of_calls_came_later(
    desk, begin_run, ticket, shop, monkeypatch
):
    """What stood was behind two thousand later calls, and nobody heard of it."""
    monkeypatch.setattr(long_runs, "ACTIONS_LOOKED_AT_MAX", 2)
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    for _ in range(5):
        run.does("tickets.read")
    run.fails("tickets.read", message="no answer")
    run.ends("failed")

    case = run.case()

    assert case.reasons == ["failed_with_effects"]
    assert "changed priority on ticket main/T-182, then failed" in case.headline
    assert case.suggestion == "compensate"
    assert case.standing_count == 1


def test_of_a_long_run_that_did_nothing_or_is_undone_that_is_said(begin_run, ticket, monkeypatch):
    monkeypatch.setattr(long_runs, "ACTIONS_LOOKED_AT_MAX", 2)
    run = begin_run()
    reads = {"class": "read_only"}
    for _ in range(5):
        run.does("tickets.read", planned=reads)
    run.fails("tickets.read", message="no answer", **reads)
    run.ends("failed")
    assert run.case().reasons == ["failed_without_effects"]
    other = begin_run("run_2")
    other.does("tickets.update", ("ticket", "main/T-1", ticket, ticket | {"priority": "high"}))
    for _ in range(5):
        other.does("tickets.read", planned=reads)
    other.ends("failed")
    case = other.case()

    Action.objects.filter(tool="tickets.update").update(compensated="compensated")
    Effect.objects.update(compensated="compensated")

    assert case_projection.suggest(runs.facts_of(case.run)) == (
        "close", "Everything that stood was put right.",
    )  # fmt: skip


def test_a_long_preview_shows_some_steps_in_full_and_of_the_others_how_they_stand(
    desk, long_run, shop, monkeypatch
):
    """A thousand steps with their calls made a page of 3.5 MB."""
    monkeypatch.setattr(compensate, "FULL_STEPS_MAX", 5)
    shop.execute("UPDATE tickets SET priority = 'low' WHERE id = 'T-3'")
    url = f"/w/acme/cases/{long_run.case().pk}/compensate/"

    first, third = desk.get(url), desk.get(f"{url}?from=11")

    assert [one.get("gap") or one["number"] for one in first.context["steps"]] == [
        *range(1, 6),
        "Steps 6 to 16: 11 × unchanged since the agent",
        17,
        "Steps 18 to 19: 2 × unchanged since the agent",
    ]  # fmt: skip
    assert "19 steps</b>, in short" in first.text
    assert [one["number"] for one in third.context["steps"] if "gap" not in one] == [
        *range(11, 16), 17,
    ]  # fmt: skip
    assert '<option value="11" selected>11 to 15</option>' in third.text
    assert first.context["digest"] == third.context["digest"]
    assert [one["number"] for one in desk.get(f"{url}?from=0").context["steps"][:1]] == [1]


def test_the_outlook_reads_only_the_targets_that_it_shows(desk, long_run, in_parts, monkeypatch):
    monkeypatch.setattr(compensate, "OUTLOOK_STEPS_MAX", 3)
    looked, observe = [], drifts.observe

    def noting(steps, seconds):
        looked.append(len(steps))
        return observe(steps, seconds)

    monkeypatch.setattr(drifts, "observe", noting)

    page = desk.get(f"/w/acme/cases/{long_run.case().pk}/outlook/")

    assert looked == [3]
    assert page.context["outlook"]["more"] == "1"
    assert "Part 1: the newest 4 of 19" in page.text


def test_parts_are_counted_anew_where_nothing_was_left(long_run, in_parts, ada):
    case = long_run.case()
    last = [undone(case, ada), undone(case, ada)][-1]
    assert plans.draft(case).part == 3

    Plan.objects.filter(pk=last.pk).update(more_standing=0)

    assert plans.draft(case).part == 1


def test_a_run_whose_look_takes_long_is_left_alone_while_its_plan_runs(long_run, monkeypatch):
    """Each step of its plan waited until triage had drafted what was left of a thousand."""
    case = long_run.case()
    monkeypatch.setattr(case_projection, "_rests", {})
    monkeypatch.setattr(case_projection, "LONG_LOOK_SECONDS", -1)
    monkeypatch.setattr(case_projection, "REST_FACTOR", 1e6)
    let_triage_look(case.run)
    assert (triage.look(), case_projection.resting()) == (1, [])
    Case.objects.update(was="open", state="recovering")

    assert case_projection.resting() == [case.run_id]
    assert case_projection._rests[case.run_id] < time.monotonic() + 61
    let_triage_look(case.run)
    assert triage.look() == 0
    monkeypatch.setattr(case_projection, "_rests", {case.run_id: 0.0})
    assert (triage.look(), triage.unseen().exists()) == (1, False)


def test_where_calls_in_doubt_leave_no_room_a_closing_does_not_say_that_nothing_stands(
    desk, begin_run, ticket, monkeypatch
):
    monkeypatch.setattr(long_runs, "ACTIONS_LOOKED_AT_MAX", 2)
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-1", ticket, ticket | {"priority": "high"}))
    for _ in range(5):
        run.fails("tickets.update", outcome="unknown")
    run.ends("failed")
    case = run.case()
    Effect.objects.filter(action__state="unknown").delete()

    close = desk.get(f"/w/acme/cases/{case.pk}/close/").text

    assert "1 standing" in close
    assert "No effect stands" not in close
    assert not re.search(r'name="ending"[^>]* checked', close)
