"""A newcomer copies the guide's connector and its test, and both work."""

import os
import re
import socket
import subprocess
import sys
import threading
import tomllib
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from connectors.builtin import sql
from connectors.conformance import (
    PROMISES,
    PromiseBroken,
    Trial,
    a_lost_answer_is_no_refusal,
)
from connectors.contract import Call, Refused, Target
from connectors.outbound import Deadline, Outbound
from connectors.registry import faults_of

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "connectors.md"
# The stand-in's server, as the test of a newcomer would have one of theirs.
SERVER = """
import json, os, urllib.request
import pytest

class PagerServer:
    url = os.environ["PAGER_URL"]
    def ask(self, method, id, **body):
        request = urllib.request.Request(f"{self.url}/alarms/{id}", method=method)
        request.data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    def ring(self, id): self.ask("POST", id, state="ringing")
    def escalate(self, id): self.ask("POST", id, state="escalated")
    def silenced(self, id): return int(self.ask("GET", id)["state"] == "silent")

@pytest.fixture
def pager_server(): return PagerServer()
"""


def printed(kind, begins=""):
    """The blocks of a kind that the guide prints, by what they begin with."""
    return re.findall(rf"```{kind}\n({begins}.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.fixture
def pager_class():
    [source] = re.findall(r"```python\n(# amends_pager\.py.*?)```", GUIDE.read_text(), re.DOTALL)
    module = types.ModuleType("amends_pager")
    sys.modules["amends_pager"] = module
    exec(compile(source, "amends_pager.py", "exec"), module.__dict__)  # noqa: S102 - our own guide
    yield module.Pager
    del sys.modules["amends_pager"]


@pytest.fixture
def trial(pager_class, outsides, outbound):
    pager = outsides("pager")
    outbound.append("127.0.0.1")

    def set_to(state):
        return lambda: pager.ask("POST", "/alarms/a-1", {"state": state})

    return Trial(
        connector=pager_class(),
        operation="silence",
        settings={"url": pager.at["url"]},
        credential={"token": "canary-pager"},
        target=Target("alarm", "a-1"),
        args={"reason": "raised by mistake"},
        expected={"state": "ringing"},
        arrange=set_to("ringing"),
        effects=lambda: int(pager.ask("GET", "/alarms/a-1")["state"] == "silent"),
        disturb=set_to("escalated"),
        unreachable={"url": "http://127.0.0.1:9"},
    )


def test_the_guides_connector_is_whole(pager_class):
    assert list(faults_of(pager_class(), "pager")) == []


def test_whoever_takes_a_lost_answer_for_a_refusal_is_told(trial, pager_class, monkeypatch):
    """The mistake that costs most: the desk would believe it and do it a second time."""
    right = pager_class._send

    def send(self, call, method, body=b""):
        try:
            return right(self, call, method, body)
        except Exception as lost:
            raise Refused("The pager did not answer.") from lost

    monkeypatch.setattr(pager_class, "_send", send)

    with pytest.raises(PromiseBroken, match="answer 1 was lost, and it is said to be undone"):
        a_lost_answer_is_no_refusal(trial)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_guides_connector_keeps_its_promises(trial, promise):
    promise(trial)


@pytest.mark.parametrize("name", ["x/../a-1", "../alarms/a-1", ".."])
def test_no_name_of_a_target_leads_the_guides_connector_elsewhere(trial, name):
    """Whoever copied it went wherever an agent pointed, with the credential that compensates."""
    trial.arrange()
    call = trial.call("compensate", target=Target("alarm", name))

    with nullcontext() if "/" in name else pytest.raises(Refused, match="can stand in a path"):
        trial.connector.apply(call)

    assert trial.effects() == 0


def test_a_newcomers_test_of_a_connector_runs_as_it_is_printed(outsides, tmp_path):
    """Beside the desk's code, with its own pytest, and no database."""
    for name in ("amends_pager.py", "test_pager.py", "conftest.py"):
        [source] = printed("python", f"# {name}")
        (tmp_path / name).write_text(source + (SERVER if name == "conftest.py" else ""))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    [command] = printed("sh")
    command = command.replace("/path/to/amends/.venv/bin/python", sys.executable)

    done = subprocess.run(
        ["sh", "-euc", command.replace("/path/to/amends", str(ROOT))],
        cwd=tmp_path, env={"PATH": os.environ["PATH"], "PAGER_URL": outsides("pager").at["url"]},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert f"{len(PROMISES)} passed" in done.stdout, done.stdout + done.stderr


def test_what_makes_a_connector_known_names_it(pager_class):
    [package] = map(tomllib.loads, printed("toml"))
    [(name, where)] = package["project"]["entry-points"]["amends.connectors"].items()
    module, _, attribute = where.partition(":")

    assert package["tool"]["setuptools"]["py-modules"] == [module]
    assert getattr(sys.modules[module], attribute) is pager_class
    assert pager_class.name == name


def test_the_lines_for_another_protocol_ask_and_take_no_half_answer(outbound):
    outbound.append("127.0.0.1")
    [source] = printed("python", r"def _ask")
    names: dict[str, Any] = {"Call": Call}
    exec(source, names)  # noqa: S102 - our own guide
    answers = [b"+OK\n", b"+O"]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            for answer in answers:
                wire, _ = server.accept()
                with wire:
                    heard.append(wire.recv(100))
                    wire.sendall(answer)

        heard = list[bytes]()
        thread = threading.Thread(target=serve)
        thread.start()
        settings = types.SimpleNamespace(host="127.0.0.1", port=server.getsockname()[1])
        session = types.SimpleNamespace(settings=settings, outbound=Outbound(Deadline(20)))
        call = types.SimpleNamespace(connection=session)
        assert names["_ask"](None, call, "DEL", "k") == b"+OK\n"
        with pytest.raises(EOFError):
            names["_ask"](None, call, "DEL", "k")
        thread.join()

    assert heard == [b"DEL k\r\n"] * 2


def test_the_table_that_the_guide_prints_is_the_one_that_is_made():
    def plain(statement):
        return " ".join(
            statement.replace("IF NOT EXISTS ", "").replace("(", " ( ").replace(")", " ) ").split()
        )

    [table] = printed("sql")
    assert plain(table.strip().removesuffix(";")) == plain(sql.MARKER_DDL.format("amends_marker"))
