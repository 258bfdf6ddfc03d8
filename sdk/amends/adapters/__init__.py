"""Adapters: the agent's framework calls its tools through the desk, and no tool is rewritten.

One module for each framework, imported by its name (`amends.adapters.langchain`), which needs the
framework that it is for. Each fails closed: whatever goes wrong with the desk or in here, the tool
is not called.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from uuid import uuid4

from amends.client import Desk
from amends.drivers import AsyncDriver, Driver, Steps, awaits, blocking, waits
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
    Refused,
    SpoolFull,
    Stopped,
    TooLarge,
    Unfit,
)
from amends.policy import catalogued_class
from amends.protocol.canonical import canonical
from amends.protocol.masking import masked
from amends.protocol.vocabulary import WITHOUT_EFFECT
from amends.runs import Run, current_run
from amends.tools import EFFECT_CLASS, Declaration, Performed
from amends.values import asked_for

# What means that this call was not made. The model may go on without it, but for a Stopped, which
# is a Denied: the run is over (`is_over`).
NOT_MADE = (
    ApprovalTimeout, ArgumentsChanged, Compensated, Denied, DeskUnreachable, InDoubt, InProgress,
    KeyRefused, KeyReused, Refused, SpoolFull, TooLarge, Unfit,
)  # fmt: skip

# Of a tool that is given to an adapter a second time: it would be answered by its own no.
TWICE = "{} is behind the desk already: asked for twice, it would wait for itself"

# Of what is no tool that runs in this process.
ELSEWHERE = "{!r} does not run here: it would go past the desk"


log = logging.getLogger("amends")

ALIKE = 0.85
"""From which likeness on, of 0 to 1, one name may be another one that is misspelled."""
DECLARED = "what is declared is a mapping from names of tools to amends.declare(...)"


@dataclass(frozen=True)
class GatedTools:
    """The tools of one framework, behind one desk.

    `declared` says of tools, by name, what the desk should know of them (`amends.declare`); a tool
    that is not declared is asked for all the same, without a target. `repeatable` names tools that
    may be called twice with the same arguments in one run and do it twice: of all others that have
    an effect the second such call is answered with the first one's result, since a model that says
    it again is far more often repeating itself.
    """

    desk: Desk
    declared: Mapping[str, Declaration] = field(default_factory=dict)
    repeatable: frozenset[str] = frozenset()
    wait_seconds: float | None = None
    _missed: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """TypeError where `declared` is nothing that could be looked up: what a tool changes would
        be told of no call.
        """
        if not isinstance(self.declared, Mapping):
            raise TypeError(f"{DECLARED}, not a {type(self.declared).__name__}")
        for name, said in self.declared.items():
            if not isinstance(said, Declaration):
                raise TypeError(f"{DECLARED}: of {name!r} it is a {type(said).__name__}")

    def calling(
        self,
        name: str,
        args: Mapping[str, Any],
        call_id: str | None,
        call: Callable[[Mapping[str, Any]], Any],
        *,
        told: Callable[[Any], Any] | None = None,
        wait_seconds: float | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Steps[Performed]:
        """One call of a tool in the current run. Raises what `NOT_MADE` names, Stopped, NoRun, and
        whatever the tool raises. `call` is handed the arguments that the tool is to be called with:
        an approver may have changed them. `call_id` is the framework's own name of the call: where
        it has none, only what reads is done anew. `schema` is the JSON Schema of the tool's
        arguments, where it has one.
        """
        run = current_run()
        declaration = self.declared.get(name, Declaration())
        yield from self.desk.meeting()
        found = declaration.effect_class or catalogued_class(self.desk.policy, name) or EFFECT_CLASS
        if found not in WITHOUT_EFFECT and name not in self.declared:
            self._warn_of(name)
        anew = found in WITHOUT_EFFECT or (name in self.repeatable and call_id)
        limit = self.wait_seconds if wait_seconds is None else wait_seconds
        how: dict[str, Any] = {"effect_class": found, "wait_seconds": limit}
        if schema and "schema" not in declaration.how:
            how["schema"] = schema
        if "op" not in declaration.how:
            digest = "" if anew else (yield from blocking(args_digest, run, args))
            how["op"] = f"{name} {digest or call_id or uuid4().hex}"
        try:
            return (yield from declaration.calling(run, name, args, call, told=told, **how))
        except NOT_MADE as error:
            if error.passed and not is_over(error):  # it is of a call that this tool made
                raise AmendsError(f"{name} was called, and then: {error}") from error
            raise

    def _warn_of(self, name: str) -> None:
        """Say once where a name that is declared is spelled nearly so: of this tool nothing is."""
        alike = () if name in self._missed else get_close_matches(name, self.declared, 1, ALIKE)
        if alike:
            log.warning("nothing is declared of %s: is it %r, misspelled?", name, alike[0])
        self._missed.add(name)

    call, acall = waits(calling), awaits(calling)

    @property
    def driver(self) -> Driver:
        return self.desk.driver

    @property
    def async_driver(self) -> AsyncDriver:
        return self.desk.async_driver


def not_made(error: AmendsError | str) -> str:
    """For the model: that the call was not made, and why."""
    return f"This call was NOT made: {error}"


def is_over(error: BaseException) -> bool:
    """Whether the desk has stopped the run: then no message to a model is of use."""
    return isinstance(error, Stopped)


NEVER_REACHED = "The desk was never reached, and without its key no call is known again."


def args_digest(run: Run, args: Mapping[str, Any]) -> str:
    """The same for the same arguments, whatever the policy masks meanwhile; under the workspace's
    key, so that no value is to be found by trying all. Raises DeskUnreachable where that was never
    had: a call that is made without it would be another one from then on, and be made again.
    """
    away = run.desk.need_masking_key()
    key = run.desk.masking_key
    if key is None and run.desk.agent is None:
        raise DeskUnreachable(f"{away} {NEVER_REACHED}" if away else NEVER_REACHED) from away
    told = masked(asked_for(dict(args)), (), key, nuls=False)
    if key is None:
        return hashlib.sha256(canonical(told)).hexdigest()[:32]
    return key.mark("arguments", told)
