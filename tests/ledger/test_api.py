"""Reading over HTTP: own runs for agents, payloads for those who may, proofs for everybody."""

import json

import pytest
from django.test import Client

from amends.protocol.proofs import LogKey, verify
from amends.protocol.vocabulary import EventType
from ledger import desk_events, disclosure, sealer
from ledger.models import Leaf
from tests.ledger.conftest import event, record_events
from tests.worlds import kept
from workspaces import keys, teams
from workspaces.models import Act, Agent, User, Workspace

SPAN = {"trace_id": "a" * 32, "span_id": "b" * 16}


@pytest.fixture
@kept
def agent_key(trip_desk, ada):
    return keys.create_key(trip_desk, by=ada, name="laptop")[1]


@pytest.fixture
def person(northwind):
    """Make a person's token, with these permissions."""

    def make(name, *may):
        user = User.objects.create_user(f"{name}@northwind.example", name=name)
        teams.add(teams.create(northwind, name, by=None, may=may), user, by=None)
        return keys.create_token(northwind, by=user, name="script")[1]

    return make


def get(path, token):
    return Client().get(f"/api/v1/{path}", headers={"authorization": f"Bearer {token}"})


@pytest.fixture
@kept(in_turn=True)
def trip(actor):
    record_events(
        actor,
        event("run.started", data={"request": "Move my flight"}),
        event("action.planned", action="a1", n=1, data={
            "tool": "update_flight", "targets": [{"type": "flight", "id": "F1"}],
            "args": {"to": "LIS"}, "before": [{"to": "OPO"}]}, trace=SPAN),
        event("action.succeeded", action="a1", n=1, data={"result": {"ok": True}}),
    )  # fmt: skip


def test_an_agent_reads_its_own_run_and_nobody_elses(trip, northwind, agent_key, ada):
    found = get("runs/run_1", agent_key).json()
    assert found["request"] == "Move my flight"
    (action,) = found["actions"]
    assert (action["args"], action["effects"][0]["before"]) == ({"to": "LIS"}, {"to": "OPO"})
    assert get("runs/run_1/actions/a1", agent_key).json()["result"] == {"ok": True}
    assert get("runs/run_1/actions/a1", agent_key).json()["trace"] == action["trace"] == SPAN
    assert get("runs/run_1/actions/a2", agent_key).status_code == 404

    other = Agent.objects.create(workspace=northwind, name="mail-desk", owner=ada)
    stranger = keys.create_key(other, by=ada, name="x")[1]
    assert get("runs/run_1", stranger).status_code == 404
    blind = keys.create_key(other, by=ada, name="y", scopes=["ingest"])[1]
    refused = get("runs/run_1", blind)
    assert (refused.status_code, refused.json()["detail"]) == (403, "It lacks the scope “read”.")


def test_payloads_are_shown_to_those_who_may_and_it_is_recorded(trip, person):
    blind = get("runs/run_1", person("vic", "view")).json()
    assert "request" not in blind
    assert "args" not in blind["actions"][0]

    seen = get("runs/run_1", person("sue", "view", "view_sensitive")).json()
    assert seen["actions"][0]["args"] == {"to": "LIS"}
    assert Act.objects.get(type="payload.revealed").data == {"run": "run_1"}

    assert get("runs/run_1", person("nobody")).status_code == 403


def test_another_workspace_sees_nothing(trip, ada):
    elsewhere = Workspace.objects.create(slug="southwind", name="Southwind")
    agent = Agent.objects.create(workspace=elsewhere, name="trip-desk", owner=ada)
    assert get("runs/run_1", keys.create_key(agent, by=ada, name="x")[1]).status_code == 404


def test_heads_and_proofs_are_handed_out(trip, northwind, agent_key, actor):
    assert get("ledger/head", agent_key).status_code == 404
    one = event("run.completed")
    record_events(actor, one)
    assert get(f"ledger/proof/{one['id']}", agent_key).status_code == 404
    sealer.seal(northwind)

    public = [LogKey.parse(line) for line in get("ledger/key", agent_key).text.splitlines()]
    found = verify(get(f"ledger/proof/{one['id']}", agent_key).text, public)
    assert found.leaf["event"] == one["id"]
    size = found.size
    assert get("ledger/head", agent_key).text.splitlines()[1] == str(size)
    body = get(f"ledger/consistency?old=1&new={size}", agent_key).json()
    assert len(body["proof"]) >= 1
    assert get(f"ledger/consistency?old=9&new={size}", agent_key).status_code == 422
    assert get("ledger/consistency?old=x&new=2", agent_key).status_code == 422
    assert get("ledger/head", "amends_0000000000_x").status_code == 401


def test_a_tree_with_holes_gives_no_proof_and_says_why(trip, northwind, agent_key, actor):
    one = event("run.completed")
    record_events(actor, one)
    sealer.seal(northwind)
    Leaf.objects.filter(index=1).delete()

    for path in (f"proof/{one['id']}", "consistency?old=1&new=4"):
        refused = get(f"ledger/{path}", agent_key)
        assert refused.status_code == 409
        told = refused.json()
        assert told["type"] == "urn:amends:problem:tampered"
        assert "of the tree is gone" in told["detail"]


def test_the_openapi_page_tells_of_the_hot_door_too(client):
    paths = json.loads(client.get("/api/v1/openapi.json").content)["paths"]
    assert {"/api/v1/events", "/api/v1/blobs/{sha256}", "/api/v1/runs/{run}"} <= paths.keys()
    closed = [one for path in paths.values() for one in path.values() if one.get("security")]
    assert len(closed) > 10
    for one in closed:  # one whose refusals are of another form says which, in their place
        assert {"401", "403"} <= one["responses"].keys() or "default" in one["responses"]


def test_the_right_prefix_with_a_wrong_secret_reads_nothing(trip, agent_key, person):
    """Neither that of an agent's key nor that of a person's token."""
    token = person("grace", "view", "view_sensitive")
    ways = [(agent_key, "runs/run_1"), (token, "cases"), (token, "runs/run_1")]
    assert get("runs/run_1", agent_key).status_code == get("cases", token).status_code == 200

    for true, path in ways:
        for wrong in (f"amends_{keys.split(true)}_{'x' * 43}", true[:-1], f"{true}x"):
            assert get(path, wrong).status_code == 401
    assert (
        get("runs/run_1", f"amends_{keys.split(token)}_{agent_key.split('_', 2)[2]}").status_code
        == 401
    )


def test_a_siem_reads_every_entry_once_by_its_number(trip, northwind, trip_desk, ada, actor):
    """By a key that does nothing else; what agents handle is not in it."""
    watcher = keys.create_key(trip_desk, by=ada, name="siem", scopes=["audit"])[1]
    assert get("ledger/entries", watcher).json()["entries"] == []
    desk_events.record(northwind, EventType.MEMBER_ADDED, data={"person": "5", "team": "leads"})
    sealer.seal(northwind)

    first = get("ledger/entries?limit=2", watcher).json()
    rest = get(f"ledger/entries?since={first['next']}&origin={first['origin']}", watcher).json()
    nothing = get(f"ledger/entries?since={rest['next']}", watcher).json()

    told = [*first["entries"], *rest["entries"]]
    assert [one["index"] for one in told] == list(range(rest["size"]))
    assert (nothing["entries"], nothing["next"]) == ([], rest["next"])
    assert {one["run"] for one in told if "run" in one} == {"run_1"}
    assert "LIS" not in json.dumps(told)
    (added,) = [one for one in told if one["leaf"]["type"] == "member.added"]
    assert added["data"] == {"person": "5", "team": "leads"}


def test_a_person_who_reads_no_payloads_reads_the_names_of_what_concerns_the_workspace(
    trip, northwind, person
):
    viewer, auditor = person("vic", "view"), person("grace", "view", "view_sensitive")
    desk_events.record(northwind, EventType.MEMBER_ADDED, data={"person": "5", "mail": "e@x.org"})
    sealer.seal(northwind)

    def added(token):
        entries = get("ledger/entries", token).json()["entries"]
        return [one["data"] for one in entries if one["leaf"]["type"] == "member.added"][-1]

    assert added(viewer) == {"person": disclosure.HIDDEN, "mail": disclosure.HIDDEN}
    assert added(auditor) == {"person": "5", "mail": "e@x.org"}


def test_a_log_that_went_back_is_told_to_whoever_reads_on(northwind, trip_desk, ada, actor):
    """From where it went back: what was sealed since has numbers that were others' before."""
    watcher = keys.create_key(trip_desk, by=ada, name="siem", scopes=["audit"])[1]
    seal_runs(northwind, actor, 9)
    read = [get("ledger/entries", watcher).json()]
    for left, more in ((4, 3), (6, 2)):
        Leaf.objects.filter(index__gte=left).delete()
        seal_runs(northwind, actor, more)
        read.append(get(f"ledger/entries?since={left}", watcher).json())

    def told(since, origin):
        answer = get(f"ledger/entries?since={since}&origin={origin}", watcher)
        assert (answer.status_code, answer.json()["origin"]) == (409, read[-1]["origin"])
        return answer.json()["next"]

    assert len({one["origin"] for one in read}) == 3
    assert [told(one["next"], one["origin"]) for one in read[:2]] == [4, 6]
    assert told(2, read[0]["origin"]) == told(2, "another") == 2
    assert told(9, "another") == 6


def seal_runs(workspace, actor, count):
    record_events(actor, *(event("run.started", run=f"run_{n}") for n in range(count)))
    sealer.seal(workspace)


def test_only_a_key_for_the_audit_reads_all_and_it_does_nothing_else(
    trip, agent_key, trip_desk, ada
):
    refused = get("ledger/entries", agent_key)
    assert (refused.status_code, refused.json()["detail"]) == (403, "It lacks the scope “audit”.")
    with pytest.raises(ValueError, match="does nothing else"):
        keys.create_key(trip_desk, by=ada, name="both", scopes=["audit", "begin"])
