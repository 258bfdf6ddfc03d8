"""Each error finishes the sentence "we stopped because ..." and says what to do about it."""

from __future__ import annotations

import itertools
from typing import Any

from amends.protocol import masking

_moments = itertools.count(1)


def moment() -> int:
    """Later than every one before it in this process."""
    return next(_moments)


def in_words(problem: dict[str, Any]) -> str:
    """A problem (RFC 9457) as one line: what it is, and what the desk says of this case."""
    said = [str(problem[part]).rstrip(".") for part in ("title", "detail") if problem.get(part)]
    return ": ".join(said) or "the desk refused the request"


class AmendsError(Exception):
    """The parent of everything this package raises.

    An action that ends in it says it of itself: `told` is the moment, 0 where none has. Where that
    was within the call of another action, or once that was made, it has `passed` that one, of which
    it says nothing.
    """

    told = 0
    passed = False


class NoEffect(AmendsError):
    """Raise it in a tool or a twin where it *knows* that nothing happened: a documented refusal.

    Everything else that goes wrong, a time-out above all, counts as an unknown outcome.
    """

    def __init__(self, message: str = "", *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class ArgumentsChanged(NoEffect):
    """The arguments are no longer those that were asked for. The call was not made; ask anew."""


class Denied(AmendsError):
    """The desk does not allow the call. Do not make it; `reason` is for the model or a person."""

    happened = "not allowed, and not done"

    def __init__(self, reason: str, answer: dict[str, Any] | None = None) -> None:
        super().__init__(f"{self.happened}: {reason}")
        self.reason = reason
        self.answer = answer or {}


class Stopped(Denied):
    """The desk has told this run to stop. Leave the run; its work is recovered by the desk."""

    happened = "the desk has stopped this run, leave it"


class ApprovalTimeout(AmendsError):
    """Nobody has decided within the caller's deadline. Ask again later under the same key."""

    def __init__(self, approval: str, url: str) -> None:
        super().__init__(
            f"nobody has decided yet, and the call was not made. It can be decided at"
            f" {url or approval}; then make the same call in the same run again"
        )
        self.approval = approval
        self.url = url


class InDoubt(AmendsError):
    """An earlier try of this call may have happened. A probe or a person settles it; wait."""

    def __init__(self, action: str) -> None:
        super().__init__(
            f"an earlier try of this call ({action}) may have happened, so it was not made again."
            " Do not repeat it elsewhere: the desk finds out, or asks a person; then make it again"
        )


class Compensated(AmendsError):
    """This call succeeded once and was undone since. Its key is dead; `next_key` is a new one."""

    def __init__(self, message: str, next_key: str) -> None:
        super().__init__(message)
        self.next_key = next_key


class InProgress(AmendsError):
    """Another try of this call is under way. Wait for it, or until its lease is over."""


class KeyReused(AmendsError):
    """Other arguments were sent under a used key. A second operation needs an `op` of its own."""


class DeskUnreachable(AmendsError):
    """The desk cannot be reached and the call needs it. Try again when it is back."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotTheDesk(DeskUnreachable):
    """Something else answers in the desk's place, such as a network's log-in page or a filter. No
    call is made that would have to ask. Is AMENDS_URL right, and the way to it open?
    """


class Throttled(DeskUnreachable):
    """The desk is there, and this agent asks faster than it may. Ask less often, or have the
    operator of the desk raise the limit: it stands on the page *Agents and keys*.
    """


class KeyRefused(AmendsError):
    """The desk does not know this API key, or it lacks the scope. Make a new one in the console."""

    def __init__(self, message: str, *, by_somebody_else: bool = False) -> None:
        """`by_somebody_else`: it is a 403 that does not read like the desk's, such as a proxy's."""
        super().__init__(message)
        self.by_somebody_else = by_somebody_else


class WrongSpool(KeyRefused):
    """The spool is another agent's. Give each agent a file of its own, with `AMENDS_SPOOL`."""


class Refused(AmendsError):
    """The desk does not accept what was sent (RFC 9457). `problem` says which part and why."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(f"{status}: {in_words(problem)}")
        self.status = status
        self.problem = problem

    @property
    def is_the_desks(self) -> bool:
        """Whether the desk itself says so: a proxy's page names no kind of problem."""
        return "type" in self.problem


class TooLarge(AmendsError):
    """A statement is above the limits of the wire format. Name large values by reference."""


class Unfit(AmendsError, masking.Unfit):
    """An argument tells too little of itself, or is no text that a database keeps: what people
    approve would not be what runs. The call was not made; give it as the text says.
    """


class SpoolFull(AmendsError):
    """Too much waits to be sent. Nothing more is done, since it could not be recorded."""


class MissingOutcome(AmendsError):
    """The body of an action ended without saying how it went. Call `succeeded` or `failed`."""


class NoRun(AmendsError):
    """A tool was called outside any run. Open one with `with desk.run(...)`."""


class Terminated(SystemExit):
    """The process was asked to end (SIGTERM): calls and runs say so on their way out."""
