"""An agent that dies half-way, and its successor that goes on from the checkpoint."""

import pytest

import amends
from ledger.models import Action
from recovery.casework import resuming
from recovery.models import Case
from recovery.triage import triage
from workspaces import keys

BOOKED: list[str] = []


def trip(desk, run, hotel):
    """What the agent's programme is: a flight, a checkpoint, a hotel. It can begin anywhere."""
    with run:
        if run.state is None:
            with run.action("flights.book", target=("booking", "B-1"), args={"to": "OSL"}) as call:
                BOOKED.append("flight")
                call.succeeded(result={"booking": "B-1"}, after={"to": "OSL"})
            run.checkpoint("flight booked", state={"booking": "B-1"}, pending=["hotels.book"])
        with run.action("hotels.book", target=("hotel", "H-1"), args={"nights": 2}) as call:
            hotel()
            BOOKED.append("hotel")
            call.succeeded(result={"hotel": "H-1"}, after={"nights": 2})


def refused():
    raise ConnectionRefusedError("the hotel's system is down")


@pytest.mark.django_db(transaction=True)
def test_an_agent_that_restarts_goes_on_from_its_checkpoint(
    processes, agent, policy, ada, tmp_path
):
    web = processes.kept_web()
    _, token = keys.create_key(agent, by=None, name="k", trusted_runtime=True)
    BOOKED.clear()
    with amends.Desk(web.url, token, spool=tmp_path / "first") as desk:
        run = desk.run("Book me a trip", run="trip_1")
        with pytest.raises(ConnectionRefusedError):
            trip(desk, run, refused)
    triage.look()
    case = Case.objects.get()
    if case.unknown_count:
        from recovery.casework import settling

        (action,) = settling.facts_now(case).unknown()
        case = settling.settle_action(
            case, action, outcome="no_effect", evidence="None there", by=ada, seen=case.revision
        )
    checkpoint = case.run.checkpoints.get()
    seen = resuming.preview(case, checkpoint=checkpoint)
    assert [(one.tool, one.label) for one in seen.steps] == [("hotels.book", "repeat_same_key")]
    resuming.commit(
        case, digest=seen.digest, revision=seen.case.revision, by=ada, checkpoint=checkpoint
    )

    with amends.Desk(web.url, token, spool=tmp_path / "second") as desk:
        trip(desk, desk.resume("trip_1", wait_seconds=5), lambda: None)
    triage.look()

    case.refresh_from_db()
    assert BOOKED == ["flight", "hotel"]
    assert (case.state, case.outcome) == ("closed", "resumed")
    assert Action.objects.filter(tool="hotels.book").count() == 1
