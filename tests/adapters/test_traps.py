"""Whatever goes wrong, no tool runs without the desk's yes, and none runs twice for one."""

import subprocess

import pytest

from tests.adapters.conftest import FRAMEWORKS, bare_environment, each, environment_of
from tests.sdk.conftest import KEY

MIA = ["assign_licence", {"licence": "L-21", "holder": "mia"}]
pytestmark = [pytest.mark.timeout(900)]
of_each = pytest.mark.parametrize("agents", each(), indirect=True)
of_those_that_pause = pytest.mark.parametrize(
    "agents", each(["ai", "google_adk", "langchain", "pydantic_ai", "strands"]), indirect=True
)
# These end as if they were interrupted, for nothing that a tool raises would leave them.
APART = {"claude_agent_sdk", "strands"}


@of_each
def test_a_call_is_asked_for_made_and_told(agents, small_desk):
    said = agents.plays(small_desk.url, KEY, [MIA])

    assert said["ran"] == [("assign_licence", "L-21")]
    assert small_desk.types() == ["run.started", "action.succeeded", "run.completed"]
    [planned] = small_desk.journal("begin")
    assert planned["data"]["args"] == MIA[1]
    assert planned["data"]["targets"] == [{"type": "licence", "id": "L-21"}]
    if agents.name != "typescript":  # without a framework nobody says what a tool takes
        assert planned["data"]["tool_schema"]["properties"].keys() == {"licence", "holder"}
    [effect] = small_desk.journal()[1]["data"]["effects"]
    assert effect["after"] == {"holder": "mia", "seat": 1}


@of_each
def test_an_approver_changes_an_argument_and_the_tool_is_called_with_it(agents, small_desk):
    small_desk.control(changes={"assign_licence": {"licence": "L-21", "holder": "tom"}})

    said = agents.plays(small_desk.url, KEY, [MIA])

    assert said["ran"] == [("assign_licence", "L-21")]
    assert "tom" in said["told"][0]
    [done] = [one["data"] for one in small_desk.journal() if one["type"] == "action.succeeded"]
    assert done["args"] == {"licence": "L-21", "holder": "tom"}
    assert done["effects"][0]["after"] == {"holder": "tom", "seat": 1}


@of_each
def test_a_change_of_what_is_changed_is_not_made(agents, small_desk):
    small_desk.control(changes={"assign_licence": {"licence": "L-99", "holder": "mia"}})

    said = agents.plays(small_desk.url, KEY, [MIA])

    assert said["ran"] == []
    assert "NOT made" in said["told"][0]
    [failed] = [one["data"] for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["outcome"] == "no_effect"


@pytest.mark.parametrize("agents", each(["langchain"]), indirect=True)
def test_a_middleware_behind_the_gate_cannot_change_what_was_agreed_to(agents, small_desk):
    said = agents.plays(small_desk.url, KEY, [MIA], fault="changed")

    assert said["ran"] == []
    assert "the arguments were changed" in said["told"][0]
    [failed] = [one for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["data"]["outcome"] == "no_effect"


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("agents", each(["langchain"]), indirect=True)
def test_a_middleware_behind_the_gate_cannot_make_a_call_again(agents, small_desk, awaited):
    said = agents.plays(small_desk.url, KEY, [MIA], fault="late", awaited=awaited)

    assert said["ran"] == [("assign_licence", "L-21")]
    assert "was not made again" in said["told"][0]
    [failed] = [one for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["data"]["outcome"] == "unknown"


@pytest.mark.parametrize("agents", each(["google_adk"]), indirect=True)
def test_a_tool_that_streams_to_a_live_session_is_not_told_as_made(agents, small_desk):
    """It would be gone through after that, and nobody would hear how it ended."""
    said = agents.plays(small_desk.url, KEY, [MIA], fault="live")

    assert said["ran"] == []
    assert "NOT made" in said["told"][0]
    [failed] = [one for one in small_desk.journal() if one["type"].startswith("action.")]
    assert failed["data"]["outcome"] == "no_effect"


GO_THROUGH = {"claude_agent_sdk", "crewai", "google_adk"}


@pytest.mark.parametrize("fault", ["bits", "returns bits"])
@pytest.mark.parametrize("agents", each(sorted({*FRAMEWORKS} - GO_THROUGH)), indirect=True)
def test_a_tool_that_is_still_to_be_gone_through_is_not_told_as_made(agents, small_desk, fault):
    said = agents.plays(small_desk.url, KEY, [MIA], fault=fault)

    assert said["ran"] == []
    assert "action.succeeded" not in small_desk.types()


@pytest.mark.parametrize("fault", ["returns a map", "returns a coroutine"])
@pytest.mark.parametrize(
    "agents", each(sorted({*FRAMEWORKS} - {"claude_agent_sdk"})), indirect=True
)
def test_a_tool_that_answers_with_what_is_done_later_is_not_told_as_made(agents, small_desk, fault):
    said = agents.plays(small_desk.url, KEY, [MIA], fault=fault)

    assert small_desk.types().count("action.succeeded") == len(said["ran"])


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("agents", each(["langchain"]), indirect=True)
def test_a_tool_is_refused_for_the_one_of_its_functions_that_is_called(agents, small_desk, awaited):
    said = agents.plays(
        small_desk.url, KEY, [MIA], fault="bits where nobody awaits", awaited=awaited
    )

    assert said["ran"] == [("assign_licence", "L-21")] * awaited
    assert small_desk.types().count("action.succeeded") == awaited


@pytest.mark.parametrize("framework", each(["claude_agent_sdk"]))
def test_what_may_answer_in_the_desks_place_is_refused(framework, tmp_path):
    """A hook PermissionRequest that is faster than people lets the call run, with its arguments."""
    script = """
from claude_agent_sdk import ClaudeAgentOptions as Options, HookMatcher
from amends.adapters.claude_agent_sdk import gated
for options in (Options(), Options(setting_sources=[], settings="{}"),
                Options(setting_sources=[], hooks={"PermissionRequest": [HookMatcher()]}),
                Options(setting_sources=[], plugins=[{"type": "local", "path": "x"}]),
                Options(setting_sources=[], extra_args={"permission-prompt-tool": "mcp__a__b"}),
                Options(setting_sources=[], extra_args={"bare": None}),
                Options(setting_sources=[], extra_args={"settings=/x.json": None}),
                Options(setting_sources=[], extra_args={"agents": "{}"}),
                Options(setting_sources=[], env={"CLAUDE_CODE_SIMPLE": "1"})):
    try:
        gated(None, options)
    except ValueError as error:
        print(str(error).split(": ")[1].split(".")[0])
gated(None, Options(), ungated=["setting_sources"])
"""
    done = subprocess.run(
        [environment_of(framework), "-c", script], env=bare_environment(tmp_path),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    assert done.stdout.split() == [
        "setting_sources", "settings", "PermissionRequest", "plugins",
        *["extra_args"] * 4, "CLAUDE_CODE_SIMPLE",  # under `bare` and this no hook is heard
    ]  # fmt: skip


PAST = {
    "ag2": """
from ag2.tools import Toolkit, WebSearchTool
from amends.adapters.ag2 import gated
kinds = [Toolkit(), WebSearchTool(), "web_search"]
""",
    "agent_framework": """
from agent_framework import FunctionTool
from amends.adapters.agent_framework import gated
kinds = [{"type": "web_search"}, FunctionTool(name="elsewhere"), "web_search"]
""",
}


@pytest.mark.parametrize("framework", each(sorted(PAST)))
def test_tools_that_would_run_past_the_desk_are_refused(framework, tmp_path):
    script = (
        PAST[framework]
        + """
for kind in kinds:
    try:
        gated(None, [kind])
    except TypeError as error:
        print(str(error).rpartition(": ")[2])
"""
    )
    done = subprocess.run(
        [environment_of(framework), "-c", script], env=bare_environment(tmp_path),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    assert done.stdout.splitlines() == ["it would go past the desk"] * 3


@pytest.mark.parametrize("agents", each(["claude_agent_sdk"]), indirect=True)
def test_a_gated_tool_does_not_run_on_another_hooks_yes(agents, small_desk):
    small_desk.control(modes={"assign_licence": "wait"})

    said = agents.plays(small_desk.url, KEY, [MIA], fault="let through", wait_seconds=5)

    assert said["ran"] == []
    assert "the desk has not allowed it" in said["told"][0]


ALIKE = """
import asyncio, sys
import amends
from claude_agent_sdk import ClaudeAgentOptions, ToolPermissionContext, create_sdk_mcp_server, tool
from amends.adapters.claude_agent_sdk import gated, gated_tool

@gated_tool
@tool("look_up", "Look somebody up.", {"name": str})
async def look_up(args):
    return {"content": []}

async def call():
    try:
        await look_up.handler({"name": "mia"})
        print("made")
    except amends.AmendsError:
        print("refused")

desk = amends.connect(*sys.argv[1:3], spool="spool")
own = create_sdk_mcp_server("own", tools=[look_up])
asked = ClaudeAgentOptions(mcp_servers={"own": own}, setting_sources=[])
options = gated(desk, asked, {"look_up": amends.declare(effect_class="read_only")})
[hear] = options.hooks["PostToolUse"][0].hooks

async def ended(name):
    await hear({"hook_event_name": "PostToolUse", "tool_response": "seen"}, name, None)

async def story():
    async with desk.run("Look"):
        for name in ("first", "second"):
            context = ToolPermissionContext(tool_use_id=name)
            await options.can_use_tool("mcp__own__look_up", {"name": "mia"}, context)
        for step in sys.argv[3:]:
            await (call() if step == "call" else ended(step))

asyncio.run(story())
desk.close()
"""


@pytest.mark.parametrize(
    "steps",
    [
        "call call call first second",
        "call second call call first",  # which of them ended is known by the program's ids alone
        "call first call second call",
        "call second call first call",
    ],
)
@pytest.mark.parametrize("framework", each(["claude_agent_sdk"]))
def test_two_calls_alike_are_no_yes_for_a_third(framework, small_desk, tmp_path, steps):
    done = subprocess.run(
        [environment_of(framework), "-c", ALIKE, small_desk.url, KEY, *steps.split()],
        env=bare_environment(tmp_path), cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    assert done.stdout.split() == ["made", "made", "refused"]
    assert small_desk.types().count("action.succeeded") == 2


@pytest.mark.parametrize("agents", each(["smolagents"]), indirect=True)
def test_code_that_a_model_writes_calls_its_tools_through_the_gate(agents, small_desk):
    said = agents.plays(small_desk.url, KEY, [MIA, MIA], codes=True)
    assert said["ran"] == [("assign_licence", "L-21")]
    assert all("L-21" in one for one in said["told"])

    small_desk.control(modes={"assign_licence": "denied"})
    said = agents.plays(small_desk.url, KEY, [MIA], run="run_2", codes=True)
    assert said["ran"] == []
    assert "NOT made" in said["told"][0]


@of_each
def test_a_no_reaches_the_model_with_its_reason(agents, small_desk):
    small_desk.control(modes={"assign_licence": "denied"})

    said = agents.plays(small_desk.url, KEY, [MIA])

    assert said["ran"] == []
    assert "NOT made" in said["told"][0]
    assert "not on Fridays" in said["told"][0]


@of_each
def test_a_stopped_run_is_left(agents, small_desk):
    small_desk.control(modes={"assign_licence": "denied"}, code="recovery")

    said = agents.plays(small_desk.url, KEY, [MIA, MIA])

    assert said["ran"] == []
    if agents.name not in APART:
        assert said["told"] == []
        assert "the desk has stopped this run" in said["error"]
    assert len(small_desk.journal("begin")) == 1
    assert small_desk.types()[-1] == "run.cancelled"


@of_each
def test_the_same_call_again_is_answered_and_not_made(agents, small_desk):
    """A model that repeats itself, under another id of the framework's; what reads is done anew."""
    look = ["look_up", {"name": "mia"}]

    said = agents.plays(small_desk.url, KEY, [MIA, MIA, look, look])

    assert said["ran"] == [("assign_licence", "L-21"), ("look_up", "mia"), ("look_up", "mia")]
    assert "L-21" in said["told"][1]
    assert said["told"][2] != said["told"][3]


@of_each
def test_a_retry_after_a_crash_does_not_make_it_again(agents, small_desk):
    for _ in range(2):
        said = agents.plays(small_desk.url, KEY, [MIA])

    assert said["ran"] == []
    assert "L-21" in said["told"][0]


@of_each
def test_without_the_desk_nothing_that_needs_it_is_done(agents, small_desk):
    agents.plays(small_desk.url, KEY, [["look_up", {"name": "mia"}]])
    small_desk.control(safety={"policies": {"*": {"risk": "HIGH", "approval": "MANUAL"}}})
    agents.plays(small_desk.url, KEY, [["look_up", {"name": "tom"}]], run="run_2")
    small_desk.stop()

    said = agents.plays(small_desk.url, KEY, [MIA], run="run_3", is_away=True)

    assert said["ran"] == []
    assert "NOT made" in said["told"][0]


@of_each
def test_nobody_decides_and_the_call_is_not_made(agents, small_desk):
    small_desk.control(modes={"assign_licence": "wait"})

    said = agents.plays(small_desk.url, KEY, [MIA], wait_seconds=0.3)

    assert said["ran"] == []
    assert "nobody has decided" in said["told"][0]


@of_each
def test_what_a_tool_raises_is_a_failure_and_reaches_the_model(agents, small_desk):
    said = agents.plays(small_desk.url, KEY, [["send_welcome", {"to": "mia"}]])

    [failed] = [one for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["data"]["outcome"] == "no_effect"
    assert said["ran"] == [("send_welcome", "mia")]
    assert said["told"] or "mail server" in said["error"], "in the framework's own way"
    assert small_desk.types()[-1] == "run.failed"


@of_those_that_pause
def test_a_pause_is_gone_on_from_once_the_desk_agrees(agents, small_desk):
    small_desk.control(modes={"assign_licence": "wait"})
    said = agents.plays(small_desk.url, KEY, [MIA], interrupts=True)
    assert said["ran"] == []

    small_desk.control(decided=[small_desk.journal("begin")[0]["data"]["key"]])
    said = agents.plays(small_desk.url, KEY, [MIA], interrupts=True)

    assert said["ran"] == [("assign_licence", "L-21")]


@of_those_that_pause
def test_a_pause_that_is_answered_elsewhere_is_no_approval(agents, small_desk):
    """The framework is told to go on; the desk is asked anew each time."""
    small_desk.control(modes={"assign_licence": "wait"})

    said = agents.plays(
        small_desk.url, KEY, [MIA], interrupts=True, resumes=["yes", {"approved": True}]
    )

    assert said["ran"] == []
    assert said["told"][0] == "waits for ap_1"
    assert len(small_desk.journal("begin")) >= 2


@pytest.mark.parametrize("framework", each(["openai_agents"]))
def test_what_is_handed_over_to_is_looked_at_to_the_end(framework, tmp_path):
    """An agent without tools of its own may have a server, or hand over to one that has tools."""
    script = """
from agents import Agent, function_tool
from agents.mcp import MCPServerStdio
from amends.adapters.openai_agents import gated
files = MCPServerStdio({"command": "none"}, name="files")
last = Agent(name="last", tools=[function_tool(lambda licence: licence, name_override="assign")])
middle = Agent(name="middle", handoffs=[last])
last.handoffs.append(middle)
for other in (Agent(name="other", mcp_servers=[files]), middle):
    try:
        gated(None, Agent(name="first", handoffs=[other]))
    except ValueError as error:
        print(str(error).split(": ")[2].split(".")[0])
good = gated(None, Agent(name="good", tools=list(last.tools)))
gated(None, Agent(name="first", handoffs=[good, Agent(name="middle", handoffs=[good])]))
"""
    done = subprocess.run(
        [environment_of(framework), "-c", script], env=bare_environment(tmp_path),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    assert done.stdout.split() == ["files", "last"]


ONE_OF_A_LIST = """
def behind(desk):
    return gated(desk, gated(desk, [assign_licence]))
"""
TWICE = {
    "ag2": ONE_OF_A_LIST,
    "google_adk": ONE_OF_A_LIST,
    "smolagents": """
from smolagents import Tool
class AssignLicence(Tool):
    name, description, output_type = "assign_licence", "Give a licence to somebody.", "string"
    inputs = {"licence": {"type": "string", "description": "which one"}}
    def forward(self, licence):
        return licence
def behind(desk):
    return gated(desk, gated(desk, [AssignLicence()]))
""",
    "strands": """
from strands import tool
def behind(desk):
    return gated(desk, gated(desk, [tool(assign_licence)]))
""",
    "openai_agents": """
from agents import Agent, function_tool
def behind(desk):
    agent = Agent(name="first", tools=[function_tool(assign_licence)])
    return gated(desk, gated(desk, agent))
""",
    "agent_framework": ONE_OF_A_LIST,
    "crewai": """
from crewai.tools import tool
def behind(desk):
    return gated(desk, gated(desk, [tool(assign_licence)]))
""",
}


@pytest.mark.parametrize("framework", each(sorted(TWICE)))
def test_a_tool_that_is_behind_the_desk_is_not_put_there_twice(framework, tmp_path):
    """It would wait for itself, and its own no, a text, be told as what the call answered."""
    script = f'''
from amends.adapters.{framework} import gated
def assign_licence(licence: str) -> str:
    """Give a licence to somebody.

    Args:
        licence: which one
    """
    return licence
{TWICE[framework]}
try:
    behind(None)
except TypeError as error:
    print(error)
'''
    done = subprocess.run(
        [environment_of(framework), "-c", script], env=bare_environment(tmp_path),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    assert done.stdout.startswith("assign_licence is behind the desk already")
