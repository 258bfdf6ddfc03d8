"""The guide's own lines are run, as a newcomer would."""

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import amends
from amends.testing import ScriptedDesk
from tests.sdk.conftest import ENVIRONMENT, KEY

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("agents.md", "frameworks.md", "mcp.md", "http.md")
SDK = DOCS.parent / "sdk"
AIRLINE = """
class airline:
    rows = {"XEHM4B": {"flight": "HAT001"}}
    @classmethod
    def get(cls, id): return dict(cls.rows[id])
    @classmethod
    def update(cls, id, **fields): cls.rows[id].update(fields); return dict(cls.rows[id])
"""


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (DOCS / name).read_text("utf-8"), re.DOTALL)


def test_the_readme_shows_the_same_ten_lines_as_the_guide():
    assert blocks("../README.md")[0] == blocks("agents.md")[0]


def test_ten_lines_connect_an_agent(small_desk, tmp_path):
    ten = blocks("agents.md")[0]
    assert len([line for line in ten.splitlines() if line.strip()]) <= 10
    script = tmp_path / "agent.py"
    script.write_text(AIRLINE + ten, encoding="utf-8")
    here = {"AMENDS_URL": small_desk.url, "AMENDS_KEY": KEY, "AMENDS_SPOOL": str(tmp_path / "s")}

    subprocess.run([sys.executable, script], env=ENVIRONMENT | here, check=True, timeout=30)

    assert small_desk.types() == ["run.started", "action.succeeded", "run.checkpoint",
                                  "run.completed"]  # fmt: skip
    [effect] = small_desk.journal()[1]["data"]["effects"]
    assert effect["after"] == {"flight": "HAT019"}
    assert small_desk.journal("begin")[0]["data"]["before"] == [{"flight": "HAT001"}]


@pytest.mark.django_db(transaction=True)
def test_the_ten_lines_run_as_printed_in_a_workspace_that_was_just_set_up(
    processes, client, tmp_path
):
    from approvals.models import Approval
    from ledger.models import Run
    from workspaces import entrance, keys
    from workspaces.models import Agent, User, Workspace
    from workspaces.quick_starts import PYTHON

    form = {"name": "Ada", "email": "ada@northwind.example", "password": "a long enough secret"}
    client.post(f"/setup/{entrance.setup_link()}/", form | {"workspace_name": "Northwind"})
    ada, northwind = User.objects.get(), Workspace.objects.get()
    agent = Agent.objects.create(workspace=northwind, name="trip-desk", owner=ada)
    here = {
        "AMENDS_URL": processes.kept_web().url,
        "AMENDS_KEY": keys.create_key(agent, by=ada, name="first")[1],
        "AMENDS_SPOOL": str(tmp_path / "s"),
    }
    misprint = blocks("../README.md")[0].replace('"update_flight"', '"updаte_flight"')
    for lines in (blocks("../README.md")[0], PYTHON):
        script = tmp_path / "agent.py"
        script.write_text(AIRLINE + lines, encoding="utf-8")
        subprocess.run([sys.executable, script], env=ENVIRONMENT | here, check=True, timeout=60)

    assert {run.state for run in Run.objects.all()} == {"completed"}
    assert {run.request for run in Run.objects.all()} == {"Move my return flight", "Try the desk"}
    assert not Approval.objects.exists()

    impatient = misprint.replace("amends.connect()", "amends.connect(wait_seconds=0.2)")
    script.write_text(AIRLINE + impatient, encoding="utf-8")
    command = [sys.executable, script]
    said = subprocess.run(
        command, env=ENVIRONMENT | here, capture_output=True, timeout=60, check=False
    )
    assert b"ApprovalTimeout" in said.stderr
    [rule] = Approval.objects.get().rules
    assert "No rule lists this tool, “upd⟦U+0430⟧te_flight”" in rule["words"]


def test_the_decorated_tool_of_the_guide_runs(desk, small_desk):
    names = {"desk": desk, "amends": amends}
    exec(AIRLINE + blocks("agents.md")[1], names)  # noqa: S102
    desk.flush()

    assert small_desk.types()[-1] == "run.completed"
    planned = small_desk.journal("begin")[0]["data"]
    assert planned["compensation"] == {
        "connection": "airline", "operation": "restore", "args": {"id": "XEHM4B"}
    }  # fmt: skip


def test_the_async_lines_of_the_guide_run(desk, small_desk):
    awaited = (
        AIRLINE
        + "    @classmethod\n    async def aupdate(cls, id, **f): return cls.update(id, **f)\n"
    )
    story = textwrap.indent(blocks("agents.md")[2], "    ")
    names: dict[str, Any] = {"desk": desk}
    exec(f"{awaited}\nasync def story():\n{story}", names)  # noqa: S102

    asyncio.run(names["story"]())

    assert small_desk.types() == ["run.started", "action.succeeded", "run.checkpoint",
                                  "run.completed"]  # fmt: skip


def test_every_exception_of_the_guide_exists():
    table = (DOCS / "agents.md").read_text("utf-8").split("## What can stop a call")[1]
    named = re.findall(r"^\| `(\w+)` \|", table.split("##")[0], re.MULTILINE)

    assert len(named) >= 8
    assert all(issubclass(getattr(amends, name), amends.AmendsError) for name in named)


ONBOARDING = """
from amends.tools import tool, undo
done = []
def called(name):
    @tool(name, target=("person", "{who}"), effect_class="internal_update",
          undo=undo("people.take_back", what=name))
    def call(who): done.append(name); return name
    return call
def onboard(who):
    for name in ("assign_licence", "send_welcome"): called(name)(who)
"""
AGENT = """
import amends, contextlib
from onboarding import onboard
with amends.connect() as desk, desk.run("Onboard Mia"), contextlib.suppress(amends.Denied):
    onboard("mia")
"""
WAITING = """

def test_people_agree_and_what_is_done_is_answered(amends_desk, amends_script):
    import onboarding
    amends_script.answers["assign_licence"] = "wait"
    onboarding.done.clear()
    with amends.connect(wait_seconds=0.2) as other, other.run(run="one"):
        with pytest.raises(amends.ApprovalTimeout):
            onboard("mia")
    assert onboarding.done == []
    del amends_script.answers["assign_licence"]
    for _ in range(2):
        with amends_desk.run(run="one"):
            onboard("mia")
    assert amends_desk.flush()
    assert onboarding.done == ["assign_licence", "send_welcome"]
    assert [state for _, state in amends_script.calls()] == ["succeeded"] * 2
    amends_script.answers["send_welcome"] = "denied"
    with amends_desk.run(run="two") as run:
        would = [run.explain(tool)["answer"] for tool in ("assign_licence", "send_welcome")]
        with run.action("assign_licence", target=("licence", "mia")) as act:
            act.perform(list)
    assert (would, act.approval, len(amends_script.calls())) == (["proceed", "denied"], None, 3)
"""


def test_the_tests_of_the_guide_run_wherever_the_client_is_installed(tmp_path):
    """With an entry point as its pyproject.toml has it, and its own fixtures."""
    plugin = tomllib.loads((SDK / "pyproject.toml").read_text("utf-8"))
    [(name, module)] = plugin["project"]["entry-points"]["pytest11"].items()
    installed = tmp_path / "amends-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: amends\nVersion: 0.1.0\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    tests, scripted = [
        one for one in blocks("agents.md") if "amends_script" in one or "ScriptedDesk" in one
    ]
    (tmp_path / "onboarding.py").write_text(ONBOARDING)
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "test_onboarding.py").write_text(tests + WAITING, "utf-8")
    (tmp_path / "test_agent.py").write_text(scripted, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:django", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=ENVIRONMENT | {"PYTHONPATH": f"{SDK}{os.pathsep}{tmp_path}"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert "5 passed" in done.stdout, done.stdout


def test_whoever_waits_no_longer_leaves_no_traceback_of_the_scripted_desk(tmp_path, capfd):
    async def pay():
        raise AssertionError("people have not decided")

    async def story():
        desk = amends.connect(script.url, script.key, spool=tmp_path / "spool")
        async with desk, desk.run("Pay"):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(desk.tool("pay")(pay)(), 0.5)

    with closing(ScriptedDesk()) as script:
        script.answers["pay"] = "wait"
        asyncio.run(story())
        while any("process_request" in one.name for one in threading.enumerate()):
            time.sleep(0.05)
    assert "Traceback" not in capfd.readouterr().err


def test_the_service_of_the_twins_guide_works(tmp_path):
    text = blocks("twins.md")[0].replace("/var/lib/licences", str(tmp_path))
    text = text.replace("whsec_…", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    mounted, put = [], list[Any]()
    licences = type("L", (), {"find": staticmethod(lambda _: {"state": "free"}),
                              "put": staticmethod(lambda *what: put.append(what)),
                              "release": staticmethod(lambda *_, **__: True),
                              "was_released_with": staticmethod(lambda _: True)})  # fmt: skip
    app = type("A", (), {"mount": staticmethod(lambda *what: mounted.append(what))})
    names: dict[str, Any] = {"licences": licences, "app": app}
    exec(text, names)  # noqa: S102

    from amends import testing

    answer = testing.ask(names["undo"], "apply", "release_licence", target=("licence", "L-7"))
    assert answer["outcome"] == "applied"
    exec(blocks("twins.md")[1], names)  # noqa: S102
    recorded: list[dict[str, Any]] = [{"before": {"holder": "Mia Li"}}, {}]
    answers = [
        testing.ask(names["undo"], "apply", "restore_licence", target=("licence", "L-7"), **was)
        for was in recorded
    ]
    assert [one["outcome"] for one in answers] == ["applied", "no_effect"]
    assert put == [("L-7", {"holder": "Mia Li"})]
    exec(blocks("twins.md")[2], names)  # noqa: S102 - the tests that it shows
    names["test_a_licence_is_released_once"]()
    names["test_a_refusal_is_told_as_one"]()
    assert mounted[0][0] == "/amends"
    assert os.path.exists(tmp_path / "twins.sqlite")  # noqa: PTH110


def test_the_lines_for_any_other_framework_are_a_gate(desk, small_desk):
    page = (DOCS / "frameworks.md").read_text("utf-8").split("## Any other framework")[1]
    wrapped, hooked = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"desk": desk, "amends": amends}
    exec(AIRLINE + wrapped + hooked, names)  # noqa: S102
    update = names["airline"].update
    names["TOOLS"] = {
        "update_flight": lambda reservation, flight: update(reservation, flight=flight)
    }
    args = {"reservation": "XEHM4B", "flight": "HAT019"}

    with desk.run("Move it"):
        assert names["call_tool"]("update_flight", args, "call_1") == {"flight": "HAT019"}
    with desk.run("Move it", run="hooked"):
        names["before_tool"]("update_flight", args, "call_1")
        names["after_tool"]("call_1", {"flight": "HAT019"})
        with pytest.raises(RuntimeError, match="made before, and answered"):
            names["before_tool"]("update_flight", args, "call_1")
        names["before_tool"]("update_flight", args, "call_2")
        names["after_tool"]("call_2", error=RuntimeError("no answer"))
    small_desk.control(modes={"update_flight": "denied"})
    with desk.run("Move it"):
        assert "NOT made" in names["call_tool"]("update_flight", args, "call_1")
        with pytest.raises(amends.Denied):
            names["before_tool"]("update_flight", args, "call_3")
    assert desk.flush()

    assert not names["under_way"]
    told = [kind for kind in small_desk.types() if kind.startswith("action.")]
    assert told == ["action.succeeded", "action.succeeded", "action.failed"]


@pytest.mark.django_db(transaction=True)
def test_plain_http_is_three_calls_as_printed(web, token, northwind):
    """The page's blocks, in a shell with nothing but curl."""
    from approvals import clarifications, versions
    from approvals.models import Approval
    from ledger.models import Run
    from workspaces import independence, teams
    from workspaces.models import User

    ben = User.objects.create_user("ben@northwind.example", name="Ben")
    team = teams.create(northwind, "finance", by=None, may=["view", "approve"])
    teams.add(team, ben, by=None)
    independence.prove(ben)
    page = (DOCS / "http.md").read_text("utf-8")
    script, waits = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    here = {"AMENDS_URL": web.url, "AMENDS_KEY": token, "PATH": os.environ["PATH"]}

    def shell(script):
        command = ["sh", "-eu", "-c", script]
        done = subprocess.run(
            command, env=here, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    done = shell(script)

    assert done.stdout.count('"accepted"') == 3
    assert '"proceed"' in done.stdout
    run = Run.objects.get()
    assert (run.state, run.request) == ("completed", "Try the desk")
    [wrote] = run.actions.all()
    [effect] = wrote.effects.all()
    assert (wrote.state, effect.before, effect.after) == ("succeeded", None, {"text": "hello"})

    asks = {"policies": {"*": {"approval": "MANUAL"}}}
    versions.activate(versions.save(northwind, json.dumps(asks), by=None), by=None)
    assert '"wait"' in shell(script.replace("run_$(date +%s)", "run_2")).stdout
    asked = Approval.objects.get()
    answered = shell(waits.replace("/17?wait=30", f"/{asked.pk}?wait=0")).stdout
    assert json.loads(answered)["state"] == "waiting"

    enquiry = clarifications.ask_back(asked, "For whom?", by=ben)
    talk = (DOCS / "approvals.md").read_text("utf-8").split("```\nGET  ")[1].split("```")[0]
    get, post = talk.replace("/17", f"/{asked.pk}").splitlines()
    path, _, answer = get.partition(" ")
    bearer = {"Authorization": f"Bearer {token}"}
    heard = httpx.get(web.url + path, headers=bearer, timeout=60).json()
    wanted = json.loads(answer.strip(" →").replace(", …", "").replace('"4"', f'"{enquiry.pk}"'))
    assert heard | wanted == heard, heard
    path, _, said = post.removeprefix("POST ").partition(" ")
    given = json.loads(said) | {"question": enquiry.pk}
    httpx.post(web.url + path, json=given, headers=bearer, timeout=60).raise_for_status()
    enquiry.refresh_from_db()
    assert enquiry.answer == "For Eve, who called at 10:02."


def test_what_a_new_key_comes_with_stands_in_the_docs():
    """Where the pages' own lines are run, with each framework."""
    from workspaces import client_packages
    from workspaces.quick_starts import QUICK_STARTS

    pages = [(DOCS / name).read_text("utf-8") for name in PAGES]
    for one in QUICK_STARTS:
        if one.slug in ("python", "typescript"):  # which need nothing else, and are run as they are
            continue
        assert any(f"\n{one.program}```" in page for page in pages), one.name
    extras = tomllib.loads((DOCS / "../sdk/pyproject.toml").read_text("utf-8"))["project"]
    named = [re.findall(r"amends\[(.*)\]", one.install) for one in QUICK_STARTS]
    assert {extra for one in named for extra in one} <= extras["optional-dependencies"].keys()
    assert any(named)
    handed_out = {client_packages.wheel.name, client_packages.tarball.name}
    readme = (DOCS / "../README.md").read_text("utf-8")
    for told in ("".join(pages), readme):
        linked = set(re.findall(r"/client/(\S+\.(?:whl|tgz))", told))
        assert linked == handed_out, "they name the version that a desk hands out"
