"""Of which kind the answers to a condition's questions are, and whether it uses them so.

The evaluator knows kinds only once it has values. A rule that compares a number with a text, or
`class` with a word that no class has, would be saved, and then never be met, or always: so a new
document is refused where what stands beside an answer cannot fit it. It looks at the nearest signs
alone; what it does not understand it lets pass.
"""

import re
from collections.abc import Mapping, Sequence

from amends.protocol.vocabulary import CLASSES, RISKS
from approvals.policy.expressions import STRINGS, CannotCompile, at, near

SENSITIVITIES = ("public", "internal", "confidential", "restricted")

YES_OR_NO, NUMBER, TEXT = "true or false", "a number", "a text"
KINDS = {
    "mentioned": YES_OR_NO, "changed": YES_OR_NO, "tainted": YES_OR_NO, "known": YES_OR_NO,
    "lookalike": YES_OR_NO, "unusual": YES_OR_NO, "in": YES_OR_NO, "rejected_before": YES_OR_NO,
    "read_untrusted": YES_OR_NO, "working_hours": YES_OR_NO, "count": NUMBER, "sum": NUMBER,
    "called": NUMBER, "request": TEXT, "goal": TEXT,
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
