"""The desk as an agent sees it: one address, one key, one spool."""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import re
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from amends.errors import AmendsError, DeskUnreachable, KeyRefused, Refused, Stopped
from amends.events import Statement, short_id, statement
from amends.gate import Gate, Replies, Waits
from amends.masking import masked
from amends.policy import mask_paths
from amends.runs import Run
from amends.sender import Parked, Sender
from amends.spool import KeyRow, Spool
from amends.tools import Tool, tool
from amends.wire import Wire

log = logging.getLogger("amends")

# How long a call waits for people, unless it says otherwise.
WAIT_SECONDS = 3600.0
# How old the policy may grow before a new run fetches it again.
POLICY_SECONDS = 60.0
FLUSH_SECONDS = 2.0
NOT_FOUND = 404
RUN_ID = re.compile(r"[\x21-\x7e]{1,120}")


class Desk:
    """A connection to the recovery desk, for one agent. Make one per process, with `connect`."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        spool: str | Path | None = None,
        workspace: str | None = None,
        wait_seconds: float = WAIT_SECONDS,
        on_wait: Waits | None = None,
        on_question: Replies | None = None,
        on_parked: Parked | None = None,
    ) -> None:
        """`spool` is the file that keeps what is not sent yet; by default one per address and key.

        `workspace` is needed only where the very first call may come while the desk is away.
        `on_wait` hears of approvals that are waited for, `on_parked` of events that were refused.
        `on_question` is given what a person asks back before deciding, and returns an answer.
        """
        self.wait_seconds = wait_seconds
        self._workspace = workspace
        self._policy_at = float("-inf")
        self.spool = Spool(Path(spool) if spool else _default_spool(url, key))
        self.wire = Wire(url, key)
        self.sender = Sender(self.spool, self.wire, on_parked=on_parked)
        self.gate = Gate(
            self.spool, self.wire, self.sender, on_wait=on_wait, on_question=on_question
        )
        self._known: dict[str, Any] = self.spool.recall("policy") or {}
        self._at_exit = partial(_close_at_exit, weakref.ref(self), os.getpid())
        atexit.register(self._at_exit)
        self.sender.wake()

    @property
    def workspace(self) -> str:
        """The workspace of the key; fetched once and then known over restarts."""
        if self._workspace is None and "workspace" not in self._known:
            self.fetch_policy()
        return self._workspace or str(self._known["workspace"])

    @property
    def policy(self) -> Mapping[str, Any] | None:
        """The last policy document fetched, or None if there was never one."""
        return self._known.get("document")

    def fetch_policy(self) -> None:
        """Fetch the policy now, and keep it on disk. Raises DeskUnreachable or KeyRefused."""
        self._known = self.wire.get("policy")
        self._policy_at = time.monotonic()
        self.spool.remember("policy", self._known)

    def run(
        self,
        request: str = "",
        *,
        run: str | None = None,
        on_behalf_of: Mapping[str, Any] | None = None,
        goal: str | None = None,
        model: str | None = None,
        labels: Mapping[str, Any] | None = None,
        trace: Mapping[str, Any] | None = None,
    ) -> Run:
        """A run, to be used with `with`. `request` is what the user said, in their words.

        Give `run`, an id of your own, where a restarted process must find its calls again.
        """
        if run is not None and not RUN_ID.fullmatch(run):
            raise ValueError("a run's id is 1 to 120 printable ASCII characters without spaces")
        self._freshen()
        said = {"agent": self._known.get("agent"), "request": request, "goal": goal,
                "model": model, "on_behalf_of": on_behalf_of, "labels": labels}  # fmt: skip
        told = {name: value for name, value in said.items() if value}
        return Run(self, run or f"run_{short_id()}", told=told, trace=dict(trace or {}))

    def tool(self, name: str, **how: Any) -> Callable[[Callable[..., Any]], Tool]:
        """Decorate a function so that each call of it is an action of the current run.

        See `amends.tools.tool` for what can be said of it.
        """
        return tool(name, **how)

    def directive(self, run: str, *, wait_seconds: float = 0) -> dict[str, Any] | None:
        """What the desk wants of a run: `stop`, or `resume` from a checkpoint; None for nothing."""
        path = f"runs/{quote(run, safe='')}/directive"
        try:
            answer = self.wire.get(path, wait_seconds=wait_seconds)
        except Refused as refused:
            if refused.status != NOT_FOUND:
                raise
            return None  # The desk has not heard of the run yet, so it wants nothing of it.
        directive: dict[str, Any] | None = answer.get("directive")
        return directive

    def resume(self, run: str, *, wait_seconds: float = 0) -> Run:
        """The run, to be gone on with as the desk says: use it with `with`, from its `state`.

        Calls that are done answer their first result, undone ones get a new key. Raises Stopped if
        the desk wants the run to stop, AmendsError if it wants nothing.
        """
        self._freshen()
        directive = self.directive(run, wait_seconds=wait_seconds)
        if directive is None:
            raise AmendsError(f"the desk wants nothing of {run}")
        if directive.get("kind") != "resume":
            raise Stopped(str(directive.get("reason") or "the desk has stopped this run"))
        return Run(self, run, told={}, directive=directive)

    def report(self, run: str, text: str) -> int:
        """Say that a run of this agent did wrong; it opens a case, whose number is returned."""
        self.flush()
        said = {"text": masked(text, ())}
        path = f"runs/{quote(run, safe='')}/report"
        return int(self.wire.post(path, json.dumps(said).encode())["case"])

    def build(
        self,
        kind: str,
        *,
        run: str,
        data: dict[str, Any],
        n: int | None,
        action: str | None,
        trace: dict[str, Any] | None,
    ) -> Statement:
        mask = mask_paths(self.policy)
        return statement(kind, run=run, data=data, mask=mask, n=n, action=action, trace=trace)

    def send(self, told: Statement, *, key: KeyRow | None = None) -> None:
        """Put a statement in the spool; the sender does the rest."""
        self.spool.write(told.event, blobs=told.blobs, key=key)
        self.sender.wake()

    def parked(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Events that the desk refused, each with the problem it named."""
        return self.spool.parked()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Try for so long to send what waits; whether all of it is sent."""
        return self.sender.flush(seconds)

    def close(self, *, seconds: float = FLUSH_SECONDS) -> None:
        """Send what waits if the desk is there, and let go. The spool keeps the rest.

        A process that ends without it does the same at its exit.
        """
        atexit.unregister(self._at_exit)
        self.flush(seconds)
        self.sender.close()
        self.wire.close()
        self.spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _freshen(self) -> None:
        """The policy decides what may be done while the desk is away, so it should be a new one."""
        if time.monotonic() - self._policy_at < POLICY_SECONDS:
            return
        try:
            self.fetch_policy()
        except (DeskUnreachable, KeyRefused, Refused) as reason:
            log.info("the policy cannot be fetched (%s); the last one holds", reason)
            self._policy_at = time.monotonic()


def connect(url: str | None = None, key: str | None = None, **options: Any) -> Desk:
    """The desk at AMENDS_URL under AMENDS_KEY, with the options of `Desk`."""
    url, key = url or os.environ.get("AMENDS_URL"), key or os.environ.get("AMENDS_KEY")
    if not url or not key:
        raise AmendsError("set AMENDS_URL and AMENDS_KEY, or give url and key")
    return Desk(url, key, **options)


def _close_at_exit(desk: weakref.ref[Desk], process: int) -> None:
    living = desk()
    if living is not None and process == os.getpid():
        living.close()


def _default_spool(url: str, key: str) -> Path:
    """One file per address and key, which does not tell either."""
    given = os.environ.get("AMENDS_SPOOL")
    if given:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    name = hashlib.sha256(f"{url}\n{key}".encode()).hexdigest()[:16]
    return Path(state) / "amends" / f"{name}.sqlite"
