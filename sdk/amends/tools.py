"""Tools: plain functions whose every call is an action of the current run."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amends.actions import Action
from amends.drivers import Pause, Steps, called, is_coroutine_function, refuse_lazy
from amends.errors import AmendsError, ArgumentsChanged, NoEffect, moment
from amends.protocol.vocabulary import EffectClass
from amends.runs import Run, current_run
from amends.values import UNSET, as_targets, as_text, asked_for, plain

Tool = Callable[..., Any]
Callback = Callable[..., Any]
EFFECT_CLASS: EffectClass = "external_reversible"
OTHER_TARGET = (
    "an approver changed the arguments, and with these the call would change something else than"
    " was asked for: it is not made"
)
OTHER_NAMES = "an approver changed which arguments there are, and the call is not made"


@dataclass(frozen=True)
class Declaration:
    """What the desk should know of a tool, and the steps of one call of it. See `declare`."""

    target: tuple[str, str] | Callback | None = None
    before: Callback | None = None
    after: Callback | None = None
    verify: Callback | None = None
    undo: Callback | Mapping[str, Any] | None = None
    effect_class: EffectClass | None = None
    how: Mapping[str, Any] = field(default_factory=dict)

    def calling(
        self,
        run: Run,
        name: str,
        given: Mapping[str, Any],
        call: Callable[[Mapping[str, Any]], Any],
        *,
        told: Callable[[Any], Any] | None = None,
        **how: Any,
    ) -> Steps[Performed]:
        """One action of a run: ask, call, read what is there now, and say it.

        `given` are the arguments by name; `call` is handed those that it is to be made with, which
        an approver may have changed; `told` makes of what the call returns what is recorded as its
        result; `how` comes before what was declared.
        """
        before = (yield from _of(self.before, given)) if self.before else UNSET
        knows_result = "result" not in given and self._undo_knows_result
        action = run.action(
            name,
            target=_target(self.target, given),
            args=given,
            before=before,
            undo=None if knows_result else self._undo(given),
            **(
                {
                    "effect_class": self.effect_class,
                    "accepts_changed_arguments": True,
                }
                | {**self.how}
                | how
            ),
        )
        yield from action.beginning()
        is_made = False
        try:
            yield Pause(0)  # a task that was cancelled meanwhile hears of it here
            is_made, given = True, action.args
            if action.is_changed:
                self._check_target(action.targets, given)
            answer = yield from _making(action, functools.partial(call, given))
            if action.replayed:
                return Performed(answer, is_first=False)
            refuse_lazy(answer, name)
            result = yield from self._telling(action, answer, given, told)
            if self.verify is not None:
                yield from action.verifying((yield from _of(self.verify, given, result)))
        except GeneratorExit:  # its event loop is gone: the desk notices the silence
            raise
        except BaseException as error:
            if not is_made:
                words = "cancelled before the call was made"
                yield from action.failing(words, outcome="no_effect")
            yield from action.leaving(error)
            action.run.failed_action = action.id  # also where only what is read after it raised
            raise
        return Performed(answer, is_first=True)

    def _telling(
        self,
        action: Action,
        answer: Any,
        given: Mapping[str, Any],
        told: Callable[[Any], Any] | None,
    ) -> Steps[Any]:
        """Say that the call was made, and what it left. It was, also where that cannot be told."""
        result, knows_result = answer, "result" not in given and self._undo_knows_result
        try:
            result = told(answer) if told else answer
            seen = (yield from _of(self.after, given, result)) if self.after else UNSET
            undo = self._undo(given, result) if knows_result else None
            if action.is_changed and not knows_result:
                undo = self._undo(given)  # what was planned undoes another call
        except GeneratorExit:
            raise
        except BaseException as error:
            yield from action.succeeding(result)
            if isinstance(error, NoEffect):  # it says that of itself
                raise AmendsError(f"{action.tool} was called, and then: {error}") from error
            raise
        yield from action.succeeding(result, after=seen, undo=undo)
        return result

    def _check_target(self, targets: list[dict[str, str]], changed: Mapping[str, Any]) -> None:
        """ArgumentsChanged where the call would change something else than was asked for."""
        try:
            is_same = as_targets(_target(self.target, changed)) == targets
        except Exception as error:
            raise ArgumentsChanged(f"{OTHER_TARGET} ({error})") from error
        if not is_same:
            raise ArgumentsChanged(OTHER_TARGET)

    @functools.cached_property
    def _undo_knows_result(self) -> bool:
        """Whether the undo wants what the call answered: its first parameter is `result`."""
        if not callable(self.undo):
            return False
        return next(iter(inspect.signature(self.undo).parameters), "") == "result"

    def _undo(self, given: Mapping[str, Any], *result: Any) -> Mapping[str, Any] | None:
        if not callable(self.undo):
            return self.undo
        found: Mapping[str, Any] = self.undo(*result, **given)
        return found


@dataclass
class _UnderWay:
    """The call of a tool that is made: `args` as they were before it could change them. Whatever it
    leaves behind in other tasks and threads knows that it `is_over`. Who has the `turn` is the same
    call, wrapped once more; a second one is another.
    """

    action: Action
    args: str = ""
    is_over: bool = False
    turn: threading.Lock = field(default_factory=threading.Lock)


_made: ContextVar[_UnderWay | None] = ContextVar("amends_made", default=None)


def _making(action: Action, call: Callable[[], Any]) -> Steps[Any]:
    made = _UnderWay(action)
    with contextlib.suppress(Exception):  # such as cannot be told were changed since: it is refused
        made.args = as_text(plain(action.args))
    return (yield from _while(made, action.making(call)))


def _made_within(made: _UnderWay, call: Callable[[], Any]) -> Steps[Any]:
    began = moment()
    try:
        return (yield from _while(_UnderWay(made.action, made.args), called(call)))
    except NoEffect as refusal:
        if refusal.told < began:  # else an action within it says so, of itself
            made.turn.release()
        raise


def _while(made: _UnderWay, steps: Steps[Any]) -> Steps[Any]:
    outer = _made.set(made)
    try:
        return (yield from steps)
    finally:
        made.is_over = True
        with contextlib.suppress(ValueError):  # its event loop is gone
            _made.reset(outer)


def _outer_of(run: Run, name: str, *given: Mapping[str, Any]) -> _UnderWay | None:
    """This very call where it is under way, with arguments as they were given or with defaults: a
    tool that was wrapped twice is asked for once, for two actions of one call would be undone
    twice. It is the caller's turn then.
    """
    made = _made.get()
    if made is None or made.is_over or made.action.run is not run or made.action.tool != name:
        return None
    is_same = made.args in {as_text(asked_for(one)) for one in given}
    return made if is_same and made.turn.acquire(blocking=False) else None


def _of(said: Callback, given: Mapping[str, Any], *result: Any) -> Steps[Any]:
    """What it says of a call, whatever the arguments of that are called."""
    return (yield from called(functools.partial(said, *result, **given)))


class Performed(NamedTuple):
    """What a call answered: now, or in its masked form when it was first made."""

    answer: Any
    is_first: bool


def declare(
    *,
    target: tuple[str, str] | Callback | None = None,
    before: Callback | None = None,
    after: Callback | None = None,
    verify: Callback | None = None,
    effect_class: EffectClass | None = None,
    undo: Callback | Mapping[str, Any] | None = None,
    **how: Any,
) -> Declaration:
    """What the desk should know of a tool that a framework calls; the arguments are those of
    `tool`. Without an `effect_class` that of the workspace's catalogue counts.
    """
    return Declaration(target, before, after, verify, undo, effect_class, how)


def tool(name: str, *, tries: int = 1, **declared: Any) -> Callable[[Tool], Tool]:
    """Decorate a function. A call that was made before gives its first result and runs nothing.

    `target` is a type and a template over the arguments (`("reservation", "{reservation}")`) or a
    function of the arguments. `before`, `after`, `verify` and `undo` are functions of the
    arguments; `after` and `verify` get the result first, and so does an `undo` whose first
    parameter is `result`: it is then suggested once the call has succeeded. `verify` reads back and
    gives checks, as for `Action.verified`. Of `tries`, only those that end in a retryable
    `NoEffect` are followed by another. More of `Run.action` may be given, such as `effect_class`,
    `op`, `saga`, `risk` or `time_limit_seconds`.

    A coroutine function stays one: its calls are awaited, and `before`, `after` and `verify` may be
    coroutine functions, too.
    """
    declaration = declare(**declared)

    def decorate(function: Tool, *, is_method: bool | None = None) -> Tool:
        if isinstance(function, classmethod | staticmethod):
            is_of_class = isinstance(function, classmethod)
            return type(function)(decorate(function.__func__, is_method=is_of_class))
        refuse_lazy(function)
        signature, is_async = inspect.signature(function), is_coroutine_function(function)
        if _is_method(function, signature) if is_method is None else is_method:
            return _method(function, name, {"tries": tries, **declared})
        schema = declared.get("schema") or _schema_of(signature)

        def calling(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps[Any]:
            bound = signature.bind(*args, **kwargs)
            explicit = dict(bound.arguments)
            bound.apply_defaults()
            given = dict(bound.arguments)
            call = functools.partial(_acall if is_async else _call, function, bound)
            run, how = current_run(), dict[str, Any](schema=schema)
            if outer := _outer_of(run, name, explicit, given):
                return (yield from _made_within(outer, functools.partial(call, given)))
            for attempt in range(1, tries + 1):
                try:
                    return (yield from declaration.calling(run, name, given, call, **how)).answer
                except NoEffect as refusal:
                    if not refusal.retryable or refusal.passed or attempt == tries:
                        raise
                how["retry"] = "tool"
            raise AssertionError("the last try returns or raises")

        if is_async:

            @functools.wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                return await current_run().async_driver.run(calling(args, kwargs))

            return call_async

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return current_run().driver.run(calling(args, kwargs))

        return call

    return decorate


def _is_method(function: Tool, signature: inspect.Signature) -> bool:
    """By its first parameter. A function that stands in no class may have a `cls` of its own, such
    as that of a seat, which is an argument as any other.
    """
    first = next(iter(signature.parameters), "")
    within, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    is_in_class = within != "" and not within.endswith("<locals>")
    return first == "self" or (first == "cls" and is_in_class)


def _method(function: Tool, name: str, declared: Mapping[str, Any]) -> Tool:
    """A tool that is a method: whose it is, is no argument, and nothing that people approve."""
    owner = next(iter(inspect.signature(function).parameters))

    def bound(whose: Any) -> Any:
        said: dict[str, Any] = {
            what: functools.partial(how, **{owner: whose})
            if callable(how) and owner in inspect.signature(how).parameters
            else how
            for what, how in declared.items()
        }
        return tool(name, **said)(functools.partial(function, whose))

    @functools.wraps(function)
    def call(whose: Any, /, *args: Any, **kwargs: Any) -> Any:
        return bound(whose)(*args, **kwargs)

    @functools.wraps(function)
    async def call_async(whose: Any, /, *args: Any, **kwargs: Any) -> Any:
        return await bound(whose)(*args, **kwargs)

    return call_async if inspect.iscoroutinefunction(function) else call


def _call(function: Tool, bound: inspect.BoundArguments, found: Mapping[str, Any]) -> Any:
    now = _rebound(bound, found)
    return function(*now.args, **now.kwargs)


async def _acall(function: Tool, bound: inspect.BoundArguments, found: Mapping[str, Any]) -> Any:
    now = _rebound(bound, found)
    return await function(*now.args, **now.kwargs)


JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean",
              "list": "array", "dict": "object", "None": "null"}  # fmt: skip


def _schema_of(signature: inspect.Signature) -> dict[str, Any]:
    """Which arguments a function takes, as far as its annotations tell."""
    properties, required = dict[str, Any](), list[str]()
    for name, one in signature.parameters.items():
        kind = one.annotation
        text = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
        if kind is inspect.Parameter.empty:
            properties[name] = {}
        elif text in JSON_TYPES:
            properties[name] = {"type": JSON_TYPES[text]}
        else:
            properties[name] = {"$comment": kind if isinstance(kind, str) else str(kind)}
        if one.default is inspect.Parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _rebound(bound: inspect.BoundArguments, found: Mapping[str, Any]) -> inspect.BoundArguments:
    if found.keys() != bound.arguments.keys():
        raise ArgumentsChanged(OTHER_NAMES)
    return inspect.BoundArguments(bound.signature, OrderedDict(found))


def undo(operation: str, **args: Any) -> dict[str, Any]:
    """The twin of an action: `connection.operation` and JSON arguments known before the call."""
    connection, _, name = operation.rpartition(".")
    if not connection or not name:
        raise ValueError("name the twin as connection.operation")
    return {"connection": connection, "operation": name, "args": args}


def no_undo(reason: str) -> dict[str, Any]:
    """Say that nothing undoes this action, and why; people read it before they allow it."""
    return {"none": reason}


def _target(target: tuple[str, str] | Callback | None, given: Mapping[str, Any]) -> Any:
    if target is None or callable(target):
        return target(**given) if callable(target) else None
    kind, template = target
    return (kind, template.format(**given))
