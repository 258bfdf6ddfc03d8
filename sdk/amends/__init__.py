"""Amends for agents: act through the desk, and what went wrong can be made good.

`connect()` gives the desk, `desk.run(...)` opens a run, `run.action(...)` or `@desk.tool(...)`
makes one call. docs/agents.md tells the rest.
"""

from amends.actions import Action
from amends.client import Desk, connect
from amends.errors import (
    AmendsError,
    ApprovalTimeout,
    ArgumentsChanged,
    Compensated,
    Denied,
    DeskUnreachable,
    InDoubt,
    InProgress,
    KeyRefused,
    KeyReused,
    MissingOutcome,
    NoEffect,
    NoRun,
    NotTheDesk,
    Refused,
    SpoolFull,
    Stopped,
    Terminated,
    Throttled,
    TooLarge,
    Unfit,
    WrongSpool,
)
from amends.runs import Run, current_run
from amends.spool import CannotUse
from amends.tools import Declaration, declare, no_undo, undo

__all__ = [
    "Action",
    "AmendsError",
    "ApprovalTimeout",
    "ArgumentsChanged",
    "CannotUse",
    "Compensated",
    "Declaration",
    "Denied",
    "Desk",
    "DeskUnreachable",
    "InDoubt",
    "InProgress",
    "KeyRefused",
    "KeyReused",
    "MissingOutcome",
    "NoEffect",
    "NoRun",
    "NotTheDesk",
    "Refused",
    "Run",
    "SpoolFull",
    "Stopped",
    "Terminated",
    "Throttled",
    "TooLarge",
    "Unfit",
    "WrongSpool",
    "connect",
    "current_run",
    "declare",
    "no_undo",
    "undo",
]
