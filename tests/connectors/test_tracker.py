"""Issues of a Roundup tracker: every write rests on an ETag, through a manifest and no code."""

import pytest

from connectors import calls, registry
from connectors.conformance import PROMISES, Trial
from connectors.contract import Target

NORMAL = {"title": "The printer is on fire", "priority": "4"}
URGENT = {**NORMAL, "priority": "2"}


@pytest.fixture
def issue(tracker):
    """As the agent left it: urgent."""
    made = tracker.post("/rest/data/issue", json=URGENT).json()
    return Target("issue", made["data"]["id"])


def etag(tracker, issue):
    return tracker.get(f"/rest/data/issue/{issue.id}?@verbose=0").headers["etag"]


def change(tracker, issue, fields):
    tracker.put(
        f"/rest/data/issue/{issue.id}", json=fields, headers={"If-Match": etag(tracker, issue)}
    ).raise_for_status()


def priority(tracker, issue):
    seen = tracker.get(f"/rest/data/issue/{issue.id}?@verbose=0").json()
    return seen["data"]["attributes"]["priority"]


@pytest.fixture
def trial(tracker, tracker_connection, issue):
    return Trial(
        connector=registry.get("http"),
        operation="restore",
        settings=tracker_connection.settings,
        credential=tracker_connection.compensate_secret.open(),
        target=issue,
        args={"to": NORMAL},
        expected=URGENT,
        arrange=lambda: change(tracker, issue, URGENT),
        effects=lambda: int(priority(tracker, issue) == "4"),
        disturb=lambda: change(tracker, issue, {"title": "It is the coffee machine"}),
        unreachable={"base_url": "http://127.0.0.1:9"},
    )


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_restoring_an_issue_keeps_the_promises(trial, promise):
    promise(trial)


def test_a_change_between_the_look_and_the_write_fails_its_condition(
    tracker, tracker_connection, issue
):
    seen = calls.observe(tracker_connection, "restore", {"to": NORMAL}, issue)
    change(tracker, issue, {"status": "3"})

    answer = calls.apply(
        tracker_connection,
        "restore",
        {"to": NORMAL},
        issue,
        key="k",
        expected=URGENT,
        observed=seen,
    )

    assert answer.outcome == "no_effect"
    assert "412" in answer.detail
    assert priority(tracker, issue) == "2"


def test_an_issue_that_somebody_changed_before_the_look_is_left_alone(
    tracker, tracker_connection, issue
):
    """Its ETag is fresh, so the tracker itself would take the write."""
    change(tracker, issue, {"title": "It is the coffee machine"})

    answer = calls.apply(
        tracker_connection, "restore", {"to": NORMAL}, issue, key="k", expected=URGENT
    )

    assert answer.outcome == "no_effect"
    assert "not as the agent left it" in answer.detail
    assert priority(tracker, issue) == "2"


@pytest.mark.parametrize("edited", [False, True])
def test_what_the_agent_did_not_tell_of_is_not_written_over(
    tracker, tracker_connection, issue, edited
):
    """It told the priority alone; the title is to be as it was, and somebody gave it another."""
    if edited:
        change(tracker, issue, {"title": "It is the coffee machine"})

    answer = calls.apply(
        tracker_connection, "restore", {"to": NORMAL}, issue,
        key="k", before=NORMAL, expected={"priority": URGENT["priority"]},
    )  # fmt: skip

    assert answer.outcome == ("no_effect" if edited else "applied")
    assert priority(tracker, issue) == ("2" if edited else "4")


def test_an_issue_that_the_agent_made_is_retired_and_gone_is_success(
    tracker, tracker_connection, issue
):
    def retire(key):
        return calls.apply(tracker_connection, "retire", {}, issue, key=key, expected=URGENT)

    assert retire("k-1").outcome == "applied"
    assert not calls.observe(tracker_connection, "retire", {}, issue).found
    assert retire("k-2").outcome == "applied"
    assert tracker.get(f"/rest/data/issue?id={issue.id}").json()["data"]["collection"] == []
