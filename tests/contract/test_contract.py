"""One table of what a client does, for the clients of both languages: tests/data/contract.json.

A scenario is a list of steps. A step of the world changes the desk (`desk`: the next answers of a
route, `up`, `down`), the disk (`disk`) or ends a process (`kill`); any other (`do`) is done by an
agent, `a` if it names none, each of which is a process of its own on the one spool. What must come
of a step stands in it: `came` (what came of it, or the error's name), `words` in the error,
`result`. At the end stand `outside` (each call that was really made), `made` (with which
arguments), `heard` (what the desk heard, in order), `attempts` (how many different ones), `bodies`
(of each `begin`), `announced` (in which of them a tool's schema is), `events` (of some type),
`blamed` (the tool that each run which failed names, if any) and `disk` (what waits there, what is
set aside and in which state the keys are).
"""

import copy
import datetime as dt
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import npm
from tests.contract.desk import ScriptedDesk

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = json.loads((ROOT / "tests" / "data" / "contract.json").read_text("utf-8"))["scenarios"]
CLIENTS: dict[str, list[Path | str]] = {
    "python": [sys.executable, HERE / "driver.py"],
    "typescript": [npm.NODE, HERE / "driver.ts"],
}
OLDEST = "typescript on the oldest Node"
"""The version that package.json promises; one that reads no types unless it is told to."""
KEY = "amends_0123456789_a-secret"
Step = dict[str, Any]


def command_of(client: str) -> list[Path | str]:
    if client != OLDEST:
        return CLIENTS[client]
    return [npm.oldest_node(), "--experimental-strip-types", HERE / "driver.ts"]


class World:
    """The desk, the disk, and the agents of one scenario."""

    def __init__(self, client: str, folder: Path, desk: ScriptedDesk) -> None:
        self.desk, self.folder = desk, folder
        self.spool, self.outside = folder / "spool.sqlite", folder / "outside"
        self._client = client
        self.agents: dict[str, subprocess.Popen[str]] = {}

    def agent(self, name: str) -> "subprocess.Popen[str]":
        if name not in self.agents:
            command = [*command_of(self._client), self.desk.url, KEY, self.spool, self.outside,
                       "northwind"]  # fmt: skip
            self.agents[name] = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, encoding="utf-8", env=os.environ | {"PYTHONPATH": str(ROOT / "sdk")},
            )  # fmt: skip
        return self.agents[name]

    def do(self, step: Step) -> Step:
        if "do" in step or "go" in step:
            return self._agent_does(step)
        if "kill" in step:
            agent = self.agents.pop(step["kill"])
            agent.send_signal(signal.SIGKILL)
            agent.communicate(timeout=10)
        if step.get("disk") == "of two years ago":
            with sqlite3.connect(self.spool) as database:
                database.execute("UPDATE keys SET at = at - 2 * 365 * 86400")
        elif "disk" in step:
            limit = 0 if step["disk"] == "full" else resource.RLIM_INFINITY
            for agent in self.agents.values():
                hard = resource.RLIM_INFINITY
                resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (limit, hard))
        if "up" in step:
            self.desk.up()
        if "down" in step:
            self.desk.down()
        self.desk.minds = step.get("minds", self.desk.minds)
        self.desk.wall = step.get("wall", self.desk.wall)
        self.desk.script.update(copy.deepcopy(step.get("desk", {})))
        return {}

    def _agent_does(self, step: Step) -> Step:
        agent = self.agent(step.get("agent", "a"))
        assert agent.stdin
        assert agent.stdout
        agent.stdin.write(json.dumps(step) + "\n")
        agent.stdin.flush()
        found: Step = json.loads(agent.stdout.readline())
        return found

    def end(self) -> None:
        for agent in self.agents.values():
            agent.kill()
            agent.communicate()
        self.desk.down()

    def on_disk(self) -> Step:
        with sqlite3.connect(self.spool) as database:
            waiting, aside = (
                [json.loads(body)["type"] for (body,) in database.execute(
                    f"SELECT body FROM events WHERE problem IS {null} ORDER BY place"
                )]
                for null in ("NULL", "NOT NULL")
            )  # fmt: skip
            states = database.execute("SELECT state FROM keys ORDER BY n, at").fetchall()
        return {"waiting": waiting, "aside": aside, "keys": [state for (state,) in states]}


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """For this address, and nobody vouches for it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - day, now + day
    ).sign(key, hashes.SHA256())
    path = tmp_path / "desk.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    client, scenario = request.param
    needs = scenario.get("certificate")
    desk = ScriptedDesk(request.getfixturevalue("certificate") if needs else None)
    desk.up()
    world = World(client, tmp_path, desk)
    yield world
    world.end()


EACH = [
    pytest.param((client, scenario), scenario, id=f"{client}: {scenario['name']}",
                 marks=[pytest.mark.adapters] if client == OLDEST else [])
    for scenario in SCENARIOS
    for client in (*CLIENTS, OLDEST)
]  # fmt: skip


@pytest.mark.parametrize(("world", "scenario"), EACH, indirect=["world"])
def test_a_client_does_what_the_table_says(world: World, scenario: Step) -> None:
    for number, step in enumerate(scenario["steps"]):
        came, place = world.do(step), f"step {number}, {step}: "
        wanted = step.get("came", "made" if step.get("do") == "act" else "done")
        if "do" in step or "go" in step:
            any_of = wanted if isinstance(wanted, list) else [wanted]
            assert came["came"] in any_of, f"{place}{came}"
        assert step.get("words", "") in came.get("words", ""), place
        for name in ("done", "found", "parked", "sent", "waited"):
            if name in step:
                assert came[name] == step[name], place
        if "answers" in step:
            assert came["result"] == step["answers"], place
    end = scenario["end"]
    made = world.outside.read_text("utf-8").splitlines() if world.outside.exists() else []
    assert [one.partition(" ")[0] for one in made] == end.get("outside", [])
    if "made" in end:
        assert [json.loads(one.partition(" ")[2]) for one in made] == end["made"]
    if "heard" in end:
        assert world.desk.heard == end["heard"]
    if "attempts" in end:
        assert len({body["attempt"] for body in world.desk.begun}) == end["attempts"]
    for body, wanted in zip(world.desk.begun, end.get("bodies", []), strict=False):
        assert holds(body, wanted), body
    if "announced" in end:
        assert ["tool_schema" in body["data"] for body in world.desk.begun] == end["announced"]
    for kind, wanted in end.get("events", {}).items():
        found = [event["data"] for event in world.desk.events if event["type"] == kind]
        assert len(found) == len(wanted), found
        assert all(map(holds, found, wanted)), found
    assert blamed(world.desk) == end.get("blamed", blamed(world.desk))
    assert world.on_disk() == {"waiting": [], "aside": [], "keys": []} | end["disk"]


def blamed(desk: ScriptedDesk) -> list[str | None]:
    """The tool of the call that each run which failed names, if it names one."""
    tools = {body["action"]: body["data"]["tool"] for body in desk.begun} | {None: None}
    failed = [event["data"] for event in desk.events if event["type"] == "run.failed"]
    return [tools[data.get("failed_action")] for data in failed]


def holds(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted stands there, whatever else does."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            name in found and holds(found[name], one) for name, one in wanted.items()
        )
    return bool(found == wanted)


@pytest.mark.parametrize(
    "world", [(client, {}) for client in CLIENTS], indirect=True, ids=list(CLIENTS)
)
def test_a_call_waits_for_what_was_called_under_its_key_and_not_for_all_that_an_outage_has_left(
    world: World,
) -> None:
    world.do({"do": "connect"})
    world.do({"do": "start", "run": "run_0"})
    world.do({"do": "flush"})
    world.do({"kill": "a"})
    said = {"type": "run.checkpoint", "run": "run_0", "data": {"name": "noted"}}
    left = [json.dumps({**said, "id": f"left-{number}"}) for number in range(2200)]
    with sqlite3.connect(world.spool) as database:
        database.executemany(
            "INSERT INTO events (run, id, body, blobs) VALUES ('run_0', ?, ?, '[]')",
            [(json.loads(body)["id"], body) for body in left],
        )
    called = {"tool": "update_flight", "target": ["reservation", "X1"], "key": "k-1"}
    world.do({"down": 1})
    world.do({"do": "connect"})
    world.do({"do": "start", "run": "run_1"})
    alone = world.do({"do": "act", **called})
    slow, known = {"seconds": 1}, {"answer": "replay", "action": "act_1", "result": None}
    world.do({"desk": {"events": [slow, slow, slow, slow], "begin": [{"answer": known}]}, "up": 1})

    world.do({"do": "start", "run": "run_2"})
    again = world.do({"do": "act", **called})

    assert (alone["came"], again["came"]) == ("made", "replayed")
    begun = world.desk.heard.index("begin update_flight")
    assert world.desk.heard[:begun].count("run.checkpoint") < len(left)
    assert "action.succeeded" in world.desk.heard[:begun], "of the other run, by the same key"
    assert world.do({"do": "flush", "seconds": 30})["sent"]
    assert world.desk.heard.count("run.checkpoint") == len(left), "each is there, and once"
