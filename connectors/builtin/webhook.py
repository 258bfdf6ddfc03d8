"""`webhook`: undo through the customer's own service, which mounts `amends.twins` or speaks as it
does.

One address, signed as Standard Webhooks say; docs/twins.md is the protocol. Which operations there
are, and what each leaves behind, is declared in the connection's settings, because only the
service's engineers know. The service promises to do a key once; what it answers is believed only in
the form `{outcome, observed}`, and anything else is unknown.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from amends.protocol.masking import holds_mask
from connectors import outbound
from connectors.contract import (
    CURRENCY,
    Answer,
    Call,
    CannotRead,
    Connector,
    DiffRow,
    Finding,
    Kind,
    Money,
    Observation,
    Operation,
    Preview,
    Recorded,
    Refused,
    Reversibility,
    State,
    meaning,
)
from connectors.manifest import struct_of

WINDOW_SECONDS = 30 * 24 * 3600
"""How long a service keeps keys unless it says otherwise."""

NOT_SENT = "what was there before, for it holds a masked value, which nobody here knows"

UNREAD = (
    "The service did not say how the target is now. If it never can, take “The service can be asked"
    " how the target is now” off this operation"
)
WORD_CHARACTERS_MAX = 80
"""Of a recorded value in a title."""


class Declared(msgspec.Struct, forbid_unknown_fields=True):
    """One operation of the service.

    `args` maps names to types ("text", "integer", "number", "flag", "object", "list"; "?" behind
    the name: may be missing); without it any arguments pass. `leaves` is what is true afterwards:
    "gone", "before" (the recorded snapshot is back), or fields with their values; without it
    nothing can be read back and a step ends as reported.

    `title` is what people read ("Refund {money} to card ending {card}"): names in braces are filled
    from the recorded state and the arguments, `{target}` is type and id, and `{money}` the amount
    that stands, in its smallest unit, under the name that `amount` gives, with its `currency`.
    """

    title: Annotated[
        str,
        meaning("What people read: Refund {money} to card ending {card}; {target} is type and id"),
    ]
    amount: Annotated[
        str, meaning("Under which name the amount stands, in its smallest unit, such as amount")
    ] = ""
    currency: Annotated[str, meaning("Under which name its currency stands, or EUR itself")] = ""
    args: Annotated[
        dict[str, str] | None,
        meaning(
            "A line for each argument and its type: amount: integer, note?: text (text, integer,"
            " number, flag, object, list; ? may be missing). Empty: any arguments pass",
            "Arguments",
        ),
    ] = None
    reversibility: Annotated[
        Reversibility,
        meaning("exact: all is as before; compensable: made up for otherwise"),
    ] = "compensable"
    kind: Annotated[Kind, meaning("What it works on, which decides how a card looks")] = "http"
    leaves: Annotated[
        Literal["gone", "before"] | dict[str, Any] | None,
        meaning(
            "What is true afterwards and is read back: gone, before (as it was recorded), or a"
            " line for each field, status: refunded. Empty: nothing can be read back",
            "What it leaves",
        ),
    ] = None
    observes: Annotated[
        bool,
        meaning(
            "Else nothing is known of the target but what the agent told",
            "The service can be asked how the target is now",
        ),
    ] = True
    window_seconds: Annotated[
        int, meaning("How long the service remembers our keys", "Keys remembered, in seconds")
    ] = WINDOW_SECONDS
    limit_seconds: Annotated[
        float, meaning("How long one call may take, at most 60", "Time limit, in seconds")
    ] = 15.0


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    url: Annotated[str, meaning("Where your service listens; begins with https://", "Address")]
    operations: Annotated[
        dict[str, Declared], meaning("What your service can undo, an entry for each")
    ]


class Signature(msgspec.Struct, forbid_unknown_fields=True):
    """`secret`: `whsec_…`, shared with the service."""

    secret: Annotated[str, meaning("whsec_…, shared with the service, which checks our signature")]

    def __post_init__(self) -> None:
        outbound.signer(self.secret)  # BadSecret, before a call needs it


class ObservedState(msgspec.Struct):
    found: bool
    state: State | None = None


class TwinAnswer(msgspec.Struct):
    outcome: Literal["applied", "no_effect", "unknown"]
    observed: ObservedState | None = None
    detail: str = ""


_said = msgspec.json.Decoder(TwinAnswer)


class Webhook(Connector):
    name = "webhook"
    version = "1.0"
    title = "Your own service (signed webhook)"
    summary = "Asks a service of yours to undo what only it knows how to undo."
    settings_schema = Settings
    credential_schema = Signature
    where = frozenset({"url"})

    def operations_for(self, settings: Any) -> Mapping[str, Operation]:
        return {name: _operation(name, one) for name, one in settings.operations.items()}

    def place(self, settings: Any) -> str:
        return ""  # its cards name the service

    def account(self, settings: Any, credentials: Any) -> str:
        return ""  # the service is whoever listens there; the secret proves us to it

    def check_settings(self, settings: Any) -> None:
        if not settings.url.startswith(("https://", "http://")):
            raise ValueError("The url has to begin with https://.")
        if not settings.operations:
            raise ValueError("At least one operation has to be declared.")

    def preview(self, call: Call) -> Preview:
        declared: Declared = call.connection.settings.operations[call.operation.name]
        call.operation.check_args(call.args)
        was = call.before if isinstance(call.before, dict) else {}
        wrote = call.wrote
        known = {**wrote, **call.args}
        money = _money(declared, known)
        return Preview(
            kind=declared.kind,
            title=_title(declared, call, known, money),
            rows=[*_told(call, money), *_rows(call.args)],
            will_send=_message(call, "apply"),
            must_be_true=_left(declared, call.before),
            diff=[
                DiffRow(name, was.get(name), wrote.get(name), call.now.get(name))
                for name in {**was, **wrote}
                if was.get(name) != wrote.get(name)
            ],
            money=money,
        )

    def observe(self, call: Call) -> Observation:
        said = _ask(call, "observe")
        if said.observed is None:
            raise CannotRead(UNREAD)
        return Observation(found=said.observed.found, state=said.observed.state)

    def apply(self, call: Call) -> Answer:
        said = _ask(call, "apply")
        if said.outcome == "no_effect":
            raise Refused(said.detail or "The service says that nothing happened.")
        return Answer(
            outcome=said.outcome,
            detail=said.detail,
            evidence={"observed": msgspec.to_builtins(said.observed)},
        )

    def probe(self, call: Call) -> Finding:
        said = _ask(call, "probe")
        found: Literal["present", "absent", "cannot_tell"] = "cannot_tell"
        if said.outcome == "applied":
            found = "present"
        elif said.outcome == "no_effect":
            found = "absent"
        return Finding(found=found, evidence={"detail": said.detail})


def _operation(name: str, declared: Declared) -> Operation:
    return Operation(
        name=name,
        title=declared.title,
        args_schema=struct_of(name, declared.args),
        reversibility=declared.reversibility,
        idempotency="native_key",
        window_seconds=declared.window_seconds,
        probe="strong",
        limit_seconds=declared.limit_seconds,
        kind=declared.kind,
        observes=declared.observes,
        reads_back=declared.observes and declared.leaves is not None,
    )


def _money(declared: Declared, known: State) -> Money | None:
    own = declared.currency if CURRENCY.fullmatch(declared.currency) else None
    return Money.of(known.get(declared.amount), known.get(declared.currency, own))


def _title(declared: Declared, call: Call, known: State, money: Money | None) -> str:
    """The declared sentence with its names filled in; without any, the target follows it."""
    target = f"{call.target.type} {call.target.id}"
    if "{" not in declared.title:
        return f"{declared.title}: {target}"
    words = {"target": target, "money": str(money) if money else "what was paid"}

    def filled(found: re.Match[str]) -> str:
        value = words.get(found[1], known.get(found[1]))
        if isinstance(value, str | int):
            word = str(value)
            return (
                word if len(word) <= WORD_CHARACTERS_MAX else f"{word[: WORD_CHARACTERS_MAX - 1]}…"
            )
        return _after(declared.title[: found.start()], target)

    return re.sub(r"\{(\w+)\}", filled, declared.title)


def _after(before: str, target: str) -> str:
    """The target where a name has no value, without the words that the sentence just said.

    Of “Refund it to card ending ” and the target “card ending 0077” that is “0077”.
    """
    said, words = before.split(), target.split()
    for number in range(len(words) - 1, 0, -1):
        if said[-number:] == words[:number]:
            return " ".join(words[number:])
    return target


def _told(call: Call, money: Money | None) -> list[tuple[str, str]]:
    """Where it goes, what it is done to, and what it moves."""
    moved = [("Amount", str(money))] if money else []
    on = ("On", f"{call.target.type} {call.target.id}")
    kept = [("Not sent", NOT_SENT)] if holds_mask(call.before) else []
    return [("Service", call.connection.settings.url), on, *moved, *kept]


def _left(declared: Declared, before: Recorded) -> State:
    if declared.leaves == "gone":
        return {"exists": False}
    if declared.leaves == "before":
        if isinstance(before, UnsetType):
            raise Refused("No snapshot was recorded that could be restored.")
        if holds_mask(before):  # it would be written into the service, and never read back
            raise Refused("What was there before holds a masked value, which nobody here knows.")
        return {"exists": False} if before is None else {"exists": True, "fields": before}
    if isinstance(declared.leaves, dict):
        return {"exists": True, "fields": declared.leaves}
    return {}


def _rows(args: State) -> list[tuple[str, str]]:
    return [
        (name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in args.items()
    ]


def _message(call: Call, do: str) -> State:
    """A snapshot with a masked value is none that could be put back: a service that needs it does
    nothing, and no service writes a mask for the value.
    """
    message: State = {
        "v": 1,
        "do": do,
        "operation": call.operation.name,
        "key": call.key,
        "target": {"type": call.target.type, "id": call.target.id},
        "args": call.args,
        "reason": call.reason,
    }
    before = UNSET if holds_mask(call.before) else call.before
    recorded = {"before": before, "expected": call.expected}
    return message | {name: value for name, value in recorded.items() if value is not UNSET}


def _ask(call: Call, do: Literal["observe", "apply", "probe"]) -> TwinAnswer:
    """One signed message and its answer; raises Refused if it was refused before anything ran."""
    body = msgspec.json.encode(_message(call, do))
    secret, message_id = call.connection.credentials.secret, f"msg_{uuid.uuid4().hex}"
    try:
        signature = outbound.headers_of(secret, body, message_id=message_id)
    except outbound.BadSecret as wrong:
        raise Refused(str(wrong)) from wrong
    headers = {"content-type": "application/json", **signature}
    answer = call.connection.outbound.request(
        "POST", call.connection.settings.url, headers=headers, content=body
    )
    if answer.status == HTTPStatus.UNAUTHORIZED:
        raise Refused("The service did not accept the signature.")
    try:
        said = _said.decode(answer.body)
    except msgspec.DecodeError as wrong:
        raise ValueError(f"The service answered {answer.status}, not in the protocol.") from wrong
    if (
        answer.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}
        and said.outcome == "no_effect"
    ):
        raise Refused(said.detail or f"The service refused the request ({answer.status}).")
    if answer.status != HTTPStatus.OK:
        raise ValueError(f"The service answered {answer.status}.")
    return said
