"""The link to the desk: one address, one key, one spool, and the policy last fetched."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from amends.drivers import AsyncDriver, Driver, Steps, awaits, blocking, called, waits
from amends.errors import AmendsError, DeskUnreachable, KeyRefused, NotTheDesk, Refused, WrongSpool
from amends.events import Statement, statement
from amends.gate import Gate, Replies, Waits, in_turn, trying
from amends.policy import keeps_snapshots, mask_paths, shows_last4
from amends.protocol.masking import MaskingKey, masked
from amends.sender import SET_ASIDE, Parked, Sender
from amends.spool import CannotUse, KeyRow, Spool
from amends.values import plain
from amends.wire import AsyncWire, Wire, get, post

log = logging.getLogger("amends")

# How old the policy may grow before a run or a call fetches it again.
POLICY_SECONDS = 60.0
FLUSH_SECONDS = 2.0
MASKING_FORM = "v1"
NOT_FOUND = 404
NOBODYS = (
    "{} keeps what was not sent under another key before the desk was ever met, so nobody knows"
    " whether it is this agent's. Send it with that key, or name another file with AMENDS_SPOOL"
)


class Link:
    """What runs and their calls need of the desk: to ask, to say, and to know its policy.

    `spool` is the file that keeps what is not sent yet; what the other arguments mean is told at
    `amends.client.Desk`.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        spool: Path,
        workspace: str | None,
        wait_seconds: float,
        on_wait: Waits | None,
        on_question: Replies | None,
        on_parked: Parked | None,
    ) -> None:
        self.wait_seconds = wait_seconds
        self.announced: dict[str, str] = {}
        """The shape of arguments that the desk has heard of each tool, by digest."""
        self._workspace = workspace
        self._policy_at = float("-inf")
        self.spool = Spool(spool)
        self.wire = Wire(url, key)
        self._key_digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        self._claimed = False
        self.sender = Sender(self.spool, self.wire, on_parked=on_parked, before=self.claim)
        self.gate = Gate(self.spool, self.sender, on_wait=on_wait, on_question=on_question)
        self.driver, self.async_driver = Driver(self.wire), AsyncDriver(AsyncWire(url, key))
        self._known: dict[str, Any] = self.spool.recall("policy") or {}
        if aside := self.spool.count_parked():
            log.warning(SET_ASIDE, aside, self.spool.path)

    @property
    def workspace(self) -> str:
        """The workspace of the key; fetched once and then known over restarts."""
        if self._workspace is None and "workspace" not in self._known:
            self.fetch_policy()
        return self._workspace or str(self._known["workspace"])

    @property
    def agent(self) -> str | None:
        """The agent of the key, or None before the desk was ever reached."""
        return self._known.get("agent")

    @property
    def policy(self) -> Mapping[str, Any] | None:
        """The last policy document fetched, or None if there was never one."""
        return self._known.get("document")

    @property
    def masking_key(self) -> MaskingKey | None:
        """The workspace's, or None before the desk was ever reached."""
        given = self._known.get("masking")
        if not isinstance(given, dict) or given.get("form") != MASKING_FORM:
            return None
        secret = bytes.fromhex(str(given["key"]))
        return MaskingKey(secret, shows_last4=shows_last4(self.policy))

    def need_masking_key(self) -> AmendsError | None:
        """Fetch the key with the policy where it never was: without it nothing can be compared.
        Gives what kept it from being fetched.
        """
        if self.masking_key is not None:
            return None
        self._policy_at = float("-inf")
        return self.freshen()

    def meeting(self) -> Steps[None]:
        """Fetch the policy where there never was one, as patiently as a call is asked for.

        A client that is new knows neither its workspace nor the masking key. Whoever cannot go on
        without them finds out next.
        """
        if self._known:
            return
        try:
            yield from in_turn(lambda: trying(lambda: blocking(self._meet)))
        except WrongSpool:
            raise
        except (DeskUnreachable, KeyRefused, Refused) as reason:
            log.info("the policy cannot be fetched (%s)", reason)

    def _meet(self) -> None:
        self.claim()
        self.fetch_policy()

    def fetch_policy(self) -> None:
        """Fetch the policy now, and keep it on disk. Raises DeskUnreachable or KeyRefused."""
        self._known = self._policy_now()
        self._policy_at = time.monotonic()
        self.spool.remember("policy", self._known)

    def _policy_now(self) -> dict[str, Any]:
        """What is nobody's policy must not take the place of the last one, which may forbid."""
        found = self.wire.get("policy")
        named = all(isinstance(found.get(name), str) for name in ("workspace", "agent"))
        if not named or not isinstance(found.get("document"), dict | None):
            raise NotTheDesk("the answer is not the desk's: it is no policy")
        return found

    def claim(self) -> None:
        """Raise WrongSpool where another agent keeps this spool; its agent's new key may go on.

        Each would send what is the other's, and it would be set aside, or be taken for its own.
        """
        if self._claimed:
            return
        if self.spool.recall("key") not in (None, self._key_digest):
            was = self.spool.recall("policy")
            if was is None and (self.spool.waiting() or self.spool.count_parked()):
                raise WrongSpool(NOBODYS.format(self.spool.path))
            was, now = was or {}, self._policy_now()
            if any(was.get(name) not in (None, now.get(name)) for name in ("workspace", "agent")):
                raise WrongSpool(
                    f"{self.spool.path} keeps what {was.get('agent')} has not sent yet, and this"
                    f" key is {now.get('agent')}'s. Name another file with AMENDS_SPOOL"
                )
        self.spool.remember("key", self._key_digest)
        self._claimed = True

    def freshen(self) -> AmendsError | None:
        """The policy decides what may be done while the desk is away, so it should be a new one.
        Gives what kept it from being fetched.
        """
        try:
            self.claim()
            if time.monotonic() - self._policy_at >= POLICY_SECONDS:
                self.fetch_policy()
        except WrongSpool:
            raise
        except (DeskUnreachable, KeyRefused, Refused) as reason:
            log.info("the policy cannot be fetched (%s); the last one holds", reason)
            self._policy_at = time.monotonic()
            return reason
        return None

    def asking_directive(
        self, run: str, *, wait_seconds: float = 0
    ) -> Steps[dict[str, Any] | None]:
        """What the desk wants of a run: `stop`, or `resume` from a checkpoint; None for nothing."""
        path = f"runs/{quote(run, safe='')}/directive"
        try:
            answer: dict[str, Any] = yield get(path, wait_seconds=wait_seconds)
        except Refused as refused:
            if refused.status != NOT_FOUND:
                raise
            return None  # The desk has not heard of the run yet, so it wants nothing of it.
        if "directive" not in answer:
            raise NotTheDesk("the answer is not the desk's: it says nothing of the run")
        directive: dict[str, Any] | None = answer["directive"]
        return directive

    directive, adirective = waits(asking_directive), awaits(asking_directive)

    def reporting(self, run: str, text: str) -> Steps[int]:
        """Say that a run of this agent did wrong; it opens a case, whose number is returned."""
        yield from self.flushing()
        said = {"text": masked(text, (), self.masking_key, nuls=False)}
        path = f"runs/{quote(run, safe='')}/report"
        answer: dict[str, Any] = yield post(path, json.dumps(said).encode())
        if not isinstance(answer.get("case"), int):
            raise NotTheDesk("the answer is not the desk's: it names no case")
        return int(answer["case"])

    report, areport = waits(reporting), awaits(reporting)

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
        return statement(
            kind, run=run, data=data, mask=mask, masking_key=self.masking_key, n=n, action=action,
            trace=trace, with_snapshots=keeps_snapshots(self.policy),
        )  # fmt: skip

    def masked(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data of an event as it would be told, whole."""
        shown: dict[str, Any] = masked(
            plain(data), mask_paths(self.policy), self.masking_key, nuls=False
        )
        return shown

    def send(self, told: Statement, *, key: KeyRow | None = None) -> None:
        """Put a statement in the spool; the sender does the rest.

        Where the disk is full it goes to the desk at once: what has happened must be told. Raises
        CannotUse where that is not possible, either.
        """
        try:
            self.spool.write(told.event, blobs=told.blobs, key=key)
        except CannotUse as full:
            log.error("%s; the desk is told at once", full)  # noqa: TRY400
            try:
                self.sender.tell(told)
            except (DeskUnreachable, KeyRefused, Refused) as unheard:
                raise CannotUse(f"{full}, and the desk could not be told: {unheard}") from full
        self.sender.wake()

    def parked(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Events that were refused and are set aside, each with the problem that was named."""
        return self.spool.parked()

    def retry_parked(self, ids: Sequence[str] | None = None) -> int:
        """Send again what is set aside, or the events of these ids; how many are in line again."""
        found = self.spool.unpark(ids)
        self.sender.wake()
        return found

    def flushing(self, seconds: float = FLUSH_SECONDS) -> Steps[bool]:
        """Try for so long to send what waits; whether all of it is sent."""
        found: bool = yield from called(self.sender.flush, seconds)
        return found

    flush, aflush = waits(flushing), awaits(flushing)
