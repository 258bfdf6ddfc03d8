"""Quick starts: the first program of an agent for each framework, as the page of a new key shows it.

One entry is one framework. The programs stand word for word in docs/ (frameworks.md, agents.md,
mcp.md, http.md), and tests run all of them.
"""

# ruff: noqa: E501 - the lines are as the pages of the docs have them

from typing import NamedTuple


class QuickStart(NamedTuple):
    """`install` and `program` as they are pasted, with the address of the desk's own client in the
    place of `{wheel}` or `{tarball}`; the key comes from the environment.
    """

    slug: str
    name: str
    install: str
    program: str
    note: str
    language: str = "Python"


PYTHON = """\
import amends

notes = {}
desk = amends.connect()  # AMENDS_URL, AMENDS_KEY
with desk.run("Try the desk") as run:
    args = {"text": "hello"}
    with run.action("notes.write", target=("note", "n-1"), args=args, before=None) as act:
        notes["n-1"] = act.perform(dict, **args)
        act.succeeded(result=notes["n-1"], after=notes["n-1"])
desk.close()
"""
_DECLARED = """\
desk = amends.connect()
move = amends.declare(target=("reservation", "{reservation}"), before=lambda reservation, **_: airline.get(reservation),
                      after=lambda _, reservation, **__: airline.get(reservation))
"""
_RUN = 'with desk.run("Move my return flight", on_behalf_of={"id": "mia", "name": "Mia Li"}):\n    '
LANGCHAIN = f"""\
import amends
from amends.adapters.langchain import AmendsMiddleware
from langchain.agents import create_agent

{_DECLARED}\
agent = create_agent(model, [update_flight], middleware=[AmendsMiddleware(desk, {{"update_flight": move}})])
{_RUN}agent.invoke({{"messages": [("user", "Move my return flight to HAT019")]}})
"""
OPENAI_AGENTS = f"""\
import amends
from agents import Agent, Runner
from amends.adapters.openai_agents import gated

{_DECLARED}\
agent = gated(desk, Agent(name="trips", model=model, tools=[update_flight]), {{"update_flight": move}})
{_RUN}Runner.run_sync(agent, "Move my return flight to HAT019")
"""
PYDANTIC_AI = f"""\
import amends
from amends.adapters.pydantic_ai import AmendsToolset
from pydantic_ai import Agent
from pydantic_ai.toolsets import FunctionToolset

{_DECLARED}\
agent = Agent(model, toolsets=[AmendsToolset(FunctionToolset([update_flight]), desk, {{"update_flight": move}})])
{_RUN}agent.run_sync("Move my return flight to HAT019")
"""
GOOGLE_ADK = f"""\
import asyncio

import amends
from amends.adapters.google_adk import gated
from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner

{_DECLARED}\
runner = InMemoryRunner(Agent(name="trips", model=model, tools=gated(desk, [update_flight], {{"update_flight": move}})))
{_RUN}asyncio.run(runner.run_debug("Move my return flight to HAT019"))
"""
CREWAI = f"""\
import amends
from amends.adapters.crewai import gated
from crewai import Agent, Crew, Task

{_DECLARED}\
agent = Agent(role="Trips", goal="Move flights", backstory="You move flights.", llm=model,
              tools=gated(desk, [update_flight], {{"update_flight": move}}))
task = Task(description="Move my return flight to HAT019", expected_output="The new flight", agent=agent)
{_RUN}Crew(agents=[agent], tasks=[task]).kickoff()
"""
STRANDS = f"""\
import amends
from amends.adapters.strands import gated
from strands import Agent

{_DECLARED}\
agent = Agent(model=model, tools=gated(desk, [update_flight], {{"update_flight": move}}))
{_RUN}agent("Move my return flight to HAT019")
"""
SMOLAGENTS = f"""\
import amends
from amends.adapters.smolagents import gated
from smolagents import ToolCallingAgent

{_DECLARED}\
agent = ToolCallingAgent(tools=gated(desk, [update_flight], {{"update_flight": move}}), model=model)
{_RUN}agent.run("Move my return flight to HAT019")
"""
AG2 = f"""\
import asyncio

import amends
from ag2 import Agent
from amends.adapters.ag2 import gated

{_DECLARED}\
agent = Agent("trips", config=model, tools=gated(desk, [update_flight], {{"update_flight": move}}))
{_RUN}asyncio.run(agent.ask("Move my return flight to HAT019"))
"""
AGENT_FRAMEWORK = f"""\
import asyncio

import amends
from agent_framework import Agent
from amends.adapters.agent_framework import gated

{_DECLARED}\
agent = Agent(client=model, tools=gated(desk, [update_flight], {{"update_flight": move}}))
{_RUN}asyncio.run(agent.run("Move my return flight to HAT019"))
"""
CLAUDE_AGENT_SDK = f"""\
import amends, asyncio
from amends.adapters.claude_agent_sdk import gated, gated_tool
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, create_sdk_mcp_server

{_DECLARED}\
trips = create_sdk_mcp_server("trips", tools=[gated_tool(update_flight)])
options = gated(desk, ClaudeAgentOptions(mcp_servers={{"trips": trips}}, setting_sources=[]), {{"update_flight": move}})
async def answer(request):
    async with desk.run("Move my return flight", on_behalf_of={{"id": "mia", "name": "Mia Li"}}), ClaudeSDKClient(options) as client:
        await client.query(request)
        async for message in client.receive_response(): print(message)
asyncio.run(answer("Move my return flight to HAT019"))
"""
TYPESCRIPT = """\
import { connect } from "@amends/client";

const notes: { [id: string]: { text: string } } = {};
const desk = connect(); // AMENDS_URL, AMENDS_KEY
await desk.run("Try the desk", {}, async (run) => {
  const plan = { target: ["note", "n-1"], args: { text: "hello" }, before: null } as const;
  await run.action("notes.write", plan, async (act) => {
    const note = (notes["n-1"] = await act.perform((args) => ({ ...args })));
    await act.succeeded(note, { after: note });
  });
});
await desk.close();
"""
AI_SDK = """\
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";
import { connect, type Declaration } from "@amends/client";
import { gated } from "@amends/client/ai";

const desk = connect();
const updateFlight = tool({
  description: "Move a reservation to another flight.",
  inputSchema: z.object({ reservation: z.string(), flight: z.string() }),
  execute: ({ reservation, flight }) => airline.update(reservation, { flight }),
});
const move = {
  target: ["reservation", "{reservation}"],
  before: ({ reservation }) => airline.get(reservation),
  after: (_, { reservation }) => airline.get(reservation),
} satisfies Declaration;
const behind = gated(desk, { update_flight: updateFlight }, { declared: { update_flight: move } });
await desk.run("Move my return flight", { onBehalfOf: { id: "mia", name: "Mia Li" } }, () =>
  generateText({ model, ...behind, prompt: "Move my return flight to HAT019", stopWhen: isStepCount(5) }),
);
"""
MCP = "amends mcp-gateway -- npx @modelcontextprotocol/server-filesystem /home/mia/notes\n"
CURL = """\
run=run_$(date +%s)
ask() {
  curl --silent --show-error --fail-with-body --write-out "\\n" "$AMENDS_URL$1" --data-binary @- \\
    --header "Authorization: Bearer $AMENDS_KEY" --header "Content-Type: application/json"
}

ask /api/v1/events <<END
[{"id": "$run-started", "type": "run.started", "run": "$run", "data": {"request": "Try the desk"}}]
END

ask /api/v1/actions/begin <<END
{"type": "action.planned", "run": "$run", "action": "act_1", "n": 1, "attempt": "$run-try-1",
 "data": {"tool": "notes.write", "targets": [{"type": "note", "id": "n-1"}], "args": {"text": "hello"},
          "before": [null]}}
END
# {"answer": "proceed", ...}: now make the call, and say how it went.

ask /api/v1/events <<END
[{"id": "$run-written", "type": "action.succeeded", "run": "$run", "action": "act_1", "n": 1,
  "data": {"attempt": "$run-try-1", "after": {"text": "hello"}}},
 {"id": "$run-completed", "type": "run.completed", "run": "$run", "data": {}}]
END
"""
NPM = "npm install {tarball}"
IN_ITS_FOLDER = (
    "The first line in the agent's own folder; then save this as agent.mts and run it with: node"
    " agent.mts."
)
YOURS = "Put your model and your tools in place of model, update_flight and airline."


def _with(extra: str) -> str:
    return f'pip install "amends[{extra}] @ {{wheel}}"'


QUICK_STARTS = (
    QuickStart("python", "Plain Python", "pip install {wheel}", PYTHON,
               "It writes into a dict and nowhere else."),
    QuickStart("langchain", "LangChain and LangGraph", _with("langchain"), LANGCHAIN,
               YOURS),
    QuickStart("openai-agents", "OpenAI Agents SDK", _with("openai-agents"),
               OPENAI_AGENTS, YOURS),
    QuickStart("pydantic-ai", "Pydantic AI", _with("pydantic-ai"), PYDANTIC_AI,
               YOURS),
    QuickStart("google-adk", "Google ADK", _with("google-adk"), GOOGLE_ADK, YOURS),
    QuickStart("crewai", "CrewAI", _with("crewai"), CREWAI, YOURS),
    QuickStart("claude-agent-sdk", "Claude Agent SDK", _with("claude-agent-sdk"),
               CLAUDE_AGENT_SDK, YOURS),
    QuickStart("strands", "Strands Agents", _with("strands"), STRANDS, YOURS),
    QuickStart("smolagents", "smolagents", _with("smolagents"), SMOLAGENTS, YOURS),
    QuickStart("ag2", "AG2", _with("ag2"), AG2, YOURS),
    QuickStart("agent-framework", "Microsoft Agent Framework",
               _with("agent-framework"), AGENT_FRAMEWORK, YOURS),
    QuickStart("typescript", "TypeScript", NPM, TYPESCRIPT,
               f"{IN_ITS_FOLDER} It writes into an object and nowhere else.", "TypeScript"),
    QuickStart("ai-sdk", "AI SDK (Vercel)", f"{NPM} ai zod", AI_SDK,
               f"{IN_ITS_FOLDER} Put your model and your tools in place of model, updateFlight and"
               " airline.",
               "TypeScript"),
    QuickStart("mcp", "MCP", _with("mcp"), MCP, "It goes where your MCP client starts"
               " its server, with yours in place of the one for files.", "shell"),
    QuickStart("http", "Plain HTTP", "", CURL, "It makes no call at all, and says that it wrote.",
               "shell"),
)  # fmt: skip
