"""For an engineer's own tests: answer an agent as the test says, fail after a step, call a twin as
the desk would, or let it fail, check that once is enough, assert the plan.

What the desk decides only a real one knows, which `Operator` asks; `ScriptedDesk` says what it is
told to say, and of a plan as much as follows from what it was told. The fixtures of
`amends.pytest_plugin` are there wherever pytest is.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qs

from amends import webhooks
from amends.errors import AmendsError
from amends.protocol.masking import holds_mask
from amends.protocol.planning import chosen_twin, newest_first, suggested_undo
from amends.protocol.vocabulary import WITHOUT_EFFECT, EventType
from amends.runs import Run
from amends.twins import Twins
from amends.twins import Undo as Twin
from amends.values import Target, as_targets
from amends.wire import Wire

CASE_SECONDS = 30.0
LOOK_SECONDS = 0.2
POLL_SECONDS = 1.0
POLICY = {"agentSafety": {"policies": {"*": {"risk": "HIGH", "approval": "MANUAL"}}}}
Decision: TypeAlias = Literal["proceed", "denied", "wait"]
Answer: TypeAlias = tuple[int, Any]


class Injected(AmendsError):
    """We stopped because the test wanted the run to fail here."""


UNSEEN = (
    "has no observe, so nobody sees what a second call did: count it in your own system, calling"
    " it by `testing.ask`"
)


def fail_after(run: Run, tool: str, *, error: Exception | None = None) -> None:
    """Let the run fail right after the first success of this tool, as if the next step had."""

    def listener(succeeded: str) -> None:
        if succeeded == tool:
            run.on_success.remove(listener)
            raise error or Injected(f"made to fail after {tool}")

    run.on_success.append(listener)


def ask(
    twins: Twins,
    do: str,
    operation: str,
    *,
    target: Target,
    args: Mapping[str, Any] | None = None,
    key: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Call a twin as the desk does, signature and all; `more` may hold `before` and `expected`."""
    body = json.dumps(
        {"v": 1, "do": do, "operation": operation, "key": key or secrets.token_hex(),
         "target": as_targets(target)[0], "args": dict(args or {}), **more}
    ).encode()  # fmt: skip
    at, message = int(time.time()), secrets.token_hex(8)
    signature = webhooks.sign(twins.secrets[0], message_id=message, timestamp=at, body=body)
    headers = {"webhook-id": message, "webhook-timestamp": str(at),
               "webhook-signature": signature}  # fmt: skip
    return twins.answer(headers, body)[1]


def undo_twice(
    twins: Twins,
    operation: str,
    *,
    target: Target,
    args: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Undo, then again for the same key, as after a lost answer, and for another, as by a second
    plan. Gives the first answer. AssertionError where the twin did not apply, or where doing it
    again answers otherwise or leaves the target otherwise than the first time did; and where the
    twin has no `observe`, by which alone that is seen.
    """
    if _undo(twins, operation).look is None:
        raise AssertionError(f"{operation} {UNSEEN}")
    key, answers = secrets.token_hex(), list[dict[str, Any]]()
    for now in (key, key, secrets.token_hex()):
        answers.append(ask(twins, "apply", operation, target=target, args=args, key=now, **more))
        seen = ask(twins, "observe", operation, target=target, args=args)["observed"]
        found = (answers[-1]["outcome"], answers[-1]["observed"], seen)
        if found != ("applied", answers[0]["observed"], answers[0]["observed"]):
            raise AssertionError(f"{operation} after {len(answers)} calls: {found}")
    return answers[0]


def _undo(twins: Twins, operation: str) -> Twin:
    if operation not in twins.undos:
        raise AssertionError(f"no undo {operation}; there are: {', '.join(sorted(twins.undos))}")
    return twins.undos[operation]


@contextmanager
def failing(twins: Twins, operation: str, error: Exception | None = None) -> Iterator[None]:
    """Let a twin raise instead of undoing: the desk hears of `NoEffect` that nothing happened, of
    all else that nobody knows.
    """
    undo = _undo(twins, operation)

    def fail(*_: Any) -> None:
        raise error or Injected(f"{operation} was made to fail")

    kept, undo.apply = undo.apply, fail
    try:
        yield
    finally:
        undo.apply = kept


class Undo(NamedTuple):
    """How one effect would be undone. Without an operation, `args` or both nobody here can say."""

    target: tuple[str, str]
    operation: str = ""
    args: Mapping[str, Any] | None = None


class ScriptedDesk:
    """Answers an agent on loopback as the test says, and keeps what it is told.

    `answers` holds what it says of a tool: `proceed` where nothing is said, `denied`, or `wait`
    until the test says otherwise. A call that was made answers its result, one that nobody knows
    the end of is in doubt. While `is_away` is set it cannot be reached; then nothing is done, since
    its policy leaves everything to people, unless another `policy` is given.
    """

    def __init__(self, policy: Mapping[str, Any] = POLICY) -> None:
        self.key = f"amends_test_{secrets.token_hex(8)}"
        self.answers: dict[str, Decision] = {}
        self.events: list[dict[str, Any]] = []
        self.is_away = False
        self._policy_twins = (policy.get("agentSafety") or {}).get("twins")
        self._policy = {
            "workspace": "tests", "agent": "tested", "digest": "sha256:0", "document": policy,
            "masking": {"form": "v1", "key": secrets.token_hex(32)},
        }  # fmt: skip
        self._calls: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def calls(self) -> list[tuple[str, str]]:
        """Each call that was asked for, with its tool and how it ended: `succeeded`, `no_effect` or
        `unknown`, else `running` or, where it was never allowed, `planned`.
        """
        return [(one["tool"], one["state"]) for one in self._calls.values()]

    def undos(self) -> list[Undo]:
        """How the desk would undo what was told: newest effect first, by the policy's twins, else
        as the agent suggested. That is the desk's own rule, as far as it goes without one: it knows
        of no conditions (a rule's `compensation: NONE` among them), connections and previews, of
        the arguments of the policy's twins, and whether a target has changed since.
        """
        calls = sorted(self._calls.values(), key=lambda call: int(call["n"]))
        found = newest_first(calls, _effects, lambda effect: effect[0])
        return [self._undo(call, target) for call, (_, target) in found]

    def assert_plan(self, expected: Sequence[tuple[str, str]]) -> None:
        """Compare them with pairs of operation (`connection.operation`) and target id."""
        undos = self.undos()
        found = [(one.operation, one.target[1]) for one in undos if one.operation]
        if found != list(expected):
            left = [one.target for one in undos if not one.operation]
            told = f"the desk would do {found}, not {list(expected)}"
            raise AssertionError(f"{told}; nobody says how to undo {left}" if left else told)

    def _undo(self, call: Mapping[str, Any], target: tuple[str, str]) -> Undo:
        twins: list[tuple[str, Mapping[str, Any]]] = [
            (glob, twin)
            for glob, said in (self._policy_twins or {}).items()
            for twin in (said if isinstance(said, list) else [said])
        ]
        twin = chosen_twin(
            twins, call["tool"], target[0], lambda one: (one[0], str(one[1].get("target") or ""))
        )
        if twin is not None:
            return Undo(target, f"{twin[1]['connection']}.{twin[1]['operation']}")
        suggested = suggested_undo(call["compensation"])
        if suggested is None or holds_mask(suggested.args):
            return Undo(target)
        return Undo(target, f"{suggested.connection}.{suggested.operation}", suggested.args)

    def answer(
        self, path: str, body: bytes, wait_seconds: float, *, explains: bool = False
    ) -> Answer:
        """The status and the JSON that the desk's address answers with."""
        if self.is_away:
            return 503, {"title": "away"}
        if path == "actions/begin":
            with self._lock:
                begin = self._explain if explains else self._begin
                return 200, begin(json.loads(body))
        if path == "events":
            with self._lock:
                return 200, {"results": [self._take(one) for one in json.loads(body)]}
        if path.startswith("approvals/"):
            return 200, {"state": self._decided(path.removeprefix("approvals/"), wait_seconds)}
        return (200, self._policy) if path == "policy" else (201, {"directive": None})

    def _explain(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What would be answered; nothing is begun."""
        kept = deepcopy(self._calls)
        try:
            return self._begin(asked) | {"explain": {"why": "the test says so"}}
        finally:
            self._calls = kept

    def _begin(self, asked: dict[str, Any]) -> dict[str, Any]:
        call = self._call(asked)
        if call["state"] == "succeeded":
            return {"answer": "replay", "action": call["action"], "result": call["result"]}
        if call["state"] == "unknown" or call["attempt"] not in (None, asked["attempt"]):
            return {"answer": "in_doubt", "action": call["action"]}
        said = self.answers.get(call["tool"], "proceed")
        if said == "proceed":
            call.update(state="running", attempt=asked["attempt"])
        call["asked"] = call["asked"] or said == "wait"
        approval = {"approval": call["action"], "url": f"{self.url}/approvals/{call['action']}"}
        return {
            "answer": said, "action": call["action"], "fence": 1, "reason": "the test says no",
            "lease_until": "9999-12-31T00:00:00+00:00",
        } | (approval if call["asked"] else {})  # fmt: skip

    def _call(self, planned: dict[str, Any]) -> dict[str, Any]:
        """What is known of the call of a key."""
        data = planned["data"]
        new = {"tool": data["tool"], "action": planned["action"], "state": "planned",
               "attempt": None, "asked": False, "n": planned["n"], "class": data.get("class"),
               "targets": data.get("targets") or [],
               "compensation": data.get("compensation")}  # fmt: skip
        return self._calls.setdefault(planned["data"]["key"], new)

    def _take(self, event: dict[str, Any]) -> dict[str, Any]:
        if event["id"] in [one["id"] for one in self.events]:
            return {"id": event["id"], "status": "duplicate"}
        self.events.append(event)
        if event["type"] == EventType.ACTION_PLANNED:
            self._call(event)
        for call in self._calls.values():
            if call["action"] != event.get("action"):
                continue
            if event["type"] == EventType.ACTION_SUCCEEDED:
                told = event["data"]
                call.update(state="succeeded", result=told.get("result"))
                call["targets"] = [effect["target"] for effect in told.get("effects") or ()]
                call["compensation"] = call["compensation"] or told.get("compensation")
            elif event["type"] == EventType.ACTION_FAILED:
                call.update(state=event["data"]["outcome"], attempt=None)
        return {"id": event["id"], "status": "accepted"}

    def _decided(self, action: str, seconds: float) -> str:
        """Of an approval: `waiting` while the test says so of its tool, for so long."""
        end = time.monotonic() + min(seconds, POLL_SECONDS)
        [tool] = [one["tool"] for one in self._calls.values() if one["action"] == action]
        while (said := self.answers.get(tool)) == "wait" and time.monotonic() < end:
            time.sleep(LOOK_SECONDS / 10)
        return "waiting" if said == "wait" else "decided"


def _handler(desk: ScriptedDesk) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """What was asked is told by `ScriptedDesk`."""

        def do_POST(self) -> None:
            path, _, query = self.path.removeprefix("/api/v1/").partition("?")
            params = parse_qs(query)
            wait = float(params.get("wait", ["0"])[0])
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, said = desk.answer(path, body, wait, explains="explain" in params)
            raw = json.dumps(said).encode()
            with suppress(ConnectionError):  # whoever asked waits no longer
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        do_GET = do_PUT = do_POST  # noqa: N815 - http.server looks for these

    return Handler


def _effects(call: Mapping[str, Any]) -> list[tuple[int, tuple[str, str]]]:
    """What a call has done to which targets; one that nobody knows the end of, to any of its own.

    This desk hears of no other clients than ours, which name each effect.
    """
    is_known = call["state"] == "succeeded"
    if not is_known and (call["state"] != "unknown" or call["class"] in WITHOUT_EFFECT):
        return []
    return [(at, (one["type"], one["id"])) for at, one in enumerate(call["targets"])]


class Operator:
    """What a person's API token may read: the case of a run and what the desk would undo."""

    def __init__(self, url: str, token: str) -> None:
        self._wire = Wire(url, token)

    def case_of(self, run: str, *, seconds: float = CASE_SECONDS) -> dict[str, Any]:
        """The case that the desk has opened for a run. AssertionError if there is none in time."""
        end = time.monotonic() + seconds
        while True:
            cases = self._wire.get("cases", params={"q": f'run:"{run}"'})["cases"]
            found: list[dict[str, Any]] = [case for case in cases if case.get("run") == run]
            if found:
                return found[0]
            if time.monotonic() > end:
                raise AssertionError(f"no case for the run {run} within {seconds:.0f} s")
            time.sleep(LOOK_SECONDS)

    def plan_of(self, run: str) -> list[dict[str, Any]]:
        """The steps by which the desk would undo a run, newest effect first."""
        steps: list[dict[str, Any]] = self.preview_of(run)["steps"]
        return steps

    def preview_of(self, run: str) -> dict[str, Any]:
        """The whole preview: `steps`, and under `cannot` what could not be undone, and why."""
        return self._wire.get(f"cases/{self.case_of(run)['id']}/preview")

    def assert_plan(self, run: str, expected: Sequence[tuple[str, str]]) -> None:
        """Compare the plan with pairs of operation (`connection.operation`) and target id."""
        found = [
            (f"{step['connection']}.{step['operation']}", str(step["target"]["id"]))
            for step in self.plan_of(run)
        ]
        if found != list(expected):
            cannot = [(left["title"], left["text"]) for left in self.preview_of(run)["cannot"]]
            told = f"the desk would do {found}, not {list(expected)}"
            raise AssertionError(f"{told}; it cannot do {cannot}" if cannot else told)

    def close(self) -> None:
        self._wire.close()
