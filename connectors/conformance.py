"""The contract test: the promises of `contract.Connector`, tried on a real system.

An author writes one `Trial` per operation and runs every function of PROMISES over it, with pytest:

    @pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
    def test_promises(trial, promise):
        promise(trial)

`tests/connectors/test_contract.py` does so for every built-in connector. No database of the desk is
needed, only the outside system, and a journal of it that says what really happened there.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import httpx
import msgspec

from connectors.contract import (
    UNSET,
    Answer,
    Call,
    Connector,
    Observation,
    Operation,
    Purpose,
    Recorded,
    Refused,
    Session,
    State,
    Target,
)
from connectors.normalization import secrets_of
from connectors.outbound import Deadline, NotSent, Outbound, Response
from connectors.registry import faults_of

# Ways out that are broken on purpose, for the contract test (`conformance`).


class NoOutbound(Outbound):
    """A way out by which nobody comes through."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotSent("The contract test lets nothing out.")

    connect = addresses = local_socket = request = _refuse


class Lossy(Outbound):
    """A way out on which the nth answer, and whatever comes after it, gets lost on its way back.

    Over `addresses` a library makes its connection itself, so nothing is lost there.
    """

    def __init__(self, deadline: Deadline, nth: int) -> None:
        super().__init__(deadline)
        self._left = nth

    @property
    def has_lost(self) -> bool:
        return self._left <= 0

    def is_lost(self) -> bool:
        """Whether the answer that comes now is one that gets lost."""
        self._left -= 1
        return self.has_lost

    def connect(self, host: str, port: int) -> socket.socket:
        made = super().connect(host, port)
        wire = _Line(fileno=made.detach())
        wire.settimeout(self.deadline.remaining())
        wire.way = self
        return wire

    def request(self, *asked: Any, **more: Any) -> Response:
        answer = super().request(*asked, **more)
        if self.is_lost():
            raise httpx.ReadError("The line is dead.")
        return answer


class _Line(socket.socket):
    """A connection that is dead once an answer was lost on it: each read counts as one."""

    way: Lossy

    def recv(self, *size: Any) -> bytes:
        heard = b"" if self.way.has_lost else super().recv(*size)
        return b"" if self.way.is_lost() else heard

    def recv_into(self, *place: Any) -> int:
        count = 0 if self.way.has_lost else super().recv_into(*place)
        return 0 if self.way.is_lost() else count


ANSWERS_MAX = 20
"""Of one call, that are lost one after the other."""


class PromiseBroken(AssertionError):
    """We stopped because the connector does not keep the contract; the text says where."""


@dataclass(kw_only=True)
class Trial:
    """One operation of one connector, and how to set the stage for it.

    `arrange` puts the target as an agent left it, in `expected`. `effects` counts what the outside
    system itself says was done to the target since then. `disturb` changes the target as somebody
    else would; leave it out where nothing can drift. `unreachable` are settings that lead nowhere.
    """

    connector: Connector
    operation: str
    settings: dict[str, Any]
    credential: dict[str, Any]
    target: Target
    arrange: Callable[[], object]
    effects: Callable[[], int]
    args: State = field(default_factory=dict)
    before: Recorded = UNSET
    expected: Recorded = UNSET
    disturb: Callable[[], object] | None = None
    unreachable: dict[str, Any] = field(default_factory=dict)
    key: str = "sha256:contract"

    def call(self, purpose: Purpose = "observe", **changed: Any) -> Call:
        """The call as the engine would make it."""
        settings = changed.pop("settings", self.settings)
        session = Session(
            connection="contract",
            purpose=purpose,
            settings=msgspec.convert(settings, self.connector.settings_schema),
            credentials=msgspec.convert(self.credential, self.connector.credential_schema),
            outbound=Outbound(Deadline(self.declared.limit_seconds)),
        )
        call = Call(
            operation=self.declared,
            args=self.args,
            target=self.target,
            key=self.key,
            connection=session,
            before=self.before,
            expected=self.expected,
        )
        return replace(call, **changed)

    @property
    def declared(self) -> Operation:
        settings = msgspec.convert(self.settings, self.connector.settings_schema)
        return self.connector.operations_for(settings)[self.operation]

    def look(self) -> Observation | None:
        """What the engine reads before a call, and gives to it as `observed`."""
        return self.connector.observe(self.call()) if self.declared.observes else None

    def applied(self, **changed: Any) -> Answer:
        """Apply after a look, with a refusal as the outcome that it is."""
        changed.setdefault("observed", None if "settings" in changed else self.look())
        try:
            return self.connector.apply(self.call("compensate", **changed))
        except Refused as refusal:
            return Answer(outcome="no_effect", detail=str(refusal))


def insist(claim: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not claim:
        raise PromiseBroken(what)


def it_is_whole(trial: Trial) -> None:
    faults = list(faults_of(trial.connector, trial.connector.name))
    insist(not faults, "; ".join(faults))
    trial.declared.check_args(trial.args)


def a_preview_is_pure(trial: Trial) -> None:
    """The same call, the same preview; nothing of the credential in it; all of it JSON."""
    trial.arrange()
    blind = replace(trial.call().connection, credentials=None, outbound=Outbound(Deadline(0)))
    one, two = (trial.connector.preview(trial.call(connection=blind)) for _ in range(2))
    insist(one == two, "Two previews of one call differ.")
    insist(bool(one.title), "A preview needs a title.")
    insist("\n" not in one.title, "A title is one line.")
    shown = msgspec.json.encode(one).decode()
    for secret in secrets_of(trial.credential):
        insist(secret not in shown, "The preview shows a credential.")
    insist(trial.effects() == 0, "A preview changed something.")


def looking_changes_nothing(trial: Trial) -> None:
    if not trial.declared.observes:
        return
    trial.arrange()
    one = trial.connector.observe(trial.call())
    two = trial.connector.observe(trial.call())
    insist(one.fingerprint == two.fingerprint, "Two looks at one state have two fingerprints.")
    insist(trial.effects() == 0, "Looking changed something.")
    insist(not trial.connector.drifted(trial.call(), one), "What nobody changed has drifted.")


def it_is_done_and_reads_back(trial: Trial) -> None:
    trial.arrange()
    answer = trial.applied()
    insist(answer.outcome == "applied", f"It was not applied: {answer}.")
    insist(trial.effects() == 1, f"The system saw {trial.effects()} effects instead of one.")
    if trial.declared.reads_back:
        check = trial.connector.verify(trial.call())
        insist(check.ok, f"What was done does not read back: {check.checks}.")


def the_same_key_is_done_once(trial: Trial) -> None:
    """The answer was lost and the engine comes again: it looks, and calls unless all is as wanted.

    Where it is the system that remembers, it is called in any case.
    """
    if not trial.declared.may_repeat:
        return
    trial.arrange()
    trial.applied()
    seen = trial.look()
    remembers = trial.declared.idempotency in {"native_key", "marker"}
    if remembers or seen is None or not trial.connector.satisfied(trial.call(), seen):
        again = trial.applied(observed=seen)
        insist(again.outcome == "applied", f"The second time is a success too, not {again}.")
    insist(trial.effects() == 1, "The same key had two effects.")


def done_already_is_a_success(trial: Trial) -> None:
    """Another plan may find the work done; for the look before the call that is `satisfied`."""
    if not (trial.declared.observes and trial.declared.reads_back):
        return
    trial.arrange()
    trial.applied()
    seen = trial.connector.observe(trial.call())
    wanted = trial.connector.preview(trial.call()).must_be_true
    if wanted:
        insist(trial.connector.satisfied(trial.call(), seen), "Done, and yet not satisfied.")


def a_probe_tells_before_from_after(trial: Trial) -> None:
    if trial.declared.probe == "none":
        return
    trial.arrange()
    before = trial.connector.probe(trial.call())
    insist(before.found == "absent", f"Nothing was done, and the probe says {before.found}.")
    trial.applied()
    after = trial.connector.probe(trial.call())
    insist(after.found == "present", f"It was done, and the probe says {after.found}.")
    insist(trial.effects() == 1, "The probe changed something.")


def somebody_elses_change_stands(trial: Trial) -> None:
    if trial.disturb is None:
        return
    trial.arrange()
    seen = trial.look()
    trial.disturb()
    now = trial.connector.observe(trial.call())
    insist(bool(trial.connector.drifted(trial.call(), now)), "The change was not noticed.")
    if trial.declared.idempotency in {"conditional", "marker"}:
        answer = trial.applied(observed=seen)  # it came between the look and the call
        insist(answer.outcome == "no_effect", f"Written over somebody's change: {answer}.")
        insist(trial.effects() == 0, "Somebody's change was overwritten.")


def a_system_that_is_away_is_not_an_effect(trial: Trial) -> None:
    if not trial.unreachable:
        return
    trial.arrange()
    away = {**trial.settings, **trial.unreachable}
    try:
        answer = trial.applied(settings=away)
    except Exception:  # noqa: BLE001 - any exception is the outcome unknown
        return
    insist(answer.outcome != "applied", "Applied, by a system that was not there.")


def a_lost_answer_is_no_refusal(trial: Trial) -> None:
    """Whichever answer is lost on its way back: what was done is never said to be undone.

    "No effect" would be believed, and lead to a second try.
    """
    for nth in range(1, ANSWERS_MAX + 1):
        trial.arrange()
        seen, known = trial.look(), trial.effects()
        way = Lossy(Deadline(trial.declared.limit_seconds), nth)
        session = replace(trial.call("compensate").connection, outbound=way)
        outcome = "unknown"
        with suppress(Exception):  # any exception is the outcome unknown
            outcome = trial.applied(connection=session, observed=seen).outcome
        denied = outcome == "no_effect" and trial.effects() > known
        insist(not denied, f"It was done, answer {nth} was lost, and it is said to be undone.")
        if not way.has_lost:
            return


def the_only_way_out_is_the_outbound(trial: Trial) -> None:
    """Address rule, deadline and size cap live there; a library's own connection has none."""
    trial.arrange()
    seen = trial.look()
    shut = replace(
        trial.call().connection, outbound=NoOutbound(Deadline(trial.declared.limit_seconds))
    )
    if trial.declared.observes:
        insist(not _answers(trial, shut), "It looked at the system past call.connection.outbound.")
    writing = replace(shut, purpose="compensate")
    with suppress(Exception):  # any exception is the outcome unknown
        trial.applied(connection=writing, observed=seen)
    insist(trial.effects() == 0, "It reached the system past call.connection.outbound.")


def _answers(trial: Trial, session: Session) -> bool:
    try:
        trial.connector.observe(trial.call(connection=session))
    except Exception:  # noqa: BLE001 - however it says that it cannot
        return False
    return True


PROMISES: tuple[Callable[[Trial], None], ...] = (
    it_is_whole,
    a_preview_is_pure,
    looking_changes_nothing,
    it_is_done_and_reads_back,
    the_same_key_is_done_once,
    done_already_is_a_success,
    a_probe_tells_before_from_after,
    somebody_elses_change_stands,
    a_system_that_is_away_is_not_an_effect,
    a_lost_answer_is_no_refusal,
    the_only_way_out_is_the_outbound,
)
