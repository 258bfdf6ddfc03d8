"""Behind PgBouncer in transaction mode, over HTTP as any client speaks it: what was approved is
what runs, in two processes of the desk that share a few sessions of the database.
"""

import itertools
import json
import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest

from approvals.models import Approval
from ledger.models import Action
from ledger.parsed_events import new_id
from recovery.models import Case
from tests import pooler as poolers
from tests.approvals.cast import put_in_force
from tests.config.test_worker import soon
from tests.crash.person import Person
from workspaces import keys
from workspaces.models import Agent

pooler, named_pooler = poolers.pooler, poolers.named_pooler
pytestmark = [pytest.mark.django_db(transaction=True), poolers.needed]

POLICY = {
    "policies": {"pay.*": [{"approval": "MANUAL"}], "note.*": [{"approval": "AUTO"}]},
}
HIDDEN = {
    "iban": ("DE89370400440532013000", "de89 3704 0044 0532 0130 00", "GB33BUKB20201555555555"),
    "card": ("4242 4242 4242 4242", "4242-4242-4242-4242", "5555 5555 5555 4444"),
    "api_key": ("sk-live-zebra-1", "sk-live-zebra-1", "sk-live-zebra-2"),
}
"""Of each field the value, the same in another spelling, and another value."""

LARGE = 2**53 + 1


class Raw:
    """What any language could send: a body, a key, an answer."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._counted = itertools.count(1)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        asked = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"authorization": f"Bearer {self._token}", "content-type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def begin(self, args: object, *, key: str, tool: str = "pay.out", run: str = "run_1"):
        number = next(self._counted)
        data: dict[str, Any] = {
            "tool": tool,
            "targets": [{"type": "payee", "id": "p7"}],
            "args": args,
            "key": key,
        }
        data |= {"class": "external_irreversible"}
        said: dict[str, Any] = {"id": new_id(), "type": "action.planned", "run": run, "n": number}
        said |= {"action": f"act_{key}", "attempt": f"try-{number}", "data": data}
        status, text = self.ask("POST", "/api/v1/actions/begin", said)
        return status, json.loads(text) | {"attempt": said["attempt"]}

    def tell(self, kind: str, data: object, *, run: str = "run_1", action: str | None = None):
        event = {"id": new_id(), "type": kind, "run": run, "n": next(self._counted), "data": data}
        event |= {"action": action} if action else {}
        _, text = self.ask("POST", "/api/v1/events", [event])
        assert [one["status"] for one in json.loads(text)["results"]] == ["accepted"], text

    def succeeded(self, said, **more):
        data = {"fence": said["fence"], "attempt": said["attempt"]} | more
        self.tell("action.succeeded", data, run=said["run"], action=said["action"])


@pytest.fixture
def desk(named_pooler, processes, acme, ada):
    told_of_it = named_pooler()
    put_in_force(acme, ada, POLICY)
    with processes.side_by_side():
        web = processes.web(AMENDS_WEB_PROCESSES="2", **told_of_it)
        processes.scheduler(**told_of_it)
    return web


@pytest.fixture
def raw(desk, acme, ada):
    agent = Agent.objects.create(workspace=acme, name="trip-agent", owner=ada)
    return Raw(desk.url, keys.create_key(agent, by=None, name="test")[1])


def test_what_was_approved_is_what_runs(raw, desk, acme, ben):
    says_yes = Person(ben, desk.url, acme)
    for field, (value, spelled_otherwise, other) in HIDDEN.items():
        asked, same, changed = (
            {"amount": 500, "to": {field: one}} for one in (value, spelled_otherwise, other)
        )
        assert raw.begin(asked, key=field)[1]["answer"] == "wait"
        says_yes.approves(Approval.objects.get(state="waiting"))

        status, refused = raw.begin(changed, key=field)
        assert (status, refused["type"]) == (422, "urn:amends:problem:key-reused"), field
        _, said = raw.begin(same, key=field)
        assert said["answer"] == "proceed", (field, said)
        raw.succeeded(said, result={"id": f"paid-{field}"})

        assert raw.begin(asked, key=field)[1]["answer"] == "replay"
        assert raw.begin(changed, key=field)[0] == 422, "a second payout has no first one's result"


def test_numbers_of_any_size_are_told_apart_and_come_back_as_they_were_sent(raw):
    _, said = raw.begin({"n": LARGE}, key="large", tool="note.add")
    assert said["answer"] == "proceed"
    raw.succeeded(said, result={"n": LARGE + 1})

    for other in (2**53, LARGE + 1, str(LARGE), float(2**53)):
        assert raw.begin({"n": other}, key="large", tool="note.add")[0] == 422, other
    _, again = raw.begin({"n": LARGE}, key="large", tool="note.add")
    assert (again["answer"], again["result"]) == ("replay", {"n": LARGE + 1})
    assert Action.objects.get().args == {"n": LARGE}


def test_a_grant_is_for_its_run_and_for_its_person(raw, desk, acme, ben):
    raw.tell("run.started", {"request": "pay", "on_behalf_of": {"id": "c1"}}, run="run_1")
    raw.tell("run.started", {"request": "pay", "on_behalf_of": {"id": "c2"}}, run="run_2")
    assert raw.begin({"amount": 5}, key="k")[1]["answer"] == "wait"
    Person(ben, desk.url, acme).approves(Approval.objects.get(state="waiting"))

    assert raw.begin({"amount": 5}, key="k", run="run_2")[1]["answer"] == "wait"
    assert raw.begin({"amount": 5}, key="k")[1]["answer"] == "proceed"


def test_done_without_having_asked_is_a_case(raw, desk, acme):
    planned = {"tool": "pay.out", "targets": [], "args": {}, "key": "k"}
    raw.tell("action.planned", planned, action="act_1")
    raw.tell("action.succeeded", {"attempt": "1", "result": {}}, action="act_1")
    raw.tell("run.completed", {})

    assert soon(Case.objects.exists)
    assert Action.objects.get().state == "succeeded"
