"""The demo's other ways out: by itself, forward past the pivot, once who is affected agreed."""

import re
import sys
from datetime import UTC, datetime

import psycopg

from demo import agents, places
from demo.stories import trip
from ledger.models import Action, Effect
from recovery.models import Plan
from tests.browser.trails import for_everybody, told
from tests.examples.conftest import seen_paths
from tests.examples.desk import act, commit, open_case, publish, until

LINK = re.compile(r"https?://\S+/ask/\S+/")
STARTED_ANEW = "from demo import agents; agents.go_on(agents.stage())"


def flights(skyline):
    with psycopg.connect(skyline.database) as database:
        return [flight for (flight,) in database.execute("SELECT flight FROM bookings")]


def test_a_seat_that_was_held_is_let_go_by_the_desk_itself(skyline, at_the_desk):
    case = skyline.case_of(trip.seat(skyline.stage()))

    assert skyline.outcome_of(case) == "restored"

    plan = Plan.objects.get(case=case)
    assert (plan.automatic, plan.drafted_by) == (True, None)
    place = Effect.objects.get(action__run=case.run_id).target_id
    assert skyline.row("seats", place) == {"id": place, "state": "free", "held_by": None}
    rina = at_the_desk("rina")
    rina.goto(f"/w/skyline/cases/{case.pk}/?tab=activity")
    for_everybody(rina)
    assert "By policy: every step is low risk, exact and repeatable." in rina.content()
    noah = at_the_desk()
    noah.goto(publish(rina, case))
    for_everybody(noah)
    [(what, word), _] = told(noah).items()
    assert (place in what, word) == (True, "Put back")
    assert "It was put right automatically, by a rule that people had approved." in noah.content()


def test_a_trip_past_its_pivot_goes_forward_by_its_agent_that_was_started_anew(
    skyline, at_the_desk, processes
):
    stage = skyline.stage()
    run = trip.play(stage, traveller="Raj Brown", pivot=True, price_minor=41_200)
    for desk in stage.desks.values():
        desk.close()
    for spool in places.folder().glob("spool-*"):
        spool.unlink()  # the machine is gone, and the desk alone knows how far the trip came
    places.SharedFacts().write(goes_on=[run])
    case = skyline.case_of(run)
    assert case.suggestion == "resume"
    rina = at_the_desk("rina")

    open_case(rina, case)
    rina.get_by_text("was the point of no return").first.wait_for()
    act(rina, "Resume")
    for_everybody(rina)
    assert "Flight and payment stand; the hotel is to come." in rina.content()
    commit(rina, "The hotel has rooms again", "^Let the agent go on|^Resume")
    processes.run("agents", [sys.executable, "-c", STARTED_ANEW], PYTHONPATH=seen_paths())

    assert skyline.outcome_of(case) == "resumed"
    booking = Effect.objects.get(action__run=case.run_id, target_type="booking").target_id
    hotel = Action.objects.get(run=case.run_id, tool="hotels.book")
    assert hotel.state == "succeeded"
    assert hotel.targets == [{"type": "hotel", "id": booking.replace("B-", "Ribeira ")}]
    kept = skyline.row("bookings", booking)
    assert kept["traveller"] == "Raj Brown", "nothing was undone"
    assert kept["leaves_on"] > f"{datetime.now(UTC):%Y-%m-%d}", "and it lies ahead, any day"
    assert [entry["what"] for entry in skyline.journal("payments")] == ["charged"]
    until(lambda: not places.SharedFacts().read()["goes_on"])


def test_a_traveller_is_asked_before_anybody_may_put_her_on_another_flight(skyline, at_the_desk):
    stage = skyline.stage()
    agent = agents.beside(trip.earlier, stage)

    link = until(lambda: LINK.search(str(skyline.journal("mailbox"))))[0]
    lindqvist, amelia = at_the_desk("lindqvist"), at_the_desk()

    lindqvist.goto("/w/skyline/approvals/")
    lindqvist.locator("a.row-link").first.click()
    lindqvist.get_by_text("Nobody can approve this yet").wait_for()
    assert lindqvist.locator("button[value=grant]").is_disabled()
    assert flights(skyline) == ["SK 512 to Lisbon"], "nothing was done yet"
    amelia.goto(link)
    for_everybody(amelia)
    assert "Your flight to Lisbon would leave three hours earlier." in amelia.content()
    amelia.get_by_role("button", name="Yes, please").click()
    amelia.get_by_text("Thank you, we have your answer").wait_for()
    lindqvist.reload()
    for_everybody(lindqvist)
    lindqvist.get_by_label(re.compile("Reason")).first.fill("She agreed")
    lindqvist.get_by_role("button", name=re.compile(r"^Approve( \(|$)")).click()

    agent.join(60)
    assert not agent.is_alive()
    assert flights(skyline) == ["SK 508 to Lisbon"]
