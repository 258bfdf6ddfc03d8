"""Tools: plain functions whose every call is an action of the current run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from amends.actions import Action
from amends.drivers import Steps, called
from amends.errors import NoEffect
from amends.runs import EffectClass, current_run
from amends.values import UNSET

Tool = Callable[..., Any]
Said = Callable[..., Any]


@dataclass(frozen=True)
class _Declared:
    """What is said of a tool, and the steps of one call of it."""

    name: str
    function: Tool
    target: tuple[str, str] | Said | None
    before: Said | None
    after: Said | None
    verify: Said | None
    undo: Said | Mapping[str, Any] | None
    tries: int
    how: Mapping[str, Any]

    def calling(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps[Any]:
        """Up to `tries` actions of the current run, each a call of the function."""
        given = self._given(args, kwargs)
        run = current_run()
        for attempt in range(1, self.tries + 1):
            before = (yield from called(self.before, **given)) if self.before else UNSET
            action = run.action(
                self.name,
                target=_target(self.target, given),
                args=given,
                before=before,
                undo=None if self._undo_knows_result else self._undo(given),
                **({**self.how, "retry": "tool"} if attempt > 1 else self.how),
            )
            try:
                return (yield from self._once(action, args, kwargs, given))
            except NoEffect as refusal:
                if not refusal.retryable or attempt == self.tries:
                    raise
        raise AssertionError("the last try returns or raises")

    def _once(
        self, action: Action, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any]
    ) -> Steps[Any]:
        yield from action.beginning()
        try:
            result = yield from action.performing(self.function, *args, **kwargs)
            if action.replayed:
                return result
            seen = (yield from called(self.after, result, **given)) if self.after else UNSET
            undo = self._undo(given, result) if self._undo_knows_result else None
            yield from action.succeeding(result, after=seen, undo=undo)
        except BaseException as error:
            yield from action.leaving(error)
            raise
        if self.verify is not None:
            yield from action.verifying((yield from called(self.verify, result, **given)))
        return result

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = inspect.signature(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    @functools.cached_property
    def _undo_knows_result(self) -> bool:
        """Whether the undo wants what the call answered: its first parameter is `result`, which
        the function itself does not have.
        """
        if not callable(self.undo):
            return False
        first = next(iter(inspect.signature(self.undo).parameters), "")
        return first == "result" and first not in inspect.signature(self.function).parameters

    def _undo(self, given: dict[str, Any], *result: Any) -> Mapping[str, Any] | None:
        if not callable(self.undo):
            return self.undo
        found: Mapping[str, Any] = self.undo(*result, **given)
        return found


def tool(
    name: str,
    *,
    target: tuple[str, str] | Said | None = None,
    before: Said | None = None,
    after: Said | None = None,
    verify: Said | None = None,
    effect_class: EffectClass = "external_reversible",
    undo: Said | Mapping[str, Any] | None = None,
    tries: int = 1,
    **how: Any,
) -> Callable[[Tool], Tool]:
    """Decorate a function. A call that was made before gives its first result and runs nothing.

    `target` is a type and a template over the arguments (`("reservation", "{reservation}")`) or a
    function of the arguments. `before`, `after`, `verify` and `undo` are functions of the
    arguments; `after` and `verify` get the result first, and so does an `undo` whose first
    parameter is `result`: it is then suggested once the call has succeeded. `verify` reads back and
    gives checks, as for `Action.verified`. Of `tries`, only those that end in a retryable
    `NoEffect` are followed by another. `how` holds more of `Run.action`, such as `op`, `saga`,
    `risk` or `time_limit_seconds`.

    A coroutine function stays one: its calls are awaited, and `before`, `after` and `verify` may be
    coroutine functions, too.
    """

    def decorate(function: Tool) -> Tool:
        declared = _Declared(
            name, function, target, before, after, verify, undo, tries,
            {**how, "effect_class": effect_class},
        )  # fmt: skip
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                return await current_run().async_driver.run(declared.calling(args, kwargs))

            return call_async

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return current_run().driver.run(declared.calling(args, kwargs))

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


def _target(target: tuple[str, str] | Said | None, given: dict[str, Any]) -> Any:
    if target is None or callable(target):
        return target(**given) if callable(target) else None
    kind, template = target
    return (kind, template.format(**given))
