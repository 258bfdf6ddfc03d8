"""The rules of a document as rows for people: which calls, what is said of them, who answers, why.

The document is the same as the table; what it says that has no column (how a call is undone, what
may be granted ahead) is named in its row, and is changed in the document.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amends.protocol.vocabulary import RISKS
from approvals.policy import Invalid, Problem, editing
from approvals.policy.condition_words import in_words
from approvals.policy.editing import ALWAYS, REVIEW, RULES, Row

SECTION_WORDS = {
    RULES: "Decides",
    ALWAYS: "Always, beside what decides",
    REVIEW: "Looked at afterwards",
}
VERDICT_WORDS = {
    "AUTO": ("calm", "Automatic"),
    "MANUAL": ("wait", "Needs approval"),
    "DENY": ("bad", "Denied"),
}
BY_RISK = ("calm", "By its risk")
LOOK = ("calm", "A look afterwards")
NOT_UNDONE = "nothing undoes it"
OTHER_FIELDS = {
    "compensation": "undone by {}",
    "verify": "read back by {}",
    "selfApproval": "who asked may approve",
    "bounded": "may be granted ahead",
    "askAffected": "the affected person is asked first",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table."""

    number: int
    section: str
    glob: str
    when: str
    when_words: str
    risk: str
    tone: str
    verdict: str
    who: str
    reason: str
    more: tuple[str, ...]
    problems: Sequence[Problem] = ()
    is_first: bool = False
    is_last: bool = False

    @property
    def place(self) -> str:
        """How its buttons name it."""
        return str(self.number)


@dataclass(frozen=True, slots=True)
class Table:
    """All rows by section, in the order of the document; `unread` says why there are none."""

    sections: Sequence[tuple[str, Sequence[Line]]] = ()
    unread: bool = False
    count: int = 0
    elsewhere: Sequence[Problem] = field(default_factory=list)
    """The problems that stand in no row."""


def of(source: str, problems: Sequence[Problem] = ()) -> Table:
    """The table of a document, each problem in its row."""
    try:
        rows = editing.rows(source)
    except Invalid:
        return Table(unread=True, elsewhere=problems)
    lines = [_line(number, row, rows, problems) for number, row in enumerate(rows)]
    told = {id(problem) for line in lines for problem in line.problems}
    sections = [
        (SECTION_WORDS[section], [line for line in lines if line.section == section])
        for section in editing.SECTIONS
    ]
    return Table(
        sections=[(words, own) for words, own in sections if own],
        count=len(lines),
        elsewhere=[problem for problem in problems if id(problem) not in told],
    )


def problems_of(row: Row, problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if row.holds(problem.path)]


def _line(number: int, row: Row, rows: Sequence[Row], problems: Sequence[Problem]) -> Line:
    entry = row.entry
    when = text_of(entry.get("when"))
    tone, verdict = _verdict(row)
    risk = text_of(entry.get("risk")).lower()
    beside = [one for one in rows if one.section == row.section]
    return Line(
        number=number,
        section=row.section,
        glob=row.glob,
        when=when,
        when_words=in_words(when) if when else "",
        risk=risk if risk in RISKS else "",
        tone=tone,
        verdict=verdict,
        who=_who(row),
        reason=text_of(entry.get("words")),
        more=tuple(_more(entry)),
        problems=problems_of(row, problems),
        is_first=beside[0] is row,
        is_last=beside[-1] is row,
    )


def text_of(value: Any) -> str:
    """What stands there, if it is a text; a document may say anything while it is written."""
    return value if isinstance(value, str) else ""


def _verdict(row: Row) -> tuple[str, str]:
    if row.section == REVIEW:
        return LOOK
    return VERDICT_WORDS.get(text_of(row.entry.get("approval")).upper(), BY_RISK)


def _who(row: Row) -> str:
    verdict = text_of(row.entry.get("approval")).upper()
    if row.section == REVIEW or verdict in {"AUTO", "DENY"}:
        return "nobody"
    asked = row.entry.get("requires")
    needs = (
        [_need(one) for one in asked if isinstance(one, dict)] if isinstance(asked, list) else []
    )
    who = " and ".join(needs) or "1 person who may approve"
    escalate = row.entry.get("escalate")
    if isinstance(escalate, dict):
        who += f"; after {escalate.get('after')} {escalate.get('group')}, too"
    if expires := text_of(row.entry.get("expires")):
        who += f", within {expires}"
    return who if verdict else f"from high up {who}"


def _need(one: Mapping[str, Any]) -> str:
    count = one.get("count") or 1
    people = "person" if count == 1 else "people"
    return f"{count} {people} from {one['group']}" if one.get("group") else (
        f"{count} {people} who may approve"
    )  # fmt: skip


def _more(entry: Mapping[str, Any]) -> list[str]:
    return [_in_words(name, entry[name]) for name in OTHER_FIELDS if entry.get(name)]


def _in_words(name: str, value: Any) -> str:
    said = str(value).lower()
    return (
        NOT_UNDONE if (name, said) == ("compensation", "none") else OTHER_FIELDS[name].format(said)
    )
