"""What an agent sends to `begin`: a planned action, and one try at it.

The body is the event `action.planned` with two members more: `attempt`, an id that the caller makes
anew for each try, and `retry`, the layer that tries again.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from amends.protocol.masking import holds_bare, holds_mask, masked
from amends.protocol.vocabulary import WITHOUT_EFFECT, EventType
from approvals.digests import FORWARD_FORM, CallFacts
from approvals.policy import LookupResult, ToolCall
from edge.asgi import Problem, Refused, refuse
from ledger.canonical import digest, rounded
from ledger.fold.actions import args_digest
from ledger.fold.effects import planned_targets
from ledger.parsed_events import Actor, ParsedEvent, new_id
from ledger.schemas import ActionPlanned, Retry
from ledger.wire import EVENT_BYTES_MAX, Envelope, of_gate, read

BODY_BYTES_MAX = EVENT_BYTES_MAX + 4 * 1024
ATTEMPT_CHARACTERS_MAX = 120
RETRIES = frozenset(get_args(Retry))
ASKED_APART = "aap_"
"""What runs of other protocols begin with (approvals/interchange): what is asked in them is begun
when it is consumed, and draws on no grant."""
_OTHER_NAME = "What is masked cannot be told from others. Send another, such as a UUID."
_json = msgspec.json.Encoder()
_any = msgspec.json.Decoder()


class BeginBody(Envelope, kw_only=True):
    """The body, for the page of the API."""

    id: str | UnsetType = UNSET  # type: ignore[assignment]  # given to those that have none
    type: Annotated[str, Meta(extra_json_schema={"enum": [EventType.ACTION_PLANNED]})] = (
        EventType.ACTION_PLANNED
    )
    run: str
    action: str
    attempt: Annotated[str, Meta(min_length=1, max_length=ATTEMPT_CHARACTERS_MAX)]
    retry: Retry | UnsetType = UNSET
    data: ActionPlanned  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """A call that wants to be made. `planned` is its event, checked and masked."""

    actor: Actor
    planned: ParsedEvent
    key: str
    attempt: str
    retry: str = ""
    explain: bool = False
    may_draw: bool = True
    """Whether a bounded grant may let it pass; what only asks is asked of people."""
    targets: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        return self.planned.data

    @property
    def tool(self) -> str:
        return str(self.data["tool"])

    @property
    def accepts_changed_arguments(self) -> bool:
        """Whether the client makes the call with what an approver has made of its arguments."""
        return self.data.get("accepts_changed_arguments") is True

    @property
    def tool_schema(self) -> Mapping[str, Any] | None:
        """Which arguments the tool takes, where the client announces it."""
        schema = self.data.get("tool_schema")
        return schema if isinstance(schema, dict) and schema else None

    @property
    def args_digest(self) -> str:
        """What must not differ under one key: tool, targets and arguments."""
        return args_digest(self.tool, self.targets, self.data.get("args"))

    @property
    def subject_key(self) -> str:
        return f"{self.actor.agent_id} {self.key}"

    @property
    def holds_bare(self) -> bool:
        """Whether something in it was masked so that it cannot be compared."""
        return holds_bare([self.data.get("args"), self.targets])

    def tool_call(
        self, labels: Mapping[str, Any], findings: Mapping[str, LookupResult] | None = None
    ) -> ToolCall:
        return ToolCall(
            tool=self.tool,
            args=self.data.get("args"),
            targets=self.targets,
            action_class=self.data.get("class") or "",
            risk=self.data.get("risk") or "",
            agent=self.actor.name,
            labels=labels,
            saga=self.data.get("saga") or "",
            trusted=self.actor.trusted,
            before=self.data.get("before"),
            findings=findings or {},
        )

    def facts(self, on_behalf_of: Any) -> CallFacts:
        """The call as an approval binds it. The fingerprint is the state the agent saw before.

        It is one call of one run, on behalf of the run's person; how the agent would have it undone
        is a part of it, for people judge by that, too.
        """
        first = self.targets[0] if self.targets else {}
        before = self.data.get("before")
        return CallFacts(
            operation=self.tool,
            args=self.data.get("args"),
            targets=self.targets,
            target_type=str(first.get("type", "")),
            target_id=str(first.get("id", "")),
            fingerprint="" if before is None else digest(before),
            key=self.key,
            more={
                "form": FORWARD_FORM,
                "agent": self.actor.name,
                "run": self.planned.run,
                "on_behalf_of": on_behalf_of,
                "compensation": self.data.get("compensation"),
            },
        )

    def with_args(self, args: Any) -> "BeginRequest":
        """The call with what an approver has made of its arguments, to be judged and shown. It is
        no event: what is recorded is what the agent has asked.
        """
        return replace(self, planned=replace(self.planned, data=self.data | {"args": args}))

    def opened(self) -> ParsedEvent:
        """The event that this run was named, where nothing is known of it."""
        event = {"id": new_id(), "type": EventType.RUN_STARTED, "run": self.planned.run, "data": {}}
        return _or_refuse(of_gate(self.actor, event))

    def started(
        self, run: str, action: str, fence: int, action_class: str, args: Any = None,
        *, saga: str,
    ) -> ParsedEvent:  # fmt: skip
        """The event that this try has started, under the action that the key belongs to; `args`
        where an approver has changed those with which it is made. `action_class` is the gate's:
        that a call only reads is said where the catalogue knows it and the agent did not say; and
        so is `saga` (`approvals.policy.saga_of`).
        """
        data: dict[str, Any] = {"attempt": self.attempt, "fence": fence}
        if action_class in WITHOUT_EFFECT and not self.data.get("class"):
            data["class"] = action_class
        if saga and not self.data.get("saga"):
            data["saga"] = saga
        if args is not None:
            data["args"] = args
        if self.retry:
            data["retry"] = self.retry
        event = {"id": new_id(), "type": EventType.ACTION_STARTED, "run": run, "action": action}
        return _or_refuse(of_gate(self.actor, event | {"n": self.planned.n, "data": data}))

    def planned_as(self, action: str, replaces: list[str]) -> ParsedEvent:
        """The plan under the key's first action, in place of the plans that came to nothing."""
        event = {
            "id": self.planned.id,
            "type": EventType.ACTION_PLANNED,
            "run": self.planned.run,
            "action": action,
            "n": self.planned.n,
            "data": self.data | {"replaces": replaces},
        }
        return _or_refuse(read(_json.encode(event), self.actor, reserved=True))


def _or_refuse(event: ParsedEvent | tuple[str, Problem]) -> ParsedEvent:
    if isinstance(event, ParsedEvent):
        return event
    raise Refused(event[1])


def parse(body: bytes, actor: Actor, *, explain: bool) -> BeginRequest:
    """The request in a body. Raises Refused (400, 422) with what does not fit."""
    loose = _parse_object(body)
    if number := rounded(body):
        detail = f"{number} has more digits than a double: send it as text."
        raise refuse("unfit", "The body holds what the ledger does not keep", 422, detail)
    attempt, retry = loose.pop("attempt", None), loose.pop("retry", None)
    if not isinstance(attempt, str) or not 0 < len(attempt) <= ATTEMPT_CHARACTERS_MAX:
        raise refuse(
            "schema",
            "“attempt” is missing",
            422,
            f"A text of 1 to {ATTEMPT_CHARACTERS_MAX} characters, new for each try.",
        )
    if retry is not None and not (isinstance(retry, str) and retry in RETRIES):
        raise refuse("schema", "“retry” does not fit", 422, f"One of {', '.join(sorted(RETRIES))}.")
    if "id" not in loose:
        loose["id"] = new_id()
    if loose.setdefault("type", EventType.ACTION_PLANNED) != EventType.ACTION_PLANNED:
        raise refuse("schema", "begin takes action.planned and nothing else", 422)
    planned = _or_refuse(read(_json.encode(loose), actor))
    targets: list[Mapping[str, Any]] = list(planned_targets(planned.data))
    _refuse_masked_names(planned, targets, attempt)
    key = planned.data.get("key")
    if not key:  # what is recorded has it, or the next try would not find the call
        key = _derived_key(planned, targets, actor)
        loose["data"] = loose["data"] | {"key": key}
        planned = _or_refuse(read(_json.encode(loose), actor))
    return BeginRequest(actor, planned, key, attempt, retry or "", explain=explain, targets=targets)


def _refuse_masked_names(
    planned: ParsedEvent, targets: list[Mapping[str, Any]], attempt: str
) -> None:
    """Refuse what names the call by a masked number: another number would be the same call.

    Its second call would be answered with the first one's result, and never be made.
    """
    if holds_mask(masked(attempt)):
        raise refuse("masked", "“attempt” reads like a card number", 422, _OTHER_NAME)
    if holds_mask(planned.data["tool"]):
        raise refuse("masked", "“tool” reads like a card number, or is masked", 422, _OTHER_NAME)
    if key := planned.data.get("key"):
        if holds_mask(key):
            raise refuse("masked", "“key” reads like a secret or a card number", 422, _OTHER_NAME)
    elif holds_mask([[target["type"], target["id"]] for target in targets]):
        raise refuse("masked", "The target reads like a card number", 422, "Send a “key”, too.")


def _parse_object(body: bytes) -> dict[str, Any]:
    """The body, an object in which no name stands twice.

    A decoder in C drops the second in silence; so what it read is written again and the signs that
    stand behind names are counted. Where that can mislead, or anything is wrong, a slow one looks.
    """
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        loose = _any.decode(body)
        if (
            isinstance(loose, dict)
            and b"\\" not in body
            and _count_names(body) == _count_names(_json.encode(loose))
        ):
            return loose
    return _parse_strictly(body)


def _count_names(text: bytes) -> int:
    return text.translate(None, b" \t\n\r").count(b'":')


def _parse_strictly(body: bytes) -> dict[str, Any]:
    """Two readers: one sees names that stand twice, the other the numbers and texts beyond JSON's.

    To the first, 1e400 is infinite, which would be written as null and shown to people as that.
    """
    try:
        json.loads(body, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
        loose = _any.decode(body)
    except RecursionError as deep:
        raise refuse("unfit", "The body is nested too deep", 422) from deep
    except ValueError as wrong:  # msgspec's and Unicode's are such, too
        raise refuse("malformed", "The body is not JSON", 400, str(wrong)[:200]) from wrong
    if not isinstance(loose, dict):
        raise refuse("schema", "The body is not an object", 422)
    return loose


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _derived_key(planned: ParsedEvent, targets: list[Mapping[str, Any]], actor: Actor) -> str:
    """The key of one logical operation, as the SDK makes it (docs/wire.md)."""
    tool = planned.data["tool"]
    identity = {
        "workspace": actor.workspace,
        "run": planned.run,
        "tool": tool,
        "op": planned.data.get("op") or tool,
        "target": [{"type": target["type"], "id": target["id"]} for target in targets],
    }
    return f"sha256:{digest(identity)}"
