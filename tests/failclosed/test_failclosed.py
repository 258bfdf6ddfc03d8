"""Each gate and each fault: what ran without an approval, and what ran twice on one.

`make failclosed` measures all and writes docs/failclosed.md; a run of the tests measures the light
framework and holds the page to it. Ours must be 0 and 0.
"""

import fcntl
import json
import os
import re

import pytest

from tests import npm
from tests.adapters.conftest import FRAMEWORKS, ON_NODE, ROOT, environment_of
from tests.failclosed.faults import FAULTS, OurGate, OwnGate

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(3000)]
PAGE = ROOT / "docs" / "failclosed.md"
WRITES = "AMENDS_FAILCLOSED_WRITES"
MEASURED = [*FRAMEWORKS, "ai"]
QUICK = {"pydantic_ai"}
"""In every run of the tests; `make failclosed` measures all."""
PACKAGES = {
    "ag2": "ag2", "agent_framework": "agent-framework-core", "ai": "ai",
    "claude_agent_sdk": "claude-agent-sdk", "crewai": "crewai", "google_adk": "google-adk",
    "langchain": "langchain", "openai_agents": "openai-agents", "pydantic_ai": "pydantic-ai-slim",
    "smolagents": "smolagents", "strands": "strands-agents",
}  # fmt: skip
OWN = {
    "ag2": {"hook": "`approval_required`"},
    "agent_framework": {"pause": "`approval_mode`"},
    "ai": {"pause": "`user-approval`", "hook": "a function as `toolApproval`"},
    "claude_agent_sdk": {"hook": "`PreToolUse` hook", "can_use_tool": "`can_use_tool`"},
    "crewai": {"hook": "`PRE_TOOL_CALL` hook"},
    "google_adk": {"pause": "`require_confirmation`"},
    "langchain": {"pause": "human-in-the-loop middleware"},
    "openai_agents": {"pause": "`needs_approval`"},
    "pydantic_ai": {"pause": "deferred tools"},
    "smolagents": {},  # it has none
    "strands": {"pause": "interrupt in a hook"},
}
POLICY = """
agentSafety:
  policies:
    "*": {risk: HIGH, approval: MANUAL}
"""


def each(gates):
    return [
        pytest.param(framework, *more, id=f"{framework}-{more[0]}" if more else framework,
                     marks=[] if framework in QUICK else [pytest.mark.failclosed])
        for framework, *more in gates
    ]  # fmt: skip


@pytest.fixture
def ben(northwind, token):
    """He approves; the policy asks him of every tool."""
    from approvals import versions
    from workspaces import independence, teams
    from workspaces.models import User

    ada = User.objects.get(name="Ada")
    ben = User.objects.create_user("ben@northwind.example", name="Ben")
    teams.add(teams.create(northwind, "finance", by=None, may=["view", "approve"]), ben, by=None)
    independence.prove(ben)
    versions.activate(versions.save(northwind, POLICY, by=ada), by=ada)
    return ben


@pytest.mark.parametrize("framework", each([(one,) for one in MEASURED]))
def test_our_gate_lets_nothing_run_unapproved_or_twice(framework, cells, processes, token, ben):
    gate = OurGate(cells, framework, processes, token, ben)
    assert_sound(gate)

    counted = {fault: told(gate, fault) for fault in FAULTS}

    assert set(counted.values()) == {(0, 0)}, counted
    on_the_page(framework, "the adapter of Amends", counted)


@pytest.mark.parametrize(
    ("framework", "own"), each([(one, own) for one in MEASURED for own in OWN[one]])
)
def test_a_frameworks_own_gate_is_measured_beside_it(framework, own, cells):
    gate = OwnGate(cells, framework, own)
    assert_sound(gate)

    counted = {fault: told(gate, fault) for fault in FAULTS}

    on_the_page(framework, OWN[framework][own], counted)


def assert_sound(gate):
    """With nothing wrong, a yes lets the call run once, and without one it does not run."""
    for fault, runs in (("nothing", 1), ("no", 0)):
        counted, cell = gate.measure(fault)
        assert (len(cell.ran()), *counted) == (runs, 0, 0), cell.said()


def told(gate, fault):
    return gate.measure(fault)[0]


def on_the_page(framework, gate, counted):
    """The row of the table: written where that is asked for, else held against the page."""
    row = f"| {framework_as_tried(framework)} | {gate} | " + " | ".join(
        f"{one.without} · {one.twice}" for one in counted.values()
    )
    with PAGE.open("r+", encoding="utf-8") as page:
        fcntl.flock(page, fcntl.LOCK_EX)  # several runners measure
        text = page.read()
        if os.environ.get(WRITES):
            start = rf"^\| {re.escape(PACKAGES[framework])} [^|]*\| {re.escape(gate)} \|.*$"
            text, found = re.subn(start, lambda _: f"{row} |", text, flags=re.MULTILINE)
            assert found == 1, f"docs/failclosed.md has no row for {framework}, {gate}"
            page.seek(0)
            page.truncate()
            page.write(text)
    assert f"{row} |" in text


def framework_as_tried(framework):
    name = PACKAGES[framework]
    if framework in ON_NODE:
        package = npm.client() / "node_modules" / name / "package.json"
        return f"{name} {json.loads(package.read_text('utf-8'))['version']}"
    [version] = (environment_of(framework).parent.parent / "lib").glob(
        f"python*/site-packages/{name.replace('-', '_')}-*.dist-info"
    )
    return f"{name} {version.name.removesuffix('.dist-info').rsplit('-', 1)[1]}"
