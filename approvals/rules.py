"""The rules of a document: as rows for people (which calls, what is said of them, who answers,
why), and each as the fields of a form and back.

The document is the same as the table; what it says that has no column (how a call is undone, what
may be granted ahead) is named in its row. What nobody changed in a form keeps its spelling, also
where it is a mistake; what stands in a part of a rule and is no field of it stays. `FIELDS` says
which field is which path of the document, so that a mistake is told at its own field.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from amends.protocol.vocabulary import RISKS, glob_matches
from approvals.policy import Invalid, Mistake, editing
from approvals.policy.condition_words import in_words
from approvals.policy.editing import ALWAYS, REVIEW, RULES, RulePosition
from approvals.policy.form import DURATION, SECONDS
from workspaces import formatting

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
RISK_CHOICES = tuple((one.upper(), one.title()) for one in RISKS)
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
class RuleRow:
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
    problems: Sequence[Mistake] = ()
    is_first: bool = False
    is_last: bool = False

    @property
    def place(self) -> str:
        """How its buttons name it."""
        return str(self.number)


@dataclass(frozen=True, slots=True)
class RuleTable:
    """All rows by section, in the order of the document; `unread` says why there are none."""

    sections: Sequence[tuple[str, Sequence[RuleRow]]] = ()
    unread: bool = False
    count: int = 0
    left_out: int = 0
    """Of `count` so many that are in no section here: see `ROWS_SHOWN_MAX`."""
    elsewhere: Sequence[Mistake] = field(default_factory=list)
    """The problems that stand in no row."""


ROWS_SHOWN_MAX = 50
"""So many rows are shown until all are asked for, beside those with a problem and the one in hand:
three hundred rules made a page of 800 kB.
"""


def of(
    source: str, problems: Sequence[Mistake] = (), *, whole: bool = False, in_hand: str = ""
) -> RuleTable:
    """The table of a document, each problem in its row; the whole of it, or its beginning.

    `in_hand` is the place of a row that is shown in any case.
    """
    try:
        rows = editing.rows(source)
    except Invalid:
        return RuleTable(unread=True, elsewhere=problems)
    money = _amounts(source)
    lines = [_line(number, row, rows, problems, money) for number, row in enumerate(rows)]
    told = {id(problem) for line in lines for problem in line.problems}
    shown = [
        line
        for n, line in enumerate(lines)
        if whole or n < ROWS_SHOWN_MAX or line.problems or line.place == in_hand
    ]
    sections = [
        (SECTION_WORDS[section], [line for line in shown if line.section == section])
        for section in editing.SECTIONS
    ]
    return RuleTable(
        sections=[(words, own) for words, own in sections if own],
        count=len(lines),
        left_out=len(lines) - len(shown),
        elsewhere=[problem for problem in problems if id(problem) not in told],
    )


def problems_of(row: RulePosition, problems: Sequence[Mistake]) -> list[Mistake]:
    return [problem for problem in problems if row.holds(problem.path)]


def _amounts(source: str) -> Mapping[str, str]:
    """By glob of a tool, the path of what its preview shows as money."""
    tools = members(editing.document_of(source).get("tools"))
    previews = {glob: members(members(entry).get("preview")) for glob, entry in tools.items()}
    return {
        glob: text_of(preview.get("amount"))
        for glob, preview in previews.items()
        if "currency" in preview
    }


def _line(
    number: int,
    row: RulePosition,
    rows: Sequence[RulePosition],
    problems: Sequence[Mistake],
    amounts: Mapping[str, str],
) -> RuleRow:
    entry = row.entry
    when = text_of(entry.get("when"))
    tone, verdict = _verdict(row)
    risk = text_of(entry.get("risk")).lower()
    money = [
        path
        for glob, path in amounts.items()
        if glob_matches(row.glob, glob) or glob_matches(glob, row.glob)
    ]
    beside = [one for one in rows if one.section == row.section]
    return RuleRow(
        number=number,
        section=row.section,
        glob=row.glob,
        when=when,
        when_words=in_words(when, money) if when else "",
        risk=risk if risk in RISKS else "",
        tone=tone,
        verdict=verdict,
        who=_who(row),
        reason=text_of(entry.get("words")),
        more=tuple(_in_words(name, entry[name]) for name in OTHER_FIELDS if entry.get(name)),
        problems=problems_of(row, problems),
        is_first=beside[0] is row,
        is_last=beside[-1] is row,
    )


def text_of(value: Any) -> str:
    """What stands there, if it is a text; a document may say anything while it is written."""
    return value if isinstance(value, str) else ""


def _verdict(row: RulePosition) -> tuple[str, str]:
    if row.section == REVIEW:
        return LOOK
    return VERDICT_WORDS.get(text_of(row.entry.get("approval")).upper(), BY_RISK)


def _who(row: RulePosition) -> str:
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
        who += f"; after {_length(escalate.get('after'))} {escalate.get('group')}, too"
    if expires := text_of(row.entry.get("expires")):
        who += f", within {_length(expires)}"
    return who if verdict else f"from high up {who}"


def _length(said: Any) -> str:
    """`20m` as people say it: 20 min. What is no length of time stays as it is written."""
    found = DURATION.fullmatch(text_of(said).strip())
    if found is None:
        return text_of(said)
    return formatting.span(timedelta(seconds=int(found[1]) * SECONDS[found[2]]))


def _need(one: Mapping[str, Any]) -> str:
    count = one.get("count") or 1
    people = "person" if count == 1 else "people"
    return f"{count} {people} from {one['group']}" if one.get("group") else (
        f"{count} {people} who may approve"
    )  # fmt: skip


def _in_words(name: str, value: Any) -> str:
    said = str(value).lower()
    return (
        NOT_UNDONE if (name, said) == ("compensation", "none") else OTHER_FIELDS[name].format(said)
    )


ANYBODY, TEAM = "*", "team:"
PLACES_MIN, PLACES_MAX = 2, 20
"""So many requirements have fields; a rule with more keeps the others."""

FIELDS = {
    "when": "when",
    "risk": "risk",
    "approval": "approval",
    "expires": "expires",
    "words": "words",
    "compensation": "compensation",
    "verify": "verify",
    "self_approval": "selfApproval",
    "affected": "askAffected.must",
    "affected_words": "askAffected.words",
    "escalate_after": "escalate.after",
    "escalate_group": "escalate.group",
    "bounded_uses": "bounded.uses",
    "bounded_for": "bounded.for",
    "bounded_amount": "bounded.amount",
    "bounded_each": "bounded.each",
    "bounded_sum": "bounded.sum",
    "bounded_same": "bounded.same",
    "bounded_listed": "bounded.listed",
}
CHOICES = ("risk", "approval", "compensation", "verify")
LINES = ("expires", "words")
PARTS = ("escalate", "bounded")
NUMBERS = ("bounded_uses", "bounded_each", "bounded_sum")
WHO = re.compile(r"requires\[(\d+)\](?:\.(count))?")
NAMED = re.compile("“(\\w+)” is missing")

Entry = Mapping[str, Any]
Fields = Mapping[str, Any]


def fields_of(entry: Entry) -> dict[str, str]:
    """What the fields of a rule say, each as a text; `who_N` and `count_N` of each requirement."""
    found = {name: as_text(entry.get(name)) for name in ("when", *LINES)}
    found |= {name: as_text(entry.get(name)).upper() for name in CHOICES}
    found["self_approval"] = as_claim(entry.get("selfApproval"))
    asked = entry.get("askAffected")
    found["affected"] = ("must" if asked.get("must") else "ask") if isinstance(asked, dict) else (
        "ask" if asked is True else ""
    )  # fmt: skip
    found["affected_words"] = as_text(members(asked).get("words"))
    inside = ((name, path) for name, path in FIELDS.items() if path.startswith(PARTS))
    return found | {name: as_text(value_at(entry, path)) for name, path in inside} | _people(entry)


def _people(entry: Entry) -> dict[str, str]:
    asked = entry.get("requires")
    found = {}
    for n, one in enumerate((asked if isinstance(asked, list) else [])[:PLACES_MAX]):
        need = members(one)
        team = as_text(need.get("group"))
        found[f"who_{n}"] = f"{TEAM}{team}" if team else ANYBODY
        found[f"count_{n}"] = as_text(need.get("count")) or "1"
    return found


def as_text(value: Any) -> str:
    """A text or a number as it is typed, a list of texts with commas; all else as nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else ""


def as_claim(value: Any) -> str:
    """What is claimed, as it is chosen; anything else as nothing."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else ""


def claim_of(chosen: str) -> bool | None:
    """What is claimed by what was chosen; None where nothing was."""
    return {"yes": True, "no": False}.get(chosen)


def members(value: Any) -> dict[str, Any]:
    """Those of an object, as a copy; anything else has none."""
    return dict(value) if isinstance(value, dict) else {}


def value_at(entry: Entry, path: str) -> Any:
    """What stands under a name, or under `name.member`."""
    top, _, member = path.partition(".")
    return members(entry.get(top)).get(member) if member else entry.get(top)


def entry_of(old: Entry, said: Fields) -> dict[str, Any]:
    """The rule that the fields say, where `old` stood: what they do not change is as it was."""
    now, changed = typed(fields_of(old), said, FIELDS)
    new = dict(old)
    for name in ("when", *LINES, *CHOICES):
        if name in changed:
            put(new, name, now[name])
    if "self_approval" in changed:
        put(new, "selfApproval", claim_of(now["self_approval"]))
    if changed & {"affected", "affected_words"}:
        put(new, "askAffected", _affected(now["affected"], now["affected_words"]))
    for part in PARTS:
        inside = {
            FIELDS[name].partition(".")[2]: _typed(name, now[name])
            for name in FIELDS
            if name in changed and FIELDS[name].startswith(f"{part}.")
        }
        if inside:
            put(new, part, merged(old.get(part), inside) or None)
    _put_people(new, old, said)
    return new


def normal(value: Any) -> str:
    """As a form gives it back: ends of lines as in a document, nothing around it."""
    return "" if value is None else str(value).replace("\r\n", "\n").strip()


def _typed(name: str, text: str) -> Any:
    if name == "bounded_same":
        return [one.strip() for one in text.split(",") if one.strip()]
    return int(text) if name in NUMBERS and text.lstrip("-").isdecimal() else text


def _affected(asked: str, words: str) -> Any:
    if not words:
        return {"ask": True, "must": {"must": True}}.get(asked)
    return {**({"must": True} if asked == "must" else {}), "words": words}


def _put_people(new: dict[str, Any], old: Entry, said: Fields) -> None:
    before = old.get("requires")
    many = before if isinstance(before, list) else []
    needs = needs_of(said)
    if needs != needs_of(_people(old)):
        put(new, "requires", [*needs, *many[PLACES_MAX:]])


def needs_of(said: Fields) -> list[dict[str, Any]]:
    """Who has to answer, of the fields; a place that nobody filled in is none."""
    found = []
    for n in range(PLACES_MAX):
        who, count = said.get(f"who_{n}") or "", normal(said.get(f"count_{n}"))
        if not who and (n or count in {"", "1"}):
            continue
        need = {"group": who.removeprefix(TEAM)} if who.startswith(TEAM) else {}
        many = {} if count in {"", "1"} else {"count": int(count) if count.isdecimal() else count}
        found.append({**need, **many})
    return found


def typed(
    was: Mapping[str, str], said: Mapping[str, Any], names: Iterable[str]
) -> tuple[dict[str, str], set[str]]:
    """What the fields of these names say now, and which of them say something else than before."""
    now = {name: normal(said.get(name)) for name in names}
    return now, {name for name in now if now[name] != normal(was[name])}


def merged(old: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a document with some members changed, each taken out where it is empty."""
    found = members(old)
    for name, value in changes.items():
        put(found, name, value)
    return found


def put(entry: dict[str, Any], name: str, value: Any) -> None:
    """Set a member; None, an empty text or list takes it out."""
    if value in (None, "", []):
        entry.pop(name, None)
    else:
        entry[name] = value


# Names with values, a line for each: rows of a card, arguments of a call.


def _fits(name: str, value: Any) -> bool:
    """Whether it can stand in a line of its own; what cannot stays in the document."""
    return isinstance(value, str) and ":" not in name and "\n" not in name + value


def lines_of(given: Any) -> str:
    """Each as `name: value`; nothing of what is no object."""
    pairs = members(given).items()
    return "\n".join(f"{name}: {one}" for name, one in pairs if _fits(name, one))


def without_line(given: Any) -> dict[str, Any]:
    """Those that fit in no line."""
    return {name: one for name, one in members(given).items() if not _fits(name, one)}


def pairs_of(lines: str) -> dict[str, str]:
    """What stands before and behind the first colon of each line; without one, nothing behind."""
    found = (one.partition(":") for one in lines.split("\n") if one.strip())
    return {name.strip(): value.strip() for name, _, value in found}


def field_at(path: str, message: str, known: Sequence[str], fields: Fields = FIELDS) -> str | None:
    """The field at which a mistake is told: by its path below the rule, or by the member of it that
    the message misses; None where it has none.
    """
    if found := WHO.match(path):
        name = f"{'count' if found[2] else 'who'}_{found[1]}"
        return name if name in known else None
    if path == "requires":
        return "who_0"
    missing = NAMED.search(message)
    paths = [f"{path}.{missing[1]}".lstrip(".")] if missing else []
    for one in (*paths, path):
        whole = one.partition("[")[0]
        for name, own in fields.items():
            if name in known and (own == whole or (own.startswith(f"{whole}.") and whole)):
                return name
    return None
