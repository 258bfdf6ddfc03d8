"""Conditions: CEL over one call, with questions about the request, the run and the past.

A question such as `known(args.iban, by: "agent")` is no function of the evaluator. It is taken out
of the text when the condition is compiled and stands there as a name, so that what the desk has to
look up is known before anything is evaluated: `Condition.lookups` says it, whoever judges gathers
the answers in one statement (approvals/gate/gathering.py), and the evaluator sees values.

A question that was not answered, or whose answer cannot be told, is a name that is not known: the
condition cannot be evaluated, and counts as met where that is the careful reading.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, NamedTuple

from amends.protocol.masking import holds_bare
from approvals.policy import argument_shapes, comparisons, condition_types
from approvals.policy.expressions import (
    FUNCTIONS,
    STRINGS,
    CannotCompile,
    CannotEvaluate,
    Expression,
    at,
    brackets,
    near,
)

QUESTIONS_MAX = 8
TARGETS_MAX = 20
"""Over so many targets of one call a condition that names `target` is evaluated."""
WINDOW_SECONDS_MAX = 31 * 86400
WINDOW_SECONDS_MIN = 60
SECONDS = {"m": 60, "h": 3600, "d": 86400}
FINDINGS = "findings"
"""The member of the facts that holds the answers, by the keys of their questions."""
STATES = "states"
"""That which holds `before` and `after` of each of several targets."""

WRITTEN = ("request", "goal", "on_behalf_of", "rejected_before", "read_untrusted", "working_hours")
"""Names that are looked up, too, and only where a condition has them."""
ARGUMENT_FACTS = frozenset({"tool", "args", "target", "targets", "agent", "labels", "before"})
TAKEN = re.compile(r"(?<![\w.])ask_\d")
LISTED = re.compile(r"(?<![\w.\])])([A-Za-z_]\w*(?:\.\w+)*)\s+in\s+lists\.(\w+)\b(?!\s*[.(\[])")
"""`args.iban in lists.payees`: a value by its names, and a list."""
LISTS = re.compile(r"(?<![\w.])lists\b")
CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\(")
OPTION = re.compile(r"\s*([a-z]+)\s*:(?!:)")
WORD = re.compile(r"""\s*(?:"([^"\\]*)"|'([^'\\]*)'|([a-z]+(?:\.\w+)*))\s*""")
GLOB = r""""[^"\\,]*"|'[^'\\,]*'"""
GLOBS = re.compile(rf"\s*\[\s*(?:{GLOB})(?:\s*,\s*(?:{GLOB}))*\s*\]\s*")
DURATION = re.compile(r"(\d{1,5})\s*([mhd])")
CAPPED = re.compile(
    r"(?:^|[(?:]|&&|\|\|)\s*(ask_\d)\s*(>=?)\s*(\d{1,15}(?:\.\d{1,6})?)\s*(?=$|[)?:]|&&|\|\|)"
)
"""A question's answer by itself, which is to be above a number: `sum(…) > 100` as it is kept."""


class LookupResult(NamedTuple):
    """What was found: a value for the evaluator, and the fact in words for people.

    The words name no value of the call: they are kept when what was said in a run is erased. Most
    calls go on and nobody reads them, so that what takes long to say may be said when it is read.
    """

    value: Any
    say: str | Callable[[], str] = ""

    @property
    def words(self) -> str:
        return self.say if isinstance(self.say, str) else self.say()


UNKNOWN = object()
"""The value of an answer that cannot be told."""


Options = Mapping[str, Sequence[str] | None]
"""What may stand beside the value, each with its choices; None: a time such as "24h"."""
TOOLS: Sequence[str] = ()
"""The choices of an option that is a glob of tools, or a list of such."""
TOOLS_MAX = 10

PER = ("workspace", "target", "agent", "person", "tool", "run")
PATH = re.compile(r"args(?:\.\w+)+")

QUESTIONS: Mapping[str, Options] = {
    "mentioned": {},
    "changed": {},
    "tainted": {},
    "called": {},
    "looked_up": {"by": TOOLS, "or": ("mentioned",)},
    "known": {"by": ("workspace", "agent", "person"), "for": None},
    "lookalike": {},
    "unusual": {},
    "count": {"per": PER, "over": None},
    "sum": {"per": PER, "over": None},
}
IN_LIST = "in"
"""The function of the question whether a value stands on a list."""
COUNTING = frozenset({"count", "sum"})
LOOKED_UP = "looked_up"
REMEMBERING = COUNTING | {"known", "lookalike"}
"""What is looked up always, since a call that nobody remembers would be free."""
WITHOUT_VALUE = frozenset({"count"})


@dataclass(frozen=True, slots=True)
class Lookup:
    """One question of one condition. The same `key` is the same question of the same call."""

    name: str
    function: str
    source: str
    argument: Expression | None = None
    options: tuple[tuple[str, str], ...] = ()
    glob: str = ""

    @property
    def key(self) -> str:
        return f"{self.glob} {self.source}"

    def option(self, name: str, default: str = "") -> str:
        for known, word in self.options:
            if known == name:
                return word
        return default

    @property
    def tools(self) -> tuple[str, ...]:
        """The globs of the tools by which the value is to have been looked up."""
        return tuple(self.option("by").split(", "))

    @property
    def subject(self) -> str:
        """The value that is asked about, as the rule names it."""
        return self.argument.source if self.argument else ""


class Cap(NamedTuple):
    """What a sum or a count may come to before a comparison of it is true."""

    limit: Decimal
    is_inclusive: bool
    """Whether it may come to the limit itself: `> 100` is false of 100, `>= 100` is true."""


class Condition:
    """A compiled condition: an expression, and what must be looked up for it."""

    __slots__ = (
        "_allowed", "_caps", "_compared", "_expression", "_refused", "_rewritten", "lookups",
        "remembering", "source",
    )  # fmt: skip

    def __init__(self, source: str, allowed: frozenset[str]) -> None:
        """Compile `source`, which may name the facts in `allowed`. Raises CannotCompile.

        What stands wrongly in a question is refused of a new document; in a kept one it is a
        function that nobody knew, and the condition cannot be evaluated.
        """
        self.source = source
        self._refused: CannotCompile | None = None
        lookups: list[Lookup] = []
        self._rewritten = source
        try:
            self._rewritten, lookups = _taken_out(source)
            known = allowed | {one.name for one in lookups}
            self._expression = Expression(self._rewritten, known, shown=allowed)
        except CannotCompile as wrong:
            lookups, self._refused = [], wrong
            try:
                self._expression = Expression(source, allowed)
            except CannotCompile:
                raise _meant(source) or wrong from None
        looked_up = [Lookup(one, one, one) for one in WRITTEN if one in self._expression.names]
        self.lookups: tuple[Lookup, ...] = (*lookups, *looked_up)
        self.remembering = _remembering(self.lookups)
        self._caps = _caps(self._rewritten)
        self._allowed = allowed | {one.name for one in lookups}
        self._compared = comparisons.compared_arguments(self._rewritten, self._allowed)

    @property
    def names(self) -> tuple[str, ...]:
        return self._expression.names

    def reads(self, fact: str) -> bool:
        """Whether it looks at this fact, by itself or in the value that a question is about."""
        asked = (one.argument for one in self.lookups if one.argument is not None)
        return fact in self.names or any(fact in one.names for one in asked)

    @property
    def is_remembered(self) -> bool:
        """Whether it asks of memory alone: then it asks whatever the call itself says."""
        return len(self.remembering) == len(self.lookups)

    def check_functions(self) -> None:
        """Raises CannotCompile for what a new document may not have (see Expression), answers that
        are used as what they are not among it.
        """
        if self._refused is not None:
            raise self._refused
        self._expression.check_functions(frozenset(QUESTIONS))
        asked = {one.name: (one.function, one.source) for one in self.lookups}
        condition_types.check(self._rewritten, asked)
        comparisons.check(self._rewritten, self._allowed)

    def of_glob(self, glob: str) -> "Condition":
        """The same under a rule's glob: what counts, and makes known, are calls that it fits."""
        found = object.__new__(Condition)
        for slot in self.__slots__:
            setattr(found, slot, getattr(self, slot))
        found.lookups = tuple(
            replace(one, glob=glob) if one.function in REMEMBERING else one for one in self.lookups
        )
        found.remembering = _remembering(found.lookups)
        return found

    def cap(self, lookup: Lookup) -> Cap | None:
        """Within which this sum or count makes every comparison false that the condition has of
        it; None where it does anything else with it.
        """
        return self._caps.get(lookup.name)

    def evaluate(self, facts: Mapping[str, Any]) -> Any:
        """The value over `facts` and the answers among them. Raises CannotEvaluate alone, of
        which InAnotherShape says that an argument in another shape than what it is compared with
        (`["x"]`, `"false"`) makes a difference.
        """
        if not self.lookups:
            return argument_shapes.evaluate(self._expression, self._compared, facts)
        findings: Mapping[str, LookupResult] = facts.get(FINDINGS) or {}
        seen = dict(facts)
        for one in self.lookups:
            found = findings.get(one.key) or of_call(one, facts)
            if found is not None and found.value is not UNKNOWN:
                seen[one.name] = found.value
        return argument_shapes.evaluate(self._expression, self._compared, seen)

    def of_each_target(self, facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The facts, and where the condition names `target` or its state once for each of several,
        none of which hides behind the first. Raises CannotEvaluate for too many.
        """
        changes = any(one.function == "changed" for one in self.lookups)
        each = each_target(facts, (*self.names, *(["before"] if changes else [])))
        if len(each) > TARGETS_MAX:
            raise CannotEvaluate(f"more than {TARGETS_MAX} targets")
        return each

    def open(self, facts: Mapping[str, Any]) -> tuple[Lookup, ...]:
        """What must be looked up to evaluate it over `facts`; nothing where the call alone says.

        What is remembered is looked up always.
        """
        if self.is_remembered:
            return self.remembering
        try:
            for one in self.of_each_target(facts):
                self.evaluate(one)
        except CannotEvaluate:
            return tuple(one for one in self.lookups if of_call(one, facts) is None)
        return self.remembering

    def told(self, facts: Mapping[str, Any]) -> list[str]:
        """What was found, in words, for those who are asked because of it."""
        findings: Mapping[str, LookupResult] = facts.get(FINDINGS) or {}
        try:
            each = self.of_each_target(facts)
        except CannotEvaluate:
            each = [facts]
        found = (
            findings.get(one.key) or of_call(one, of_one) for one in self.lookups for of_one in each
        )
        words = (one.words for one in found if one is not None)
        return list(dict.fromkeys(one for one in words if one))


def each_target(facts: Mapping[str, Any], names: Iterable[str]) -> list[Mapping[str, Any]]:
    """The facts, and where one of these names is of a target once for each of several; what is not
    told of a target's state is not known.
    """
    targets, states = facts.get("targets") or (), facts.get(STATES)
    of_each = {"target"} if states is None else {"target", "before", "after"}
    if of_each.isdisjoint(names) or len(targets) <= 1:
        return [facts]
    if states is None:
        return [{**facts, "target": one} for one in targets]
    known = {name: one for name, one in facts.items() if name not in of_each}
    told = zip(targets, chain(states, repeat({})), strict=False)
    return [{**known, **state, "target": one} for one, state in told]


def _remembering(lookups: Iterable[Lookup]) -> tuple[Lookup, ...]:
    return tuple(one for one in lookups if one.function in REMEMBERING)


def _caps(rewritten: str) -> dict[str, Cap]:
    """The caps of the questions that are only held against numbers; each has a name of its own."""
    found = CAPPED.findall(_bare(rewritten))
    return {name: Cap(Decimal(number), sign == ">") for name, sign, number in found}


def of_call(lookup: Lookup, facts: Mapping[str, Any]) -> LookupResult | None:
    """The answer to a question that needs nothing but the call itself; None for all others."""
    if lookup.function != "changed" or lookup.argument is None:
        return None
    try:
        name = lookup.argument.evaluate({})
    except CannotEvaluate:
        return LookupResult(UNKNOWN, "")
    before, args = facts.get("before"), facts.get("args")
    if not (isinstance(before, dict) and isinstance(args, dict)) or name not in before:
        return LookupResult(UNKNOWN, f"What {name} was before is not told")
    if name in args and holds_bare([args[name], before[name]]):
        return LookupResult(UNKNOWN, f"Whether {name} changes cannot be told, for it is masked")
    changes = name in args and args[name] != before[name]
    return LookupResult(changes, f"{name} {'changes' if changes else 'stays as it is'}")


# Taking questions out of the text.


def _bare(source: str) -> str:
    return STRINGS.sub(lambda found: " " * len(found[0]), source)


def _taken_out(source: str) -> tuple[str, list[Lookup]]:
    """The text with a name, as long as it was, in the place of each question."""
    bare = _bare(source)
    if TAKEN.search(bare):
        raise CannotCompile("names such as “ask_0” are the desk's own")
    calls = [one for one in CALLED.finditer(bare) if one[1] in QUESTIONS]
    if not calls and not LISTS.search(bare):
        return source, []
    pairs = {start: (kind, end) for kind, start, end in brackets(bare)}
    loops = [(start, end) for start, (kind, end) in pairs.items() if kind]
    found: list[Lookup] = []
    done = 0
    for call in calls:
        place = at(bare, call.start())
        opening = call.end() - 1
        if opening not in pairs:
            raise CannotCompile("this bracket is not closed", *at(bare, opening))
        if any(start < call.start() < end for start, end in loops):
            raise CannotCompile(f"“{call[1]}” in a loop: give it the whole list instead", *place)
        if len(found) == QUESTIONS_MAX:
            raise CannotCompile(f"more than {QUESTIONS_MAX} questions", *place)
        done = pairs[opening][1] + 1
        found.append(_lookup(f"ask_{len(found)}", call[1], source, (opening + 1, done - 1)))
        span = source[call.start() : done]
        blank = re.sub(r"[^\n]", " ", span[len("ask_0") :])
        source = source[: call.start()] + found[-1].name + blank + source[done:]
    return _lists_taken_out(source, found, loops)


def _lists_taken_out(
    source: str, found: list[Lookup], loops: Sequence[tuple[int, int]]
) -> tuple[str, list[Lookup]]:
    """The same of values that are looked for on a list."""
    for one in LISTED.finditer(_bare(source)):
        place = at(source, one.start())
        if any(start < one.start() < end for start, end in loops):
            raise CannotCompile("a list in a loop: look for the whole value instead", *place)
        if len(found) == QUESTIONS_MAX:
            raise CannotCompile(f"more than {QUESTIONS_MAX} questions", *place)
        name, argument = f"ask_{len(found)}", _argument(one[1], place)
        written = f"{one[1]} in lists.{one[2]}"
        found.append(Lookup(name, IN_LIST, written, argument, (("list", one[2]),)))
        blank = re.sub(r"[^\n]", " ", one[0][len(name) :])
        source = source[: one.start()] + name + blank + source[one.end() :]
    if left := LISTS.search(_bare(source)):
        words = "a list is asked about as in “args.iban in lists.payees”: a value by its names"
        raise CannotCompile(words, *at(source, left.start()))
    return source, found


def _lookup(name: str, function: str, source: str, inside: tuple[int, int]) -> Lookup:
    """Read what stands in the brackets: values first, then options as `name: word`."""
    known, bare = QUESTIONS[function], _bare(source)
    takes_value = function not in WITHOUT_VALUE
    argument: Expression | None = None
    options: dict[str, str] = {}
    for start, end in _parts(bare, *inside) if source[slice(*inside)].strip() else ():
        text = source[start:end]
        place = at(bare, end - len(bare[start:end].lstrip()))
        named = OPTION.match(bare[start:end])
        if named:
            word = _option(known, function, named[1], text[named.end() :], place)
            if named[1] in options:
                raise CannotCompile(f"“{named[1]}” stands twice", *place)
            options[named[1]] = word
        elif argument is not None or options or not takes_value:
            hint = "; an option is written per: agent" * ("=" in bare[start:end])
            raise CannotCompile(f"“{function}” takes no further value{hint}", *place)
        else:
            argument = _argument(text, place)
    if takes_value and argument is None:
        raise CannotCompile(f"“{function}” asks about a value", *at(bare, inside[0]))
    if function in COUNTING and "over" not in options:
        raise CannotCompile(f'“{function}” wants a time: over: "24h"', *at(bare, inside[0]))
    if function == LOOKED_UP and "by" not in options:
        raise CannotCompile(f'“{function}” wants tools: by: "contacts.*"', *at(bare, inside[0]))
    written = ", ".join(
        [*([" ".join(argument.source.split())] if argument else []),
         *(f"{one}: {word}" for one, word in sorted(options.items()))]
    )  # fmt: skip
    return Lookup(
        name, function, f"{function}({written})", argument, tuple(sorted(options.items()))
    )


def _parts(bare: str, start: int, end: int) -> Iterable[tuple[int, int]]:
    """Where each part between the commas begins and ends."""
    depth, begin = 0, start
    for place in range(start, end):
        depth += (bare[place] in "([{") - (bare[place] in ")]}")
        if bare[place] == "," and not depth:
            yield begin, place
            begin = place + 1
    yield begin, end


def _argument(text: str, place: tuple[int, int]) -> Expression:
    if any(one[1] in QUESTIONS for one in CALLED.finditer(_bare(text))):
        raise CannotCompile("a question within another is not read", *place)
    try:
        read = Expression(text.strip(), ARGUMENT_FACTS)
        read.check_functions()
    except CannotCompile as wrong:
        line, column = place
        same = wrong.line == 1
        raise CannotCompile(
            str(wrong), line + wrong.line - 1, column + wrong.column - 1 if same else wrong.column
        ) from wrong
    return read


def _option(options: Options, function: str, name: str, text: str, place: tuple[int, int]) -> str:
    if name not in options:
        known = ", ".join(options) or "none"
        hint = near(name, options)
        raise CannotCompile(
            f"“{name}” is no option of “{function}”{hint}; known are {known}", *place
        )
    choices = options[name]
    if choices is TOOLS and GLOBS.fullmatch(text):
        globs = [one[1:-1] for one in re.findall(GLOB, text)]
        if len(globs) > TOOLS_MAX:
            raise CannotCompile(f"more than {TOOLS_MAX} globs", *place)
        return ", ".join(globs)
    found = WORD.fullmatch(text)
    word = next((one for one in found.groups() if one is not None), "") if found else ""
    if choices is None:
        window_seconds(word, place)
        return word
    if choices is TOOLS:
        if not word or "," in word:
            raise CannotCompile(f'“{name}” is a glob of tools, or a list: "contacts.*"', *place)
        return word
    if word in choices or (name == "per" and PATH.fullmatch(word)):
        return word
    raise CannotCompile(f"“{name}” is one of {', '.join(choices)}{near(word, choices)}", *place)


@lru_cache(maxsize=1_000)
def window_seconds(word: str, place: tuple[int, int] = (1, 1)) -> int:
    """A time such as "24h", in seconds."""
    found = DURATION.fullmatch(word)
    seconds = int(found[1]) * SECONDS[found[2]] if found else 0
    if not WINDOW_SECONDS_MIN <= seconds <= WINDOW_SECONDS_MAX:
        raise CannotCompile('a time such as "30m", "24h" or "7d" is wanted, up to 31d', *place)
    return seconds


def _meant(source: str) -> CannotCompile | None:
    """A function that nobody knows, where an option of it keeps the text from being CEL."""
    bare = _bare(source)
    for call in CALLED.finditer(bare):
        name = call[1]
        if name in FUNCTIONS or name in QUESTIONS or name == "has":
            continue
        return CannotCompile(
            f"“{name}” is no function here{near(name, (*QUESTIONS, *FUNCTIONS))}",
            *at(bare, call.start()),
        )
    return None
