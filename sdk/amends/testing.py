"""For an engineer's own tests: fail after a step, call a twin as the desk would, or let it fail,
check that once is enough, assert the plan.

Nothing here pretends to be the desk: runs go to a real one.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from amends import webhooks
from amends.errors import AmendsError
from amends.runs import Run
from amends.twins import Twins
from amends.values import Target, as_targets
from amends.wire import Wire

CASE_SECONDS = 30.0
LOOK_SECONDS = 0.2


class Injected(AmendsError):
    """We stopped because the test wanted the run to fail here."""


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
    again answers otherwise or leaves the target otherwise than the first time did.
    """
    key, answers = secrets.token_hex(), list[dict[str, Any]]()
    for now in (key, key, secrets.token_hex()):
        answers.append(ask(twins, "apply", operation, target=target, args=args, key=now, **more))
        seen = ask(twins, "observe", operation, target=target, args=args)["observed"]
        found = (answers[-1]["outcome"], answers[-1]["observed"], seen)
        if found != ("applied", answers[0]["observed"], answers[0]["observed"]):
            raise AssertionError(f"{operation} after {len(answers)} calls: {found}")
    return answers[0]


@contextmanager
def failing(twins: Twins, operation: str, error: Exception | None = None) -> Iterator[None]:
    """Let a twin raise instead of undoing: the desk hears of `NoEffect` that nothing happened, of
    all else that nobody knows.
    """
    undo = twins.undos[operation]

    def fail(*_: Any) -> None:
        raise error or Injected(f"{operation} was made to fail")

    kept, undo.apply = undo.apply, fail
    try:
        yield
    finally:
        undo.apply = kept


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
