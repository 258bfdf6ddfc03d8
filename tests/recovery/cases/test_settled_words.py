"""What a person or a probe settled is shown as settled, wherever its outcome is shown."""

import pytest

from recovery.casework import closing, settling
from tests.worlds import kept


@pytest.fixture
@kept(in_turn=True)
def settled(begin_run, ada):
    """The agent's call was killed; Ada found it in the log, and says so."""
    run = begin_run()
    run.plans("tickets.update", ("ticket", "main/T-182"))
    run.ends("failed")
    case = run.case()
    (action,) = settling.facts_now(case).unknown()
    return settling.settle_action(
        case, action, outcome="applied", evidence="line 7 of the log", by=ada, seen=case.revision
    )


def test_a_settled_call_is_never_shown_as_reported_by_the_agent(settled, desk):
    shown = desk.get(f"/w/acme/cases/{settled.pk}/")
    page = shown.content.decode()

    [item] = shown.context["story"]["items"]
    assert item["attempts"][0]["words"] == "first try: settled by Ada: happened"
    assert "Settled: happened" in page
    assert "Settled by Ada: happened" in page
    assert "line 7 of the log" in page
    assert "Reported done" not in page
    assert "first try: succeeded" not in page


def test_the_run_read_back_says_it_from_the_step_on_at_which_it_was_settled(settled, desk):
    after = desk.get("/w/acme/runs/run_1/").context["replay"]
    assert after["actions"][0]["state"] == "settled_applied"
    page = desk.get("/w/acme/runs/run_1/").content.decode()
    assert "settled by Ada: happened: “line 7 of the log”" in page
    assert "Reported done" not in page
    assert "Settled: happened" in [one["words"] for one in after["steps"]]

    before = desk.get("/w/acme/runs/run_1/?step=3").context["replay"]
    assert (before["actions"][0]["state"], before["actions"][0]["settled"]) == ("running", "")


def test_a_try_that_the_agent_reported_itself_stays_the_agents(begin_run, ticket, desk, ada):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.ends("failed")

    [item] = desk.get(f"/w/acme/cases/{run.case().pk}/").context["story"]["items"]

    assert (item["state"], item.get("settled")) == ("succeeded", None)
    assert item["attempts"][0]["words"] == "first try: succeeded"


def test_the_api_says_who_settled_what_on_which_evidence(settled, ada):
    from ledger.api import run_as_json
    from ledger.models import Run

    [action] = run_as_json(Run.objects.get(run="run_1"), sensitive=False)["actions"]

    assert {name: action["settled"][name] for name in ("outcome", "by", "evidence")} == {
        "outcome": "applied",
        "by": "Ada",
        "evidence": "line 7 of the log",
    }
    assert action["attempts"][0]["settled"] is True


@pytest.mark.parametrize(
    ("outcome", "ended"), [("applied", "it happened"), ("no_effect", "it did not happen")]
)
def test_a_doubt_that_is_over_is_told_with_its_end_in_headline_and_line(
    begin_run, ada, desk, outcome, ended
):
    run = begin_run()
    run.fails("tickets.update", outcome="unknown")
    run.ends("completed")
    case = run.case()
    assert "its outcome is unknown" in case.headline

    (action,) = settling.facts_now(case).unknown()
    case = settling.settle_action(
        case, action, outcome=outcome, evidence="The log says so", by=ada, seen=case.revision
    )

    assert case.headline.endswith(f"left tickets.update in doubt: {ended}")
    assert "unknown" not in case.headline + case.brief
    page = desk.get("/w/acme/queue/").content.decode()
    assert ended in page
    assert "Outcome unknown" not in page


def settled_at_the_failure(run, outcome, by):
    """The case of a run whose last call was in doubt, once a person has settled it."""
    run.does("users.create", ("user", "12", None, {"name": "Eve"}))
    failed = run.fails("tickets.update", outcome="unknown", message="504 Gateway Timeout")
    told = {"type": "GatewayTimeout", "message": "504 Gateway Timeout"}
    run.ends("failed", error=told, failed_action=failed)
    case = run.case()
    (action,) = settling.facts_now(case).unknown()
    return settling.settle_action(
        case, action, outcome=outcome, evidence="line 7", by=by, seen=case.revision
    )


def test_a_call_that_is_settled_as_done_is_not_said_to_have_failed(begin_run, ticket, ada):
    """It ran; what failed was the agent, which did not hear of it."""
    done = settled_at_the_failure(begin_run(), "applied", by=ada)

    assert done.headline.endswith(
        "then failed without knowing that tickets.update had happened"
        " (no answer in time: “504 Gateway Timeout”)"
    )
    assert "failed at" not in done.headline


def test_a_call_that_is_settled_as_not_done_is_where_it_failed(begin_run, ada):
    done = settled_at_the_failure(begin_run(), "no_effect", by=ada)

    assert (
        "then failed at tickets.update (no answer in time: “504 Gateway Timeout”)" in done.headline
    )


def test_a_case_that_was_closed_before_triage_heard_of_the_success_does_not_go_on_doubting(
    begin_run, ticket, ada
):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-1", ticket, ticket | {"priority": "high"}))
    failed = run.fails("tickets.update", outcome="unknown")
    run.ends("failed")
    case = run.case()
    run.send("action.succeeded", failed, attempt="1", before=ticket, after=ticket)

    case = closing.close(case, outcome="expected", reason="As meant", by=ada, seen=case.revision)
    assert (case.standing_count, case.unknown_count) == (2, 0)
    case = run.case()

    assert case.state == "closed"
    assert case.headline.startswith("Agent “ticket-desk” changed priority on ticket main/T-1 and")
    assert "unknown" not in str([case.reasons, case.evidence, case.brief])
