"""The examples that must work as told, worked in the browser by the people of Skyline Airways."""

import re

from demo.stories import calls, onboarding, trip
from ledger.models import Effect
from tests.browser.trails import check_the_record, for_everybody, told
from tests.examples.desk import act, commit, open_case, publish, until

CHARGED = "Our assistant noted: “charged $1 286.00 to the card ending 4421”."
MAILED = re.compile(
    r"A mail with the subject “Invoice INV-\d+” was sent to jonas.weiss@example.com."
)
PREVIEWS = ("compensate/", "resume/", "close/", "settle/")
PLACES = (
    "queue/",
    "approvals/",
    "runs/",
    "ledger/",
    "corrections/",
    "policies/",
    "tools/",
    "connectors/",
    "settings/",
    "settings/members/",
    "settings/keys/",
    "audit/",
)


def test_onboarding_and_ticket_are_put_right_and_the_person_reads_it(skyline, at_the_desk):
    stage = skyline.stage()
    hired = skyline.case_of(onboarding.play(stage))
    raised = skyline.case_of(calls.ticket(stage))
    rina = at_the_desk("rina")

    rina.goto("/w/skyline/queue/")
    for_everybody(rina)
    open_case(rina, hired)
    rina.locator("#outlook .steps").wait_for()
    for_everybody(rina)
    act(rina, "Compensate")
    for_everybody(rina)
    commit(rina, "The mail gateway was down", "^Release")
    rina.locator("#plan").wait_for()

    assert skyline.outcome_of(hired) == "restored"
    released = [entry["what"] for entry in skyline.journal("licences")]
    assert released == ["assigned", "released"]
    assert skyline.row("staff", hired.failed_target.split()[-1]) is None
    assert skyline.journal("mailbox") == [], "nothing was mailed"
    rina.goto(f"/w/skyline/cases/{hired.pk}/")
    for_everybody(rina)
    staff_id = hired.failed_target.split()[-1]
    lena = at_the_desk()
    lena.goto(publish(rina, hired))
    for_everybody(lena)
    said = told(lena)
    assert said["Our assistant noted: “created the HR record of Lena Fischer”."] == "Deleted"
    assert said["Our assistant noted: “bought a team licence at $24.00 a month”."] == "Cancelled"
    assert f"Employee {hired.customer}" in lena.content()
    assert said[f"No mail to {staff_id} was sent."] == "Unchanged"
    assert "could not be undone" not in lena.content()
    assert "A member of staff looked at it and had it put right." in lena.content()

    open_case(rina, raised)
    act(rina, "Compensate")
    commit(rina, "The wrong ticket was raised", "^Restore")

    assert skyline.outcome_of(raised) == "restored"
    assert skyline.row("tickets", "T-182")["priority"] == "normal"
    assert skyline.row("tickets", "T-204")["priority"] == "normal"
    assert "by mistake" in skyline.notes("T-182")[0]
    rina.goto(f"/w/skyline/cases/{raised.pk}/")  # it is loaded anew by itself as its plan ends
    rina.locator("#plan").wait_for()
    trail = publish(rina, raised)
    nora = at_the_desk()
    nora.goto(trail)
    for_everybody(nora)
    said = told(nora)
    assert said["Ticket T-204 was not touched."] == "Unchanged"
    what = "The priority of ticket T-182 was changed from “normal” to “high”."
    assert said[what] == "Put back"
    assert "It was put back to “normal”. A note on it says so." in nora.content()
    check_the_record(nora)


def test_a_trip_is_refunded_once_finance_agrees_and_a_mail_corrected_once_read(
    skyline, at_the_desk
):
    stage = skyline.stage()
    booked = skyline.case_of(trip.play(stage))
    mailed = skyline.case_of(calls.invoice(stage))
    rina, moreau = at_the_desk("rina"), at_the_desk("moreau")

    for case, verb in ((booked, "refund"), (mailed, "send a correction")):
        open_case(rina, case)
        act(rina, "Compensate")
        commit(rina, "The customer has nothing of it", f"^Ask for approval: {verb}")
        rina.get_by_text("waits for approval").first.wait_for()
    for_everybody(rina)
    assert [entry["what"] for entry in skyline.journal("payments")] == ["charged"]

    for _ in (booked, mailed):
        moreau.goto("/w/skyline/approvals/")
        moreau.locator("a.row-link").first.click()
        for_everybody(moreau)
        moreau.get_by_label(re.compile("Reason")).first.fill("Checked with the customer")
        button = moreau.get_by_role("button", name=re.compile(r"^Approve( \(|$)"))
        button.click()
        button.wait_for(state="hidden")

    assert skyline.outcome_of(booked) == "restored"
    assert [entry["what"] for entry in skyline.journal("payments")] == ["charged", "refunded"]
    booking = Effect.objects.get(action__run=booked.run_id, target_type="booking").target_id
    assert skyline.row("bookings", booking) is None
    amelia = at_the_desk()
    amelia.goto(publish(rina, booked))
    for_everybody(amelia)
    said = told(amelia)
    assert said["Our assistant noted: “booked SK 512 to Lisbon for Amelia Davis”."] == "Deleted"
    assert said[CHARGED] == "Refunded"
    assert f"Booking {booking}" in amelia.content()
    assert "$1&nbsp;286.00 was paid back." in amelia.content()
    assert "1 person reviewed this before it was done (finance)." in amelia.content()
    assert "could not be undone" not in amelia.content()
    until(lambda: "Correction" in str(skyline.journal("mailbox")))
    rina.goto(f"/w/skyline/cases/{mailed.pk}/")
    until(lambda: rina.reload() and rina.locator(".headline a.button", has_text="Close").count())
    act(rina, "Close")
    for_everybody(rina)
    rina.get_by_label(re.compile("^Corrected")).check()
    commit(rina, "It cannot be unsent; the reader was asked to delete it", "^Close the case")
    assert skyline.outcome_of(mailed) == "corrected"
    trail = publish(rina, mailed)
    rina.goto(trail)
    for_everybody(rina)
    [(what, word)] = told(rina).items()
    assert (bool(MAILED.fullmatch(what)), word) == (True, "Correction sent"), what
    assert "Please delete the mail that was not meant for you." in rina.content()
    lasting = rina.locator("section[aria-labelledby='lasting']").inner_text()
    assert "A mail cannot be unsent. A correction was sent." in lasting
    assert "It could not be undone, so a correction was sent." in rina.content()
    assert "What it had done has been undone" not in rina.content()
    assert "as it was before" not in rina.content()


def test_nobody_guesses_what_nobody_knows(skyline, at_the_desk):
    stage = skyline.stage()
    case, found = (skyline.case_of(calls.doubt(stage, lags=lags)) for lags in (3_600, 0))
    unasked = skyline.case_of(calls.unanswered(stage))
    rina, vik = at_the_desk("rina"), at_the_desk("vik")

    open_case(vik, case)
    assert vik.locator(".headline a.button").count() == 0
    assert vik.goto(f"/w/skyline/cases/{case.pk}/settle/").status == 403
    open_case(rina, case)
    assert rina.locator(".headline a.button").count() == 1, "it is settled before anything else"
    act(rina, "Settle")
    for_everybody(rina)
    told = rina.locator("form#preview").inner_text()
    assert "$89.00" in told
    assert "charges · find, on card “ending 0077”, by the key of the call" in told
    assert "A probe could not tell." in told, "the provider’s search is behind"
    rina.get_by_label(re.compile("^It happened")).check()
    rina.get_by_label("How do you know?").fill("The provider's page shows ch_00001 as paid")
    rina.keyboard.press("Control+Enter")
    rina.wait_for_url(re.compile(r"/cases/\d+/$"))

    case.refresh_from_db()
    assert (case.unknown_count, case.suggestion) == (0, "compensate")
    for_everybody(rina)
    until(lambda: not type(found).objects.get(pk=found.pk).unknown_count)
    rina.goto(f"/w/skyline/cases/{found.pk}/")
    assert rina.get_by_text("A probe found it.").count(), "the desk asked, and nobody had to"
    rina.goto(f"/w/skyline/cases/{unasked.pk}/settle/")
    assert rina.get_by_text("The policy has no probe for hotels.book").count()


def test_the_people_of_another_workspace_see_their_own_desk_and_nothing_of_skyline(
    skyline, at_the_desk
):
    case = skyline.case_of(calls.ticket(skyline.stage()))
    dev = at_the_desk("dev")

    dev.goto("/")

    assert dev.url.endswith("/w/harbor/queue/")
    assert dev.get_by_role("heading", name="No agent is connected yet").is_visible()
    assert "Skyline" not in dev.content()
    for_everybody(dev)
    run = f"runs/{case.run.run}/"
    here = f"cases/{case.pk}/"
    of_a_case = [f"{here}{part}" for part in ("", "progress/", "outlook/", *PREVIEWS)]
    for path in (*PLACES, run, *of_a_case):
        answer = dev.goto(f"/w/skyline/{path}")
        assert answer.status == 404, path
        assert case.headline not in dev.content()
        assert dev.goto(f"/w/harbor/{path}").status == (200 if path in PLACES else 404), path
    for_everybody(dev)
