"""Of which kind the answers to a condition's questions are, and whether it uses them so.

The evaluator knows kinds only once it has values. A rule that compares a number with a text, or
`class` with a word that no class has, would be saved, and then never be met, or always: so a new
document is refused where what stands beside an answer cannot fit it. It looks at the nearest signs
alone; what it does not understand it lets pass. The same of comparisons that never hold together.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import product
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

from amends.protocol.vocabulary import CLASSES, RISKS
from approvals.policy.condition_words import COMPARED as IN_WORDS
from approvals.policy.expressions import STRINGS, CannotCompile, at, near

SENSITIVITIES = ("public", "internal", "confidential", "restricted")

YES_OR_NO, NUMBER, TEXT = "true or false", "a number", "a text"
KINDS = {
    "mentioned": YES_OR_NO, "changed": YES_OR_NO, "tainted": YES_OR_NO, "known": YES_OR_NO,
    "lookalike": YES_OR_NO, "unusual": YES_OR_NO, "in": YES_OR_NO, "rejected_before": YES_OR_NO,
    "read_untrusted": YES_OR_NO, "working_hours": YES_OR_NO, "looked_up": YES_OR_NO,
    "count": NUMBER, "sum": NUMBER, "called": NUMBER, "request": TEXT, "goal": TEXT,
}  # fmt: skip
WORDS: Mapping[str, Sequence[str]] = {
    "class": tuple(CLASSES),
    "risk": tuple(RISKS),
    "sensitivity": SENSITIVITIES,
}
"""Names whose value is one of a few words."""

ORDER = frozenset({"<", "<=", ">", ">=", "+", "-", "*", "/", "%"})
SAME = frozenset({"==", "!="})
SIGN = r"==|!=|<=|>=|&&|\|\||[<>+\-*/%!?:,(\[{.]|\bin\b"
BEHIND = re.compile(rf"\s*({SIGN})")
BEFORE = re.compile(rf"({SIGN})\s*$")
CALLS = re.compile(r"\w\s*$")
LITERAL = re.compile(r"""\s*(?:(["'])|(-?\d)|(true|false)\b)""")
LITERAL_BEFORE = re.compile(r"""(?:(["'])|(\d)|\b(true|false))\s*$""")
OF_LITERAL = (TEXT, NUMBER, YES_OR_NO)
FEW = "|".join(WORDS)
LISTED = rf"\[\s*(?:{STRINGS.pattern})(?:\s*,\s*(?:{STRINGS.pattern}))*\s*\]"
COMPARED = re.compile(
    rf"(?<![\w.])({FEW})\s*(?:==|!=|in)\s*({STRINGS.pattern}|{LISTED})"
    rf"|({STRINGS.pattern})\s*(?:==|!=)\s*({FEW})\b(?!\s*[.(])"
)


MEMBERS: Mapping[str, Sequence[str]] = {
    "target": ("type", "id"),
    "on_behalf_of": ("id", "name", "contact"),
}
MEMBER = re.compile(rf"(?<![\w.])({'|'.join(MEMBERS)})\.(\w+)")
ORDERED = re.compile(rf"(?<![\w.])({FEW})\s*(?:<|>)|(?:<=?|>=?)\s*({FEW})\b(?!\s*[.(])")


def check(rewritten: str, asked: Mapping[str, tuple[str, str]]) -> None:
    """Raises CannotCompile where an answer is used as what it is not. `rewritten` is the condition
    with a name in the place of each question; `asked` says of each name the function and how the
    question is written.
    """
    for found in COMPARED.finditer(rewritten):
        name = found[1] or found[4]
        for one in STRINGS.findall(found[2] or found[3]):
            _check_word(name, one[1:-1], at(rewritten, found.start()))
    bare = STRINGS.sub(lambda found: " " * len(found[0]), rewritten)
    if ordered := ORDERED.search(bare):
        name = ordered[1] or ordered[2]
        strictest = ", ".join(f'"{one}"' for one in WORDS[name][-2:])
        raise CannotCompile(
            f"“{name}” is a word, and words have the order of their letters: say"
            f" {name} in [{strictest}]",
            *at(bare, ordered.start()),
        )
    for found in MEMBER.finditer(bare):
        if found[2] not in MEMBERS[found[1]]:
            known = ", ".join(MEMBERS[found[1]])
            hint = near(found[2], MEMBERS[found[1]])
            raise CannotCompile(
                f"“{found[1]}” has no “{found[2]}”{hint}; it has {known}",
                *at(bare, found.start()),
            )
    for name, (function, written) in asked.items():
        kind = KINDS.get(function)
        for found in re.finditer(rf"(?<![\w.]){name}\b", bare) if kind else ():
            why = _misused(str(kind), rewritten, bare, *_bracketed(bare, *found.span()))
            if why:
                raise CannotCompile(f"“{written}” is {kind}, {why}", *at(bare, found.start()))
    tokens = list(TOKEN.finditer(rewritten))
    _check_orders(tokens, rewritten)
    _check_together(tokens, rewritten, asked)


def _check_word(name: str, word: str, place: tuple[int, int]) -> None:
    known = WORDS[name]
    if word not in known:
        hint = near(word.lower(), known)
        raise CannotCompile(
            f"“{word}” is nothing that “{name}” can be{hint}; it is one of {', '.join(known)}",
            *place,
        )


def _bracketed(bare: str, start: int, end: int) -> tuple[int, int]:
    """From where to where the answer stands, with the brackets that only hold it together."""
    while True:
        left, right = bare[:start].rstrip(), bare[end:]
        closing = re.match(r"\s*\)", right)
        if not left.endswith("(") or not closing or CALLS.search(left[:-1]):
            return start, end
        start, end = len(left) - 1, end + closing.end()


def _misused(kind: str, text: str, bare: str, start: int, end: int) -> str:
    """Why the answer does not fit what stands before and behind it; empty where nothing is known
    to be wrong.
    """
    behind, before = BEHIND.match(bare, end), BEFORE.search(bare[:start])
    signs = {one[1] for one in (behind, before) if one}
    beside = set()
    if behind and behind[1] in ORDER | SAME:
        beside |= _kind_of(LITERAL.match(text, behind.end()))
    if before and before[1] in ORDER | SAME:
        beside |= _kind_of(LITERAL_BEFORE.search(text[: before.start()]))
    if beside - {kind}:
        return f"and stands beside {min(beside - {kind})}"
    if kind == YES_OR_NO and signs & ORDER:
        return f"and “{min(signs & ORDER)}” is for numbers"
    is_used = signs & (ORDER | SAME | {"in", ",", "[", "{", "?", ":", "."})
    is_argument = bare[:start].rstrip().endswith("(") and CALLS.search(bare[:start].rstrip()[:-1])
    if kind == NUMBER and not is_used and not is_argument:
        return "and is compared with nothing"
    return ""


def _kind_of(found: re.Match[str] | None) -> set[str]:
    return (
        {kind for kind, part in zip(OF_LITERAL, found.groups(), strict=True) if part}
        if found
        else set()
    )


# Comparisons that never hold, alone or together.

TOKEN = re.compile(
    rf"(?P<text>{STRINGS.pattern})|(?P<number>\d[\w.]*)|(?P<word>[A-Za-z_]\w*(?:\.\w+)*)"
    r"|(?P<sign>&&|\|\||[<>=!]=|\S)"
)
OF_DIGITS = re.compile(r"\s*[-+]?\d[\d.,_' ]*\s*")
OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne,
}  # fmt: skip
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
CONSTANTS = {"true": True, "false": False, "null": None}
LEAST = {"count": 1, "sum": 0, "called": 0}
"""What an answer is at least: a call counts itself, and what is negative is not counted."""

Tokens = list[re.Match[str]]


class Claim(NamedTuple):
    """What a comparison says of one name: a sign, and the literal beside it."""

    sign: str
    value: Any
    kind: str

    def excludes(self, other: "Claim") -> bool:
        signs = {self.sign, other.sign}
        if self.kind != other.kind:
            return "!=" not in signs
        if self.sign == "==" or other.sign == "==":
            same, bound = (self, other) if self.sign == "==" else (other, self)
            return not OPERATORS[bound.sign](same.value, bound.value)
        low = next((one for one in (self, other) if ">" in one.sign), None)
        high = next((one for one in (self, other) if "<" in one.sign), None)
        if low is None or high is None:
            return False
        return bool(low.value > high.value or (low.value == high.value and signs != {"<=", ">="}))

    def __str__(self) -> str:
        value = f"“{self.value}”" if self.kind == TEXT else str(self.value).lower()
        return f"{IN_WORDS[self.sign]} {'null' if self.value is None else value}"


def _check_orders(tokens: Tokens, text: str) -> None:
    """Nothing is above or below what has no order, nor a number that was written as a text."""
    for left, sign, right in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        place = at(text, sign.start())
        if sign[0] == "in" and right and text[right.start() :].replace(" ", "").startswith("[]"):
            raise CannotCompile("nothing stands in an empty list", *place)
        for one in (left, right) if sign[0] in TURNED and right else ():
            if one[0] in CONSTANTS or (one is right and one[0] in "[{"):
                what = {"[": "a list", "{": "an object"}.get(one[0], one[0])
                raise CannotCompile(f"nothing is above or below {what}", *place)
            is_text = one["text"] and not text[one.end() :].lstrip().startswith(".")
            if is_text and OF_DIGITS.fullmatch(one[0][1:-1]):
                raise CannotCompile(
                    f"{one[0]} is a text, and a number is neither above nor below it: a number"
                    " stands without quotes",
                    *place,
                )


def _check_together(
    tokens: Tokens, text: str, asked: Mapping[str, tuple[str, str]]
) -> dict[str, list[Claim]]:
    """What must hold of each name where all of it does. Raises CannotCompile for what never does,
    as the whole or as one of its alternatives.
    """
    while tokens and tokens[0][0] == "(" and closing(tokens) == len(tokens) - 1:
        tokens = tokens[1:-1]
    claims: dict[str, list[Claim]] = defaultdict(list)
    if len(split(tokens, "?")) > 1:
        return claims
    if len(alternatives := split(tokens, "||")) > 1:
        for one in alternatives:
            _check_together(one, text, asked)
        return claims
    if len(parts := split(tokens, "&&")) == 1:
        return _claim(tokens, text, asked)
    for part in parts:
        for name, said in _check_together(part, text, asked).items():
            for known, new in product(claims[name], said):
                if known.excludes(new):
                    raise CannotCompile(
                        f"“{name}” {known} and {new}, which is never both",
                        *at(text, part[0].start()),
                    )
            claims[name] += said
    return claims


def _claim(
    tokens: Tokens, text: str, asked: Mapping[str, tuple[str, str]]
) -> dict[str, list[Claim]]:
    """`name sign literal`, or the other way round; nothing of all else."""
    for place, sign in enumerate(tokens):
        if sign[0] not in OPERATORS:
            continue
        left, right, turned = tokens[:place], tokens[place + 1 :], sign[0]
        if len(left) != 1 or not left[0]["word"] or left[0][0] in CONSTANTS:
            left, right, turned = right, left, TURNED.get(sign[0], sign[0])
        literal = _literal(right)
        if len(left) != 1 or not left[0]["word"] or literal is None:
            break
        claim = Claim(turned, *literal)
        function, written = asked.get(left[0][0], ("", left[0][0]))
        _check_least(claim, function, written, at(text, tokens[0].start()))
        return {written: [claim]}
    return {}


def _check_least(claim: Claim, function: str, written: str, place: tuple[int, int]) -> None:
    if claim.kind != NUMBER or function not in LEAST:
        return
    least = LEAST[function]
    always = ">" in claim.sign and OPERATORS[claim.sign](least, claim.value)
    if always or Claim(">=", least, NUMBER).excludes(claim):
        counts = " and counts this call" * (function == "count")
        so = "always" if always else "never"
        raise CannotCompile(
            f"“{written}” is at least {least}{counts}: {so} {str(claim)[3:]}", *place
        )


def _literal(tokens: Tokens) -> tuple[Any, str] | None:
    """The value of a literal and its kind; None of all else."""
    sign = "-" if len(tokens) > 1 and tokens[0][0] == "-" else ""
    if len(tokens) != len(sign) + 1:
        return None
    one = tokens[-1]
    if one[0] in CONSTANTS and not sign:
        kind = "null" if CONSTANTS[one[0]] is None else YES_OR_NO
        return CONSTANTS[one[0]], kind
    if one["text"] and "\\" not in one[0] and not sign:
        return one[0][1:-1], TEXT
    try:  # `inf` and `nan` are names
        return (Decimal(sign + one[0].removesuffix("u")), NUMBER) if one["number"] else None
    except InvalidOperation:
        return None


def split(tokens: Tokens, sign: str) -> list[Tokens]:
    """The parts between a sign that stands in no bracket."""
    parts: list[Tokens] = [[]]
    depth = 0
    for one in tokens:
        depth += (one[0] in "([{") - (one[0] in ")]}")
        if one[0] == sign and depth == 0:
            parts.append([])
        else:
            parts[-1].append(one)
    return parts


def closing(tokens: Tokens) -> int:
    """Where the bracket that stands first is closed."""
    depth = 0
    for place, one in enumerate(tokens):
        depth += (one[0] in "([{") - (one[0] in ")]}")
        if depth == 0:
            return place
    return len(tokens)
