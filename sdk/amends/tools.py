"""Tools: plain functions whose every call is an action of the current run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from amends.actions import Action
from amends.errors import NoEffect
from amends.runs import EffectClass, current_run
from amends.values import UNSET, Unset

Tool = Callable[..., Any]
Said = Callable[..., Any]


def tool(
    name: str,
    *,
    target: tuple[str, str] | Said | None = None,
    before: Said | None = None,
    after: Said | None = None,
    effect_class: EffectClass = "external_reversible",
    undo: Said | Mapping[str, Any] | None = None,
    tries: int = 1,
    **how: Any,
) -> Callable[[Tool], Tool]:
    """Decorate a function. A call that was made before gives its first result and runs nothing.

    `target` is a type and a template over the arguments (`("reservation", "{reservation}")`) or a
    function of the arguments. `before`, `after` and `undo` are functions of the arguments; `after`
    gets the result first. Of `tries`, only those that end in a retryable `NoEffect` are followed by
    another. `how` holds more of `Run.action`, such as `op`, `saga` or `risk`.
    """

    def decorate(function: Tool) -> Tool:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = dict(bound.arguments)
            for attempt in range(1, tries + 1):
                action = current_run().action(
                    name,
                    target=_target(target, given),
                    args=given,
                    before=before(**given) if before else UNSET,
                    undo=undo(**given) if callable(undo) else undo,
                    effect_class=effect_class,
                    **({**how, "retry": "tool"} if attempt > 1 else how),
                )
                try:
                    return _perform(
                        action, functools.partial(function, *args, **kwargs), after, given
                    )
                except NoEffect as refusal:
                    if not refusal.retryable or attempt == tries:
                        raise
            raise AssertionError("the last try returns or raises")

        return call

    return decorate


def undo(operation: str, **args: Any) -> dict[str, Any]:
    """The twin of an action: `connection.operation` and JSON arguments known before the call."""
    connection, _, name = operation.rpartition(".")
    if not connection or not name:
        raise ValueError("name the twin as connection.operation")
    return {"connection": connection, "operation": name, "args": args}


def no_undo(reason: str) -> dict[str, Any]:
    """Say that nothing undoes this action, and why; people read it before they allow it."""
    return {"none": reason}


def _perform(
    action: Action, call: Callable[[], Any], after: Said | None, given: dict[str, Any]
) -> Any:
    with action:
        result = action.perform(call)
        if not action.replayed:
            seen: Any | Unset = after(result, **given) if after else UNSET
            action.succeeded(result, after=seen)
        return result


def _target(target: tuple[str, str] | Said | None, given: dict[str, Any]) -> Any:
    if target is None or callable(target):
        return target(**given) if callable(target) else None
    kind, template = target
    return (kind, template.format(**given))
