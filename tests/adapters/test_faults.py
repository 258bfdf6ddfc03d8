"""Each adapter under each fault of the desk, the disk and its own process: a call that the desk did
not allow is not made, and one that may have been made is not made again.

The table of faults is that of the clients (tests/data/contract.json); here it is the framework that
must neither lose a no nor repeat a call. The desk that is away is in test_traps.py, what a
framework's own gate does in tests/failclosed.
"""

import json
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.adapters.conftest import FRAMEWORKS, ON_NODE, each
from tests.contract import test_contract
from tests.contract.desk import POLICY, ScriptedDesk
from tests.sdk.conftest import KEY

certificate = test_contract.certificate
pytestmark = [pytest.mark.timeout(900)]
of_each = pytest.mark.parametrize("agents", each(), indirect=True)
slowly = [pytest.param(name, id=name, marks=pytest.mark.adapters) for name in FRAMEWORKS + ON_NODE]

TRIES = 3  # as often a client asks before it takes the desk for gone
FIRST, SECOND = (["assign_licence", {"licence": one, "holder": "mia"}] for one in ("L-21", "L-22"))
RUN_ONCE = ["assign_licence", "L-21"]


class StrictDesk(ScriptedDesk):
    """Its policy keeps back every call while it is away; `on_begin` is done before an answer."""

    def __init__(self, certificate=None, on_begin=None):
        super().__init__(certificate)
        self._on_begin = on_begin or (lambda: None)

    def answer(self, method, path, body):
        how, answer = super().answer(method, path, body)
        if path.endswith("/policy"):
            rules = {"*": {"risk": "HIGH", "approval": "MANUAL"}}
            answer = POLICY | {"document": {"agentSafety": {"policies": rules}}}
        if path.endswith("/begin"):
            self._on_begin()
        return how, answer


@pytest.fixture
def strict():
    """Start such a desk."""
    started = []

    def start(**how):
        started.append(StrictDesk(**how))
        started[-1].up()
        return started[-1]

    yield start
    for desk in started:
        desk.down()


@of_each
def test_an_error_and_half_an_answer_are_no_yes(agents, strict):
    desk = strict()
    desk.script["begin"] = [*[{"status": 500}] * TRIES, *[{"half": True}] * TRIES]

    said = agents.plays(desk.url, KEY, [FIRST, SECOND, FIRST])

    assert said["ran"] == [tuple(RUN_ONCE)], "the last, which was answered"
    assert all("NOT made" in one for one in said["told"][:2])
    assert len({body["attempt"] for body in desk.begun}) == 3, "a try anew is no other attempt"
    assert [event["type"] for event in desk.events].count("action.succeeded") == 1


@pytest.mark.parametrize("agents", slowly, indirect=True)
def test_an_answer_that_comes_too_late_is_no_yes(agents, strict):
    desk = strict()
    desk.script["begin"] = [{"seconds": 10.5}] * TRIES

    said = agents.plays(desk.url, KEY, [FIRST])

    assert said["ran"] == []
    assert "NOT made" in said["told"][0]


@of_each
def test_a_desk_whose_certificate_nobody_vouches_for_is_none(agents, strict, certificate):
    desk = strict(certificate=certificate)

    said = agents.plays(desk.url, KEY, [FIRST], is_away=True)

    assert said["ran"] == []
    assert "ertificate" in said["error"] + " ".join(said["told"])
    assert desk.heard == []


@of_each
def test_a_yes_for_which_the_disk_has_no_room_is_not_used(agents, strict):
    """What was allowed and not kept could not be told from what was never asked for."""
    started = list[subprocess.Popen[str]]()

    def fill_the_disk():
        limits = 0, resource.RLIM_INFINITY
        resource.prlimit(started[0].pid, resource.RLIMIT_FSIZE, limits)

    desk = strict(on_begin=fill_the_disk)
    started.append(agents.start(desk.url, KEY, [FIRST], is_away=True))

    said = agents.end(started[0])

    assert said["ran"] == []
    assert len(desk.begun) == 1
    assert "action.succeeded" not in [event["type"] for event in desk.events]


@of_each
def test_an_agent_that_is_killed_in_its_tool_does_not_call_it_again(agents, small_desk, tmp_path):
    """The outside was changed, and nobody could say so any more."""
    small_desk.control(lease=0)
    journal = tmp_path / "journal"
    how = {"journal": str(journal)}

    killed = agents.start(small_desk.url, KEY, [FIRST], fault="dies in the tool", **how)
    agents.dies(killed)
    said = agents.plays(small_desk.url, KEY, [FIRST], **how)

    assert said["ran"] == []
    assert "may have happened" in said["told"][0]
    assert [json.loads(line) for line in journal.read_text().splitlines()] == [RUN_ONCE]


@of_each
def test_of_two_processes_on_one_spool_one_makes_the_call(agents, small_desk):
    with ThreadPoolExecutor(2) as both:
        said = list(both.map(lambda _: agents.plays(small_desk.url, KEY, [FIRST]), range(2)))

    assert [one for each_said in said for one in each_said["ran"]] == [tuple(RUN_ONCE)]
    assert len({body["data"]["key"] for body in small_desk.journal("begin")}) == 1
