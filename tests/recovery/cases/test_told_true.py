"""What lists and cards say of an undo is what happened: verified, by whom, for whom, and when."""

import re
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from approvals import inbox, inventory, pauses, periodic, policy, versions
from approvals.models import Approval
from ledger import desk_events
from ledger.models import Event, Run
from recovery import corrections
from recovery.engine import steps
from recovery.models import Case, CaseOutcome
from tests.approvals.cast import put_in_force
from tests.recovery.cases.cast import submitted, undone
from tests.recovery.cases.conftest import POLICY
from tests.recovery.cases.test_settle_pages import STRICTER
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import advance

UNDO = "{connection: shop, operation: restore_row, args: {to: before}}"


A_TIME = re.compile(r"\b\d\d:\d\d(?::\d\d)?\b(?!:| UTC)")


def line_of(acme, tool):
    known = policy.active(acme)
    [newest] = [one.newest for one in inventory.listed(acme, known) if one.tool == tool]
    [line] = inventory.tools(acme, known, [newest])
    return line


def test_the_inventory_says_verified_only_of_what_was_read_back(
    raised, acme, ada, client, begin_run, ticket
):
    run = begin_run("run_9")
    action = run.does("tickets.close", ("ticket", "main/T-9", ticket, None))
    said = {"positions": [0], "outcome": "compensated", "verified": False}
    desk_events.record(acme, EventType.ACTION_COMPENSATED, run="run_9", action=action, data=said)
    undone(raised.case(), ada)

    receipt, read_back = line_of(acme, "tickets.close"), line_of(acme, "tickets.update")

    assert (receipt.last_undone, receipt.last_receipt is not None) == (None, True)
    assert (read_back.last_undone is not None, read_back.last_receipt) == (True, None)
    client.force_login(ada)
    page = client.get("/w/acme/tools/").content.decode()
    assert "receipt only" in page
    assert "Undo verified" in page


def test_the_question_about_a_plan_names_on_whose_behalf_the_run_acted(
    begin_run, shop, ticket, ada, ben, client
):
    run = begin_run()
    run.does("tickets.update", ("customers", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.ends("failed")
    submitted(run.case(), ada)

    client.force_login(ben)
    page = client.get(f"/w/acme/approvals/{Approval.objects.get().pk}/")

    assert {"name": "On behalf of", "value": "Eve Adams (eve)"} in page.context["why"]


@pytest.mark.parametrize(
    ("twin", "outcome", "did"),
    [
        (UNDO, CaseOutcome.RESTORED, "It was removed again."),
        (UNDO[:-1] + ", reversibility: compensable}", CaseOutcome.RESTORED, "It was put away."),
    ],
    ids=["deleted", "archived"],
)
def test_a_draft_that_a_failed_run_left_behind_is_put_away_through_its_twin(
    begin_run, acme, shop, ticket, ada, twin, outcome, did
):
    document = (
        POLICY.replace(
            '"users.*":         {class: internal_update}',
            '"users.*":         {class: internal_update}\n'
            '    "drafts.write":    {class: draft, target: ticket}',
        )
        .replace(
            '"users.*":         {risk: HIGH, approval: AUTO}',
            '"users.*":         {risk: HIGH, approval: AUTO}\n'
            '    "drafts.write":    {risk: LOW, approval: AUTO, compensation: ARCHIVE}',
        )
        .replace(
            "  twins:\n",
            "  twins:\n" + f'    "drafts.write":    {twin}\n',
        )
    )
    versions.activate(versions.save(acme, document, by=None), by=None)
    run = begin_run()
    planned = {"class": "draft"}
    run.does("drafts.write", ("ticket", "main/T-182", None, ticket), planned=planned)
    run.ends("failed")
    case = run.case()
    assert case.suggestion == "compensate"

    undone(case, ada)

    case.refresh_from_db()
    assert shop.execute("SELECT count(*) FROM tickets").fetchone() == (0,)
    assert case.outcome == outcome
    assert line_of(acme, "drafts.write").twin == "shop.restore_row"
    [told] = corrections.draft(case)
    assert [one["did"] for one in told.facts["items"]] == [did]


def test_all_times_of_a_page_are_of_one_clock(raised, acme, ada, ben, client):
    """A script puts each `<time>` into the reader's zone: what stands beside it would be another's
    clock, unless it says whose.
    """
    plan = undone(raised.case(), ada)
    client.force_login(ada)
    pages = [
        *(f"/w/acme/cases/{plan.case_id}/?tab={tab}" for tab in ("", "evidence", "activity")),
        "/w/acme/runs/run_1/", f"/w/acme/runs/{steps.run_of(plan)}/", "/w/acme/audit/",
        "/w/acme/ledger/", "/w/acme/queue/?q=is:closed",
        *(f"/w/acme/ledger/{one}/" for one in Event.objects.values_list("event_id", flat=True)),
    ]  # fmt: skip

    for address in pages:
        page = client.get(address).content.decode()
        outside = re.sub(r"(?s)<(time|script|pre)\b.*?</\1>|<[^>]*>", " ", page)
        assert "<time" in page or " UTC" in page, address
        assert A_TIME.findall(outside) == [], address


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"state": "running"}, "The plan waits for a person"),
        ({"was": "running", "state": "stopped"}, "The plan was stopped"),
    ],
)
def test_a_case_under_a_plan_that_stands_still_does_not_read_that_it_runs(
    lost, client, ada, plan, words
):
    Case.objects.update(was="open", state="recovering")
    lost.plans.update(**plan)
    client.force_login(ada)

    said = client.get(f"/w/acme/cases/{lost.pk}/").context["suggestion"]["reason"]

    assert said.startswith(words)
    renewed = client.get(f"/w/acme/cases/{lost.pk}/progress/").text
    assert f'<p hx-swap-oob="innerHTML:#suggestion"><b>Recovering.</b> {words}' in renewed


def test_a_case_under_a_plan_that_a_pause_holds_reads_that_and_why(raised, acme, ada, client):
    client.force_login(ada)
    case = raised.case()
    pause = pauses.pause(acme, "connection", "shop", by=ada, reason="The shop moves house.")
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)

    said = client.get(f"/w/acme/cases/{case.pk}/").context["suggestion"]["reason"]
    assert said == "Paused: The shop moves house. The plan goes on once that is lifted."

    pauses.lift(pause, by=ada)
    advance(plan)
    assert "Paused" not in client.get(f"/w/acme/cases/{case.pk}/").text


@pytest.mark.parametrize(
    ("state", "badge", "reason"),
    [
        ("waiting", "In approval", "Nothing runs before the people"),
        ("granted", "Approved", "Those who had to agree have agreed; the plan has not begun yet."),
        ("expired", "Not approved", "1 effect of this run stands"),
    ],
)
def test_a_plan_is_in_approval_only_as_long_as_people_are_asked(
    raised, acme, ada, cleo, client, state, badge, reason
):
    """Of one that nobody had answered in time it was said that it was rejected."""
    put_in_force(acme, ada, STRICTER)
    case = raised.case()
    plan = submitted(case, ada)
    question = Approval.objects.get()
    if state == "granted":
        inbox.grant(question, by=cleo, seen=question.digest)
    elif state == "expired":
        Approval.objects.update(expires_at=Now() - timedelta(seconds=1))
        periodic.expire_due()
        by_hand.advance(plan.pk)
    client.force_login(ada)

    page = client.get(f"/w/acme/cases/{case.pk}/")

    heading = page.text.partition('id="plan-title"')[2].partition("</h2>")[0]
    assert f"</span> {badge}</span>" in heading
    its_own = page.text.partition('<div class="meta">')[2].partition("</div>")[0]
    assert (f"</span> {badge}</span>" in its_own) == (state != "expired"), "the case says the same"
    assert page.context["suggestion"]["reason"].startswith(reason)
    if state == "expired":
        assert "The question expired: nobody answered in time" in page.text


def test_where_nothing_is_left_to_undo_no_reason_is_asked_for(raised, ada, client):
    """It asked why, beside a button that could not be pressed."""
    case = raised.case()
    client.force_login(ada)
    preview = f"/w/acme/cases/{case.pk}/compensate/"
    assert client.get(preview).text.count('name="why"') == 1
    undone(case, ada)

    page = client.get(preview).text

    assert "there is no call to make" in page
    assert (page.count('name="why"'), page.count("data-commits")) == (0, 0)


def test_what_a_case_cannot_end_as_stands_last(raised, ada, client):
    client.force_login(ada)
    page = client.get(f"/w/acme/cases/{raised.case().pk}/close/")
    hindered = [bool(one["why_not"]) for one in page.context["endings"]]
    assert hindered == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ((0, 1), "late_effect"),
        ((1, 0), "cancelled_with_effects"),
        ((0, 2, 1, 0), "cancelled_with_effects"),
        ((0, 1, 2, 0), "cancelled_with_effects"),
    ],
    ids=["after it", "before it", "of a run that went on", "before it went on"],
)
def test_of_what_a_spool_tells_at_once_the_order_says_what_came_after_the_cancellation(
    begin_run, ticket, order, reason
):
    run = begin_run()
    action = run.plans("tickets.update", ("ticket", "main/T-182"))
    target = {"type": "ticket", "id": "main/T-182"}
    effect = {"target": target, "before": ticket, "after": ticket | {"priority": "high"}}
    told = (
        ("run.cancelled", "", {"by": "Eve"}),
        ("action.succeeded", action, {"attempt": "1", "effects": [effect]}),
        ("run.resumed", "", {"from": "raised"}),
    )

    run.sends_at_once(*(told[one] for one in order))

    assert run.row.ended_at == run.row.actions.get().finished_at
    assert run.case().reasons[0] == reason


def test_what_went_wrong_is_told_as_it_was_while_it_is_being_undone(acme, begin_run, ticket):
    high = ticket | {"priority": "high"}
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    worst = run.does("users.update", ("user", "u_7", {"role": "member"}, {"role": "owner"}))
    run.ends("failed")
    case = run.case()
    told = (case.risk, case.headline, case.due_at, case.evidence)
    assert case.risk == "high"

    Case.objects.update(was="open", state="recovering")
    said = {"positions": [0], "outcome": "compensated", "verified": True}
    desk_events.record(acme, EventType.ACTION_COMPENSATED, run="run_1", action=worst, data=said)
    case = run.case()

    assert (case.risk, case.headline, case.due_at, case.evidence) == told
    assert case.standing_count == 1

    Case.objects.update(was="recovering", state="open")
    Run.objects.update(seen_revision=0)
    assert run.case().risk == "low", "once no plan is at it, what stands says how urgent it is"
    Case.objects.update(was="open", state="recovering")
    run.does("users.update", ("user", "u_8", {"role": "member"}, {"role": "owner"}))
    assert run.case().risk == "high", "what is new is told while it is being undone, too"
