"""A run of many steps: what went wrong is in front of who looks, the rest lies in folds that say
what is in them, and nothing is left out without a word.
"""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import replaying
from ledger.models import Action
from recovery.casework import resuming
from recovery.models import Case, PlanState, Step, StepState
from recovery.planning import drafting
from recovery.run_facts import runs
from recovery.run_facts.sentences import many
from recovery.triage import case_projection
from recovery.views import case as case_page
from recovery.views import plan_card, story
from tests.recovery.cases.cast import stands, submitted

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


def test_what_compensating_would_do_and_the_effects_fold_what_is_as_it_was_left(desk, long_run):
    case = long_run.case()

    page = desk.get(f"/w/acme/cases/{case.pk}/").text
    outlook = desk.get(f"/w/acme/cases/{case.pk}/outlook/").text

    effects = page[page.index('id="effects-title"') :]
    assert folds(effects) == ["13 more: 13 × stands"]
    assert folds(outlook) == ["Steps 4 to 16"]


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

    assert folds(page) == ["13 more: 13 × stands"]
    assert "tickets.update changed ticket main/T-20" in page


def test_effects_that_the_page_cannot_hold_are_said(desk, long_run, monkeypatch):
    monkeypatch.setattr(case_page, "EFFECTS_SHOWN_MAX", 5)

    page = desk.get(f"/w/acme/cases/{long_run.case().pk}/").text

    assert '14 older ones on <a href="/w/acme/runs/run_1/">the page of the run</a>' in page


def test_of_a_run_longer_than_is_looked_at_every_page_says_so_and_the_rest_is_not_read(
    desk, long_run, monkeypatch
):
    """Of twenty thousand calls it was said that 1999 things were changed, and where their undoing
    was too long for one plan that nothing stands.
    """
    monkeypatch.setattr(runs, "ACTIONS_LOOKED_AT_MAX", 10)
    case = long_run.case()
    with CaptureQueriesContext(connection) as heard:
        page = desk.get(f"/w/acme/cases/{case.pk}/").text
    kept = next(one["sql"] for one in heard if '"last_place" DESC NULLS LAST' in one["sql"])
    monkeypatch.setattr(drafting, "STEPS_MAX", 4)
    undo = desk.get(f"/w/acme/cases/{case.pk}/compensate/").text
    close = desk.get(f"/w/acme/cases/{case.pk}/close/").text
    resume = desk.get(f"/w/acme/cases/{case.pk}/resume/").text

    assert "changed 5 tickets in the last 10 of 40 actions" in case.headline
    assert "40 actions · of the last 10 5 with effects" in page
    assert "LIMIT 10" in kept
    assert "30 earlier actions are not looked at: what they did stays." in undo
    assert "More stands than one plan can undo" in undo
    assert "the desk cannot undo it in parts" in undo
    assert "Nothing that this run did" not in undo
    assert "30 earlier actions are not looked at: what they did stays." in close
    assert "30 earlier actions are not looked at: what they did stays." in resume


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


def test_where_earlier_actions_may_stand_no_line_says_that_nothing_is_to_undo(
    begin_run, ticket, monkeypatch
):
    monkeypatch.setattr(runs, "ACTIONS_LOOKED_AT_MAX", 1)
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-1", ticket, ticket | {"priority": "high"}))
    run.does("tickets.read")
    run.ends("failed")

    assert run.case().suggestion_text == "Nothing can be undone from here"
    Action.objects.filter(tool="tickets.read").update(state="failed")
    assert case_projection.suggest(runs.facts_of(run.case().run)) == (
        "close", "No effect of its last actions stands, and earlier ones are not looked at.",
    )  # fmt: skip


def test_a_failed_run_of_which_not_all_is_looked_at_is_a_case(desk, begin_run, ticket, monkeypatch):
    """What stood was behind two thousand later calls, and nobody heard of it."""
    monkeypatch.setattr(runs, "ACTIONS_LOOKED_AT_MAX", 1)
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-1", ticket, ticket | {"priority": "high"}))
    run.fails("tickets.read", message="no answer")
    run.ends("failed")

    case = run.case()

    assert case.reasons == ["failed_with_effects"]
    assert "perhaps what its 1 earlier action did" in str(case.evidence)
    page = desk.get(f"/w/acme/cases/{case.pk}/").text
    close = desk.get(f"/w/acme/cases/{case.pk}/close/").text
    assert "Compensate: no effect is known to stand." in page
    assert "0 standing, of its last actions" in close
    assert not re.search(r'name="ending"[^>]* checked', close), "what may stand was not expected"
