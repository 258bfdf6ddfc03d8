"""The guide's own lines in TypeScript fit its types and run, with the package that users get."""

import os
import re
import subprocess

import pytest

from config.local.places import ROOT
from tests import npm
from tests.sdk.conftest import KEY, SmallDesk, small_desk  # noqa: F401 - a fixture

OUTSIDE = """
const rows: { [id: string]: { flight: string } } = { XEHM4B: { flight: "HAT001" } };
const airline = {
  async get(id: string) { return { ...rows[id] }; },
  async update(id: string, fields: { flight: string }) {
    Object.assign(rows[id]!, fields);
    return { ...rows[id] };
  },
};
const hotels = {
  async get(_hotel: string) { return null; },
  async book(hotel: string) { return { id: "B-1", hotel }; },
};
"""
MODEL = """
import { MockLanguageModelV4 } from "ai/test";
const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
const input = JSON.stringify({ reservation: "XEHM4B", flight: "HAT019" });
const call = { type: "tool-call", toolCallId: "call_1", toolName: "update_flight", input };
const said = [[call, "tool-calls"], [{ type: "text", text: "Done." }, "stop"]];
const model = new MockLanguageModelV4({
  async doGenerate() {
    const [content, unified] = said.shift() as any;
    return { content: [content], finishReason: { unified, raw: undefined }, usage, warnings: [] };
  },
});
"""


STRICT = [
    "--noEmit",
    "--strict",
    "--target",
    "esnext",
    "--module",
    "nodenext",
    "--types",
    "node",
    "--skipLibCheck",
]


def blocks(page):
    return re.findall(r"```ts\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL)


@pytest.fixture
def run(small_desk, tmp_path):  # noqa: F811
    """Run lines as a file of a program that has the package installed."""

    def run(lines, desk: SmallDesk = small_desk):
        folder = npm.client() / "programs"
        folder.mkdir(exist_ok=True)
        (folder / "package.json").write_text('{"type": "module"}', "utf-8")
        script = folder / f"{os.getpid()}.ts"
        script.write_text(lines, "utf-8")
        here = {"AMENDS_URL": desk.url, "AMENDS_KEY": KEY, "AMENDS_SPOOL": str(tmp_path / "spool")}
        tsc = npm.client() / "node_modules" / "typescript" / "bin" / "tsc"
        fits = subprocess.run(
            [npm.NODE, tsc, *STRICT, script.name],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert fits.returncode == 0, fits.stdout
        subprocess.run([npm.NODE, script], env=os.environ | here, check=True, timeout=60)
        script.unlink()

    return run


def test_the_readme_shows_the_same_ten_lines_as_the_guide():
    assert blocks("../README.md")[0] == blocks("agents.md")[0]


def test_the_lines_of_a_new_key_run_in_a_folder_that_says_nothing_of_modules(
    small_desk,  # noqa: F811
    tmp_path,
):
    """As they are copied, into a file of the name that the page and the guides say."""
    from workspaces.quick_starts import QUICK_STARTS

    [one] = [one for one in QUICK_STARTS if one.slug == "typescript"]
    guides = [(ROOT / name).read_text("utf-8") for name in ("README.md", "docs/agents.md")]
    assert all("`node agent.mts`" in text for text in guides)
    assert "node agent.mts" in one.note
    folder = npm.client() / "alone"
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text('{"type": "commonjs"}', "utf-8")  # as npm init has it
    (folder / "agent.mts").write_text(one.program, "utf-8")
    here = {"AMENDS_URL": small_desk.url, "AMENDS_KEY": KEY, "AMENDS_SPOOL": str(tmp_path / "s")}

    for _ in range(2):
        command = [str(npm.NODE), "agent.mts"]
        subprocess.run(command, cwd=folder, env=os.environ | here, check=True, timeout=60)

    assert small_desk.types() == ["run.started", "action.succeeded", "run.completed"] * 2
    assert small_desk.journal()[1]["data"]["result"] == {"text": "hello"}


def test_ten_lines_connect_an_agent(run, small_desk):  # noqa: F811
    ten = blocks("agents.md")[0]
    assert len([line for line in ten.splitlines() if line.strip()]) <= 10

    run(ten.replace("\nconst desk", f"{OUTSIDE}\nconst desk"))

    assert small_desk.types() == ["run.started", "action.succeeded", "run.checkpoint",
                                  "run.completed"]  # fmt: skip
    [effect] = small_desk.journal()[1]["data"]["effects"]
    assert effect["after"] == {"flight": "HAT019"}
    assert small_desk.journal("begin")[0]["data"]["before"] == [{"flight": "HAT001"}]


def test_the_tool_of_the_guide_runs(run, small_desk):  # noqa: F811
    head = 'import { connect, undo } from "@amends/client";\nconst desk = connect();\n'

    run(f"{head}{OUTSIDE}{blocks('agents.md')[1]}")

    assert small_desk.types() == ["run.started", "action.succeeded", "run.completed"]
    told = small_desk.journal()[1]["data"]
    assert told["compensation"]["args"] == {"booking": "B-1"}
    assert told["effects"][0]["after"] == {"id": "B-1", "hotel": "H1"}


def test_the_lines_for_the_ai_sdk_connect_an_agent(run, small_desk):  # noqa: F811
    run(f"{MODEL}{OUTSIDE}{blocks('frameworks.md')[0]}")

    assert small_desk.types() == ["run.started", "action.succeeded", "run.completed"]
    assert small_desk.journal("begin")[0]["data"]["before"] == [{"flight": "HAT001"}]
    [effect] = small_desk.journal()[1]["data"]["effects"]
    assert effect["after"] == {"flight": "HAT019"}


TWIN = """
const licences = {
  release: async (id: string, reference: string) => id === "L-7" && reference === "k-1",
  find: (id: string) => ({ id }),
  wasReleasedWith: (key: string) => key === "k-1",
};
"""
ASKED = """
import { webhooks } from "@amends/client";
const asked = { v: 1, do: "apply", operation: "release_licence", key: "k-1", args: {},
                target: { type: "licence", id: "L-7" } };
const body = Buffer.from(JSON.stringify(asked)), timestamp = Math.floor(Date.now() / 1000);
const signature = webhooks.sign(SECRET, { messageId: "m-1", timestamp, body });
const headers = { "webhook-id": "m-1", "webhook-timestamp": `${timestamp}`,
                  "webhook-signature": signature };
const [status, said] = await undo.answer(headers, body);
if (status !== 200 || said["outcome"] !== "applied") throw new Error(JSON.stringify(said));
"""


def test_the_twin_of_the_guide_runs(run, tmp_path):
    [twin] = blocks("twins.md")
    here = twin.replace("/var/lib/licences", str(tmp_path)).replace('"whsec_…"', "SECRET")
    here = here.replace("createServer(undo.listener).listen(8080);", "createServer(undo.listener);")

    run(f'const SECRET = "whsec_{"QUJD" * 8}";\n{TWIN}{here}{ASKED}')


def test_every_error_of_the_guide_exists_in_typescript(run):
    table = (ROOT / "docs" / "agents.md").read_text("utf-8").split("## What can stop a call")[1]
    named = re.findall(r"^\| `(\w+)` \|", table.split("##")[0], re.MULTILINE)
    assert len(named) >= 8

    run(
        'import * as amends from "@amends/client";\n'
        f"for (const name of {named} as (keyof typeof amends)[])\n"
        "  if (!((amends[name] as typeof amends.Denied).prototype instanceof amends.AmendsError))\n"
        "    throw new Error(name);\n"
    )
