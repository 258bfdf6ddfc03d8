"""A condition as people would say it: `args.amount > 100 && !known(target)` is “amount is above 100
and target is new”.

It is for reading. What counts is the condition, which stands beside it; what this does not know is
said as it is written.
"""

import re
from collections.abc import Callable, Container, Mapping

from workspaces import formatting

TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<sign>&&|\|\||[<>=!]=|[()<>!,\[\]:])
    |(?P<word>[A-Za-z_][\w.]*|\d[\w.]*)|(?P<other>\S))""",
    re.VERBOSE,
)
NESTING_MAX = 20
COMPARED = {
    ">": "is above", ">=": "is at least", "<": "is below", "<=": "is at most", "==": "is",
    "!=": "is not",
}  # fmt: skip
NAMES = {
    "rejected_before": ("people said no to this before", "nobody said no to this before"),
    "read_untrusted": ("it has read what strangers wrote", "it has read nothing of strangers"),
    "working_hours": ("within working hours", "outside working hours"),
}
ASKED = {
    "mentioned": ("{} was asked for", "nobody asked for {}"),
    "known": ("{} is known{}", "{} is new{}"),
    "lookalike": ("{} looks like one that is known", "{} looks like none that is known"),
    "tainted": ("{} came from strangers", "{} did not come from strangers"),
    "unusual": ("{} is unusually large", "{} is not unusually large"),
    "changed": ("{} changes", "{} stays"),
    "looked_up": ("{} was looked up{}", "{} was not looked up{}"),
    "called": ("{} was called", "{} was not called"),
    "has": ("{} is given", "{} is not given"),
}
TOTALS: Mapping[str, str] = {"count": "calls", "sum": "the sum of {}"}
TEXTS = {
    "startsWith": ("begins with", "does not begin with"),
    "endsWith": ("ends with", "does not end with"),
    "contains": ("contains", "does not contain"),
    "matches": ("fits", "does not fit"),
}


class _Unsaid(Exception):
    """We stopped because we have no words for this form."""


GROUPED_FROM = 10_000
UNITS = 100


def in_words(condition: str, money: Container[str] = ()) -> str:
    """The condition in words; as it is written where it has none.

    `money` are the paths (`args.amount`) of amounts in the smallest unit of a currency. Of which, a
    condition seldom says, so both are told: what is compared, and what that is in euros.
    """
    try:
        reader = _Reader(condition, money)
        said = reader.either()
        reader.over()
    except _Unsaid:
        return condition
    return said


class _Reader:
    """Goes through the tokens once: or, and, not, comparison, value."""

    def __init__(self, source: str, money: Container[str] = ()) -> None:
        self.money = money
        self.tokens = [(one.lastgroup or "", one[one.lastgroup or 0]) for one in
                       TOKEN.finditer(source)]  # fmt: skip
        self.at, self.depth = 0, 0
        if any(kind == "other" for kind, _ in self.tokens):
            raise _Unsaid

    def over(self) -> None:
        if self.at < len(self.tokens):
            raise _Unsaid

    def either(self) -> str:
        parts = self._each(self.both, "||")
        several = len(parts) > 1
        return " or ".join(f"({one})" if several and " and " in one else one for one in parts)

    def both(self) -> str:
        return " and ".join(self._each(self.one, "&&"))

    def _each(self, part: Callable[[], str], sign: str) -> list[str]:
        found = [part()]
        while self._took(sign):
            found.append(part())
        return found

    def one(self) -> str:
        self.depth += 1
        if self.depth > NESTING_MAX:
            raise _Unsaid
        negated = False
        while self._took("!"):
            negated = not negated
        said = self._claim(negated=negated)
        self.depth -= 1
        return said

    def _claim(self, *, negated: bool) -> str:
        if self._took("("):
            inner = self.either()
            self._need(")")
            return f"not ({inner})" if negated else f"({inner})" if " " in inner else inner
        kind, word = self._next()
        if kind != "word":
            raise _Unsaid
        if word in NAMES:
            return NAMES[word][negated]
        if not self._took("("):
            return self._compared(_named(word), word, negated=negated, needed=False)
        of = self._peek()
        said = self._call(word, negated=negated)
        if word in {*TOTALS, "size"}:
            path = of if word == "sum" else ""
            return self._compared(said, path, negated=negated, needed=True)
        return said

    def _compared(self, said: str, path: str, *, negated: bool, needed: bool) -> str:
        """With what follows: a comparison (`needed` of a number), a list, or nothing."""
        sign = self._peek()
        if negated:
            if needed or sign in COMPARED or sign == "in":
                raise _Unsaid
            return f"not {said}"
        if sign in COMPARED:
            self.at += 1
            return f"{said} {COMPARED[sign]} {_counted(self._value(), is_money=path in self.money)}"
        if needed:
            raise _Unsaid
        if sign == "in":
            self.at += 1
            where = "on" if self._peek().startswith("lists.") else "one of"
            return f"{said} is {where} {self._value()}"
        return said

    def _call(self, word: str, *, negated: bool) -> str:
        """What follows an opening bracket, up to the closing one."""
        value, _, method = word.rpartition(".")
        if value and method in TEXTS:
            said = f"{_named(value)} {TEXTS[method][negated]} {self._value()}"
            self._need(")")
            return said
        if word == "size":
            said = f"the number of {self._value()}"
            self._need(")")
            return said
        if word not in ASKED and word not in TOTALS:
            raise _Unsaid
        subject = "" if word == "count" else self._value()
        self._took(",")
        options = self._options()
        if word in TOTALS:
            per = f" per {_named(options['per'])}" if "per" in options else ""
            over = f" in {options['over']}" if "over" in options else ""
            return TOTALS[word].format(subject) + per + over
        how = (("by", "by" if word == "looked_up" else "to this"), ("for", "for"), ("or", "or"))
        more = "".join(f" {said} {options[name]}" for name, said in how if name in options)
        return ASKED[word][negated].format(subject, more)

    def _options(self) -> dict[str, str]:
        """`per: agent, over: "24h"`, and the bracket behind them."""
        found: dict[str, str] = {}
        while not self._took(")"):
            _, name = self._next()
            self._need(":")
            value = self._value() if self._peek() == "[" else self._next()[1]
            found[name] = re.sub("[\"']", "", value)
            self._took(",")
        return found

    def _value(self) -> str:
        kind, word = self._next()
        if kind == "text":
            return word
        if word == "[":
            found = []
            while not self._took("]"):
                found.append(self._value())
                self._took(",")
            return ", ".join(found)
        if kind != "word" or self._peek() == "(":
            raise _Unsaid
        return _named(word)

    def _peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def _next(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise _Unsaid
        self.at += 1
        return self.tokens[self.at - 1]

    def _took(self, sign: str) -> bool:
        found = self.at < len(self.tokens) and self.tokens[self.at] == ("sign", sign)
        self.at += found
        return found

    def _need(self, sign: str) -> None:
        if not self._took(sign):
            raise _Unsaid


def _counted(value: str, *, is_money: bool) -> str:
    """A large number with its thousands apart, and as money where it is some."""
    if not value.isdigit() or not value.isascii():
        return value
    number = int(value)
    told = formatting.count(number) if number >= GROUPED_FROM else value
    if not is_money:
        return told
    units, parts = divmod(number, UNITS)
    return f"{told} ({formatting.count(units)}.{parts:02} in euros or dollars)"


def _named(word: str) -> str:
    """`args.card.end` as “card.end”, so that no name is read as a word of the sentence."""
    first, _, rest = word.partition(".")
    if not rest:
        return "the arguments" if first == "args" else word
    if first == "args":
        return f"“{rest}”"
    return f"the list {rest}" if first == "lists" else word.replace(".", " ")
