"""What a failed call says: to people, and of the connection's health."""

from __future__ import annotations

from connectors.addresses import NotSent, OutOfTime
from connectors.contract import CannotRead, CannotRestore, Refused


def said(failure: BaseException) -> str:
    """Our own exceptions speak in sentences; others are named, too."""
    text = str(failure)
    if isinstance(failure, Refused | CannotRead | OutOfTime):
        return text
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def tells(failure: BaseException) -> bool:
    """A refusal is an answer; only one that was never sent tells of a connection that is down."""
    return isinstance(failure, NotSent) or not isinstance(failure, Refused | CannotRestore)
