"""One `tools/call` on its way through the gateway: asked of the desk, made once, and told.

Whatever goes wrong before the server has been given the call, the server never sees it. What goes
wrong afterwards is told as it is: the outcome is unknown, and the call is not made again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from amends.actions import Action
from amends.adapters import args_digest, not_made
from amends.drivers import blocking
from amends.errors import AmendsError, ApprovalTimeout, ArgumentsChanged, NoEffect
from amends.gate import Waits
from amends.mcp.mapping import (
    CALL_TOOL,
    Hints,
    Mapped,
    ResourceKind,
    ResourceState,
    Safe,
    recorded,
    refusal,
    replayed,
)
from amends.policy import catalogued_class
from amends.protocol.canonical import digest
from amends.protocol.vocabulary import WITHOUT_EFFECT, ActionClass, EffectClass
from amends.runs import Run
from amends.tools import EFFECT_CLASS, OTHER_TARGET, undo
from amends.values import UNSET

log = logging.getLogger("amends.mcp")

# What a client may say in `_meta` of a call: the run, and the operation where one call of the same
# arguments is meant to be made twice. A server names an inverse in `_meta` of its answer.
META_RUN, META_OP, META_UNDO = "amends/run", "amends/op", "amends/undo"
OURS = frozenset({META_RUN, META_OP})
PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
# The protocol's own words for tools (2025-11-25); a name outside of them only looks like another.
TOOL_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
STATE_PREFIX = "amends:"
PROGRESS_SECONDS = 10.0
PROGRESS_STEP = 1e-6
# JSON-RPC's and the protocol's words for: this request was not carried out.
NOT_CARRIED_OUT = frozenset({-32600, -32601, -32602})
NOT_BEGUN = "cancelled before the call was made"
UNKNOWN = (
    "It is NOT known whether this call of {} took effect ({}). It was not repeated, and is not to"
    " be: the desk finds out, or asks a person"
)


class Abandoned(AmendsError):
    """We stopped because the client cancelled the call, or left, while the server was at it."""


class ServerGone(AmendsError):
    """We stopped because the server has ended, or the connection to it."""


class ServerRefused(AmendsError):
    """The server answered with an error of the protocol; `error` is to be handed on as it came."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"{error.code}: {error.message}")
        self.error = error


class ToolFailed(AmendsError):
    """The tool says itself that it failed; what it had done by then is not known."""


class Session(Protocol):
    """What a call needs of the session that it is made in."""

    id: str
    mapped: Mapped
    safe: Safe
    prefix: str
    wait_seconds: float
    elicits_by_url: bool
    open: dict[str, Open]

    async def run_of(self, named: str | None) -> Run: ...
    async def hints_of(self, tool: str, like: Mapping[str, Any]) -> Hints: ...
    async def forward(self, call: McpCall) -> dict[str, Any]: ...
    async def use_tool(
        self, tool: str, args: Mapping[str, Any], like: Mapping[str, Any]
    ) -> dict[str, Any]: ...
    async def elicit(self, call: McpCall, url: str, message: str) -> str: ...
    async def tell_progress(self, call: McpCall, progress: float, message: str) -> None: ...


@dataclass
class McpCall:
    """A request `tools/call`. `is_forwarded` from the moment at which the server may know of it.

    `changed` are the arguments that an approver has made of its own; `progress` only ever grows.
    """

    session: Session
    id: str | int
    params: dict[str, Any]
    is_forwarded: bool = False
    changed: Mapping[str, Any] | None = None
    progress: float = 0.0
    task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return str(self.params["name"])

    @property
    def args(self) -> dict[str, Any]:
        args: dict[str, Any] = self.params.get("arguments") or {}
        return args

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.params.get("_meta") or {}

    @property
    def progress_token(self) -> str | int | None:
        return self.meta.get("progressToken")

    async def answer(self) -> dict[str, Any]:
        """The result for the client. Raises ServerRefused, Abandoned and CancelledError."""
        result = await self._worded()
        if PROTOCOL_VERSION in self.meta:  # since 2026-07-28 each result says what it is
            result.setdefault("resultType", "complete")
        return result

    async def _worded(self) -> dict[str, Any]:
        try:
            return await self._answer()
        except (ServerRefused, Abandoned):
            raise
        except Exception as error:
            if self.is_forwarded:
                log.warning("the outcome of %s is not known: %s", self.name, error)
                return refusal(UNKNOWN.format(self.name, str(error) or type(error).__name__))
            if not isinstance(error, AmendsError | ValueError):
                log.exception("%s was not made", self.name)
            return refusal(not_made(str(error)))

    async def _answer(self) -> dict[str, Any]:
        if not TOOL_NAME.fullmatch(self.name):
            raise ValueError("a tool's name is 1 to 128 of A-Z, a-z, 0-9 and _ . / -")
        if "task" in self.params:
            raise ValueError("a call as a task ends elsewhere than here; call the tool without one")
        run = await self.session.run_of(self.meta.get(META_RUN))
        planned = await self._planned(run)
        if self._is_ours_again and self._was_declined:
            raise ValueError(
                "a person has to decide first, and the request to ask one was declined"
            )
        going_on = self.session.open.pop(self._thread(self.params.get("requestState")), None)
        if going_on is not None:
            try:
                return await self._go_on(going_on)
            finally:
                self.is_forwarded = True  # in part, however this one went
        try:
            begun = await self._begun(planned)
        except ApprovalTimeout as waiting:
            if self._may_require_input(waiting.approval):
                return self._input_required(waiting)
            raise
        if begun.action.replayed:
            return replayed(self.name, begun.action.result)
        return await self._go_on(begun)

    async def _planned(self, run: Run) -> Planned:
        mapped, name = self.session.mapped, self.session.prefix + self.name
        facts = mapped.of(self.name)
        await run.async_driver.run(run.desk.meeting())
        await run.async_driver.run(blocking(run.desk.freshen))
        hints = await self.session.hints_of(self.name, self.meta)
        known = facts.effect_class or catalogued_class(run.desk.policy, name) or EFFECT_CLASS
        effect_class = hints.raising(known)
        if META_OP in self.meta:
            of = str(self.meta[META_OP])
        elif effect_class in WITHOUT_EFFECT or facts.repeatable:
            of = f"{self.session.id} {self.id}"
        else:
            of = await run.async_driver.run(blocking(args_digest, run, self.args))
        return Planned(
            self,
            run,
            name,
            effect_class,
            hints,
            mapped.target(self.name, self.args),
            f"{name} {of}",
        )

    async def _go_on(self, begun: Open) -> dict[str, Any]:
        """Have the server make the call, and tell what came of it."""
        result = await begun.perform(self)
        if result.get("resultType") == "input_required":
            self.session.open[self._thread(result.get("requestState"))] = begun
        return result

    def _thread(self, state: Any) -> str:
        """By which a call is met again once its client has answered what the server asked: with
        other arguments it is another call.
        """
        return digest({"tool": self.name, "args": self.args, "state": state})

    # Waiting for people. Nothing that a client answers is an approval: the desk is asked anew.

    async def _begun(self, planned: Planned) -> Open:
        try:
            return await planned.begin(0)
        except ApprovalTimeout as waiting:
            if self._may_require_input(waiting.approval):
                raise
        return await self._wait(planned)

    async def _wait(self, planned: Planned) -> Open:
        """The client is sent to the card that is waited for, and to each that takes its place."""
        cards = asyncio.Queue[Mapping[str, Any]]()
        begin = asyncio.create_task(planned.begin(self.session.wait_seconds, cards.put))
        next_card = asyncio.create_task(cards.get())
        telling, words = set[asyncio.Task[Any]](), ""
        try:
            while not begin.done():
                done, _ = await asyncio.wait(
                    {begin, next_card, *telling}, return_when=asyncio.FIRST_COMPLETED
                )
                if next_card in done:
                    card, next_card = next_card.result(), asyncio.create_task(cards.get())
                    words = self._words(card)
                    _cancel(telling)
                    telling = self._tell(card, words)
                else:
                    _heed_decline(done - {begin}, words)
                    telling -= done
            return begin.result()
        except BaseException:
            begin.cancel()
            await asyncio.wait({begin})
            if not begin.cancelled() and begin.exception() is None:  # a yes that nobody waits for
                await begin.result().leave(NoEffect(NOT_BEGUN))
            raise
        finally:
            _cancel({next_card, *telling})

    def _words(self, card: Mapping[str, Any]) -> str:
        return f"A person has to approve {self.name} first: {card.get('url') or card['approval']}"

    def _tell(self, card: Mapping[str, Any], words: str) -> set[asyncio.Task[Any]]:
        """Tell the client of a card by what it can; ApprovalTimeout where that is an answer."""
        approval, url = str(card["approval"]), str(card.get("url") or "")
        if self._may_require_input(approval):
            raise ApprovalTimeout(approval, url)
        told = {asyncio.create_task(self._tell_waiting(words))}
        if url and self.session.elicits_by_url:
            told.add(asyncio.create_task(self.session.elicit(self, url, words)))
        return told

    async def _tell_waiting(self, words: str) -> str:
        """Progress, so that a client with a time limit knows that somebody is at it."""
        while True:
            self.progress += PROGRESS_STEP
            await self.session.tell_progress(self, self.progress, words)
            await asyncio.sleep(PROGRESS_SECONDS)

    @property
    def forwarded(self) -> dict[str, Any]:
        """What the server is given: the same, without what is between client and gateway."""
        params = dict(self.params)
        if self.changed is not None:
            params["arguments"] = dict(self.changed)
        if self._is_ours_again:
            params.pop("requestState")
            params.pop("inputResponses", None)
        if "_meta" in params:
            params["_meta"] = {name: value for name, value in self.meta.items() if name not in OURS}
        return params

    @property
    def _is_ours_again(self) -> bool:
        return str(self.params.get("requestState", "")).startswith(STATE_PREFIX)

    @property
    def _was_declined(self) -> bool:
        answers = (self.params.get("inputResponses") or {}).values()
        return any(one.get("action") != "accept" for one in answers if isinstance(one, dict))

    def _may_require_input(self, approval: str) -> bool:
        """Whether the client of this request takes `input_required` with an address, and has not
        been sent to that of this approval.
        """
        said = self.meta.get(CAPABILITIES)
        elicits = said.get("elicitation") if isinstance(said, dict) else None
        is_sent = self.params.get("requestState") == f"{STATE_PREFIX}{approval}"
        return isinstance(elicits, dict) and "url" in elicits and not is_sent

    def _input_required(self, waiting: ApprovalTimeout) -> dict[str, Any]:
        asked = {
            "mode": "url",
            "url": waiting.url,
            "message": f"A person has to approve {self.name} first.",
        }
        return {
            "resultType": "input_required",
            "inputRequests": {"approval": {"method": "elicitation/create", "params": asked}},
            "requestState": f"{STATE_PREFIX}{waiting.approval}",
        }


@dataclass(frozen=True)
class Planned:
    """A call with all that the desk is told of it."""

    call: McpCall
    run: Run
    name: str
    effect_class: EffectClass
    hints: Hints
    target: tuple[str, str] | None
    op: str

    @property
    def kind(self) -> ResourceKind | None:
        return self.call.session.mapped.kinds.get(self.target[0]) if self.target else None

    async def begin(self, wait_seconds: float, on_wait: Waits | None = None) -> Open:
        """Ask the desk. Raises what `amends.adapters.NOT_MADE` names."""
        was = await self.look()
        how: dict[str, Any] = {}
        if was is not UNSET:
            how["before"] = None if was is None else was.state
            mapped, kind = self.call.session.mapped, self.kind
            if kind and mapped.connection and self.effect_class != ActionClass.READ_ONLY.value:
                how["undo"] = kind.undoing(mapped.connection, was)
        if why := self.hints.why_high:
            how |= {"risk": "high", "intent": {"reason": why}}
        action = self.run.action(
            self.name, target=self.target, args=self.call.args, op=self.op,
            effect_class=self.effect_class, wait_seconds=wait_seconds,
            accepts_changed_arguments=True, schema=self.hints.schema, **how,
        )  # fmt: skip
        action.on_wait = on_wait
        await action.__aenter__()
        return Open(self, action, was, how.get("undo"))

    async def look(self) -> Any:
        """How the target stands: None where it is not there, UNSET where nobody can say."""
        if self.kind is None or self.target is None:
            return UNSET
        session, meta = self.call.session, self.call.meta
        try:
            return await self.kind.look(
                lambda tool, args: session.use_tool(tool, args, meta), self.target[1]
            )
        except (AmendsError, TimeoutError, KeyError) as why:
            log.info("%s %s is not seen: %s", *self.target, why)
            return UNSET


@dataclass
class Open:
    """A call that may be made, or that the server is at: its outcome is still to be told."""

    planned: Planned
    action: Action
    was: Any
    undo: Mapping[str, Any] | None = None
    is_given: bool = False

    async def perform(self, call: McpCall) -> dict[str, Any]:
        """Give it to the server, and tell the desk what came of it."""
        try:
            if self.action.is_changed:
                call.changed = self.action.args
                self._check_target(call)
            if not self.is_given:
                await self._look_again()
                self.is_given = True
            result = await self._made(call)
            if self.action.replayed:  # another try made it while this one stood still
                return replayed(call.name, result)
            if result.get("resultType") == "input_required":
                self.action.goes_on()
                return result
            if result.get("isError"):
                await self._tool_failed(result)
            else:
                await self._succeeded(result)
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError) and not self.is_given
            await self.leave(NoEffect(NOT_BEGUN) if is_cancelled else error)
            raise
        return result

    async def leave(self, error: BaseException) -> None:
        await self.action.async_driver.run(self.action.leaving(error))

    async def _made(self, call: McpCall) -> dict[str, Any]:
        try:
            making = self.action.making(functools.partial(call.session.forward, call))
            answer: dict[str, Any] = await self.action.async_driver.run(making)
        except asyncio.CancelledError:
            if task := asyncio.current_task():
                task.uncancel()
            raise Abandoned("the call was cancelled while the server was at it") from None
        except ServerRefused as refused:
            if refused.error.code in NOT_CARRIED_OUT:
                await self.action.afailed(refused, outcome="no_effect")
            raise
        return answer

    def _check_target(self, call: McpCall) -> None:
        try:
            is_same = call.session.mapped.target(call.name, self.action.args) == self.planned.target
        except ValueError as unnamed:
            raise ArgumentsChanged(str(unnamed)) from unnamed
        if not is_same:
            raise ArgumentsChanged(OTHER_TARGET)

    async def _look_again(self) -> None:
        """People may take an hour, and what they were shown is what would be put back."""
        if self.was is UNSET:
            return
        now = await self.planned.look()
        if _state(now) != _state(self.was):
            raise NoEffect("what it changes has changed meanwhile; look at it, and call again")
        kind = self.planned.kind
        if kind and kind.keeps_bytes and isinstance(now, ResourceState):
            try:
                await asyncio.to_thread(self.planned.call.session.safe.put, now.raw)
            except OSError as full:
                raise NoEffect(f"how it was cannot be kept, to be put back: {full}") from full

    async def _succeeded(self, result: Mapping[str, Any]) -> None:
        now = await self.planned.look()
        after = UNSET if now is UNSET else _state(now)
        undoing = self._servers_undo(result)
        if self.action.is_changed and self.undo is not None:
            undoing = dict(self.undo)  # it puts back what was there, whatever was written
        await self.action.asucceeded(recorded(result), after=after, undo=undoing)

    def _servers_undo(self, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """The inverse that the server names: a suggestion, which people have to approve."""
        said = (result.get("_meta") or {}).get(META_UNDO)
        connection = self.planned.call.session.mapped.connection
        if not (connection and isinstance(said, dict) and isinstance(said.get("tool"), str)):
            return None
        return undo(
            f"{connection}.{CALL_TOOL}", tool=said["tool"], arguments=said.get("arguments") or {}
        )

    async def _tool_failed(self, result: Mapping[str, Any]) -> None:
        """A failure that the tool tells of: without effect only where that was seen."""
        words = " ".join(str(one.get("text", "")) for one in result.get("content") or ())
        refused = self.planned.call.session.mapped.of(self.planned.call.name).refused
        is_nothing = self.planned.effect_class in WITHOUT_EFFECT or bool(
            refused and refused.search(words)
        )
        if not is_nothing and self.was is not UNSET:
            now = await self.planned.look()
            is_nothing = now is not UNSET and _state(now) == _state(self.was)
        failed = ToolFailed(words or "the tool says that it failed")
        await self.action.afailed(failed, outcome="no_effect" if is_nothing else "unknown")


def _state(seen: Any) -> Any:
    return seen.state if isinstance(seen, ResourceState) else seen


def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for one in tasks:
        one.cancel()


def _heed_decline(done: Iterable[asyncio.Task[Any]], words: str) -> None:
    if any(_declined(one) for one in done):
        raise ValueError(f"{words}. The request to open this was declined")


def _declined(task: asyncio.Task[Any]) -> bool:
    return (
        not task.cancelled() and task.exception() is None and task.result() in {"decline", "cancel"}
    )
