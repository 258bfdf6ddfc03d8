"""What goes wrong with a gate, once with ours and once with a framework's own, and what is counted
afterwards.

The tool says in a journal of its own what it did. A person's yes stands in the desk's approvals, or
in the approver's journal. `without` counts what ran and nobody agreed to, `twice` what ran again on
one yes.
"""

import os
import re
import signal
import time
from typing import NamedTuple

from tests.failclosed.conftest import ADAPTED, HERE, approver, lines_of
from tests.proxy import Proxy

FAULTS = {
    "desk killed": "killed while it is asked",
    "desk slow": "no answer within the limit",
    "exception": "the code in the hook raises",
    "killed hook": "SIGKILL in the hook, and the agent is started again",
    "changed": "the arguments are changed after the yes",
    "retry": "SIGKILL in the tool, and the agent is started again",
    "two workers": "two processes go on with one run",
    "half an answer": "the answer breaks off",
}
LIMIT_SECONDS = 4.0
END_SECONDS = 180
LICENCE = re.compile(r"L-\d\d")


class Counted(NamedTuple):
    """What ran without an approval, and what ran twice on one."""

    without: int
    twice: int


def count(ran, agreed):
    """Of licences, for which a call is one: those of the tool's journal, and of people's yeses."""
    runs = [LICENCE.search(str(one))[0] for one in ran]
    yes = {LICENCE.search(str(one))[0] for one in agreed}
    return Counted(
        without=sum(one not in yes for one in runs),
        twice=sum(runs.count(one) - 1 for one in set(runs)),
    )


class OwnGate:
    """A framework's gate as its documentation has it, and the approver's service that it asks."""

    def __init__(self, cells, framework, gate):
        self.cells, self.framework, self.gate = cells, framework, gate

    def measure(self, fault):
        mode = {"desk killed": "killed", "desk slow": "slow", "half an answer": "half",
                "no": "no"}.get(fault, "yes")  # fmt: skip
        cell = self.cells(f"own {self.gate} {fault}", self.framework, HERE / "agents")
        with approver(cell.folder, mode) as (url, yeses):

            def agent(what="", start=cell.plays):
                return start(approver=url, gate=self.gate, fault=what)

            if fault == "killed hook":
                agent(fault)
                with approver(cell.folder, "no") as (other, _):
                    cell.plays(approver=other, gate=self.gate, fault="")
            elif fault == "retry":
                agent("dies in the tool")
                agent()
            elif fault == "two workers":
                if self.gate == "pause":  # both go on from what is stored
                    agent("pauses")
                two = [agent(one, start=cell.starts) for one in ("first of two", "second of two")]
                for one in two:
                    one.wait(END_SECONDS)
            else:
                agent(fault)
            return count(cell.ran(), lines_of(yeses)), cell


class OurGate:
    """The adapter, the real desk, and Ben, who agrees to whatever is asked of him."""

    def __init__(self, cells, framework, processes, token, ben):
        self.cells, self.framework, self.ben = cells, framework, ben
        self._processes, self._token = processes, token
        self._web = processes.web()

    def measure(self, fault):
        run = f"run_{fault.replace(' ', '_')}"
        cell = self.cells(f"ours {fault}", self.framework, ADAPTED)
        with Proxy(("127.0.0.1", int(self._web.url.rsplit(":", 1)[1]))) as way:

            def agent(what="", spool="spool", wait=120.0, start=cell.starts):
                return start(
                    url=f"http://localhost:{way.port}", key=self._token, run=run, fault=what,
                    spool=str(cell.folder / spool), calls=[self._call(cell, what)],
                    wait_seconds=wait, is_away=True,
                )  # fmt: skip

            self._story(fault, agent, run, way)
        return count(cell.ran(), self._agreed(run)), cell

    def _story(self, fault, agent, run, way):
        ends = END_SECONDS
        if fault in ("desk killed", "desk slow", "half an answer"):
            one = agent(wait=LIMIT_SECONDS * 3)
            self._until_asked(run)
            if fault == "desk killed":
                self._web.kill()
                one.wait(ends)
                self._web = self._processes.web()
            elif fault == "desk slow":
                os.killpg(self._web.pid, signal.SIGSTOP)
                one.wait(ends)
                os.killpg(self._web.pid, signal.SIGCONT)
            else:
                way.halves = True
                one.wait(ends)
        elif fault in ("exception", "killed hook"):
            agent(fault).wait(ends)
            if fault == "killed hook":
                agent(wait=LIMIT_SECONDS).wait(ends)
        elif fault == "no":
            agent(wait=LIMIT_SECONDS).wait(ends)
        else:
            self._agreed_story(fault, agent, run)

    def _agreed_story(self, fault, agent, run):
        ends = END_SECONDS
        what = "dies in the tool" if fault == "retry" else fault
        many = [agent(what)]
        if fault == "two workers":
            many.append(agent(what, spool="another spool"))
        self._grant(run)
        for one in many:
            one.wait(ends)
        if fault == "retry":
            agent(wait=LIMIT_SECONDS).wait(ends)

    def _call(self, cell, what):
        if self.framework != "claude_agent_sdk":
            return ["assign_licence", {"licence": "L-21", "holder": "mia"}]
        # A tool of its program, which runs it whatever becomes of the agent's process.
        dies = "test -e died || { touch died; kill -9 $(cat agent.pid) $PPID; }"
        text = f'cd {cell.folder}; echo \'["Bash", "L-21"]\' >> {cell.journal}'
        retries = "retry" in cell.folder.name
        return ["Bash", {"command": f"{text}; {dies}" if retries else text}]

    def _approvals(self, run):
        from approvals.models import Approval

        return Approval.objects.filter(action__run__run=run)

    def _until_asked(self, run):
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            if found := self._approvals(run).filter(state="waiting").first():
                return found
            time.sleep(0.2)
        raise AssertionError(f"nobody was asked in {run}")

    def _grant(self, run):
        from approvals import inbox

        asked = self._until_asked(run)
        inbox.grant(asked, by=self.ben, seen=asked.digest, reason="Mia starts on Monday")

    def _agreed(self, run):
        return [one.calls for one in self._approvals(run).filter(decisions__isnull=False)]
