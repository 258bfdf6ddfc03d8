"""The words of the field above the lists of approvals, and the groups that a list falls into.

A list is narrowed by keys (`agent:`, `rule:`, `tool:`, `case:`, `run:`, `job:`, `risk:`, `by:`,
`asked:30d`, `is:`) and by words of its headlines; whatever is no key is a word.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from shlex import shlex

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from amends.protocol.vocabulary import RISKS
from approvals import health
from approvals.models import Decision
from approvals.models.approvals import ApprovalQuerySet
from ledger import disclosure
from workspaces import replica
from workspaces.pages import is_number

CHARACTERS_MAX = 200
LOOKED_AT_MAX = 1_000
CHOICES_MAX = 6
DAYS = re.compile(r"[0-9]{1,3}d")

Meaning = Callable[[str], Q | Exists]
_of_jobs: list[tuple[Meaning, str]] = []


def of_job(values: str) -> Callable[[Meaning], Meaning]:
    """Register what says of an approval of a plan (`OuterRef("plan_id")`) that a job asked it, and
    the SQL of `GROUPS` for its `values`.
    """

    def registered(meaning: Meaning) -> Meaning:
        _of_jobs.append((meaning, values))
        return meaning

    return registered


def asked(given: Mapping[str, str]) -> str:
    """What stands in the field."""
    return given.get("q", "")[:CHARACTERS_MAX].strip()


def word(key: str, value: str) -> str:
    """The key as the field reads it, quoted where its value has a space."""
    plain = value.replace('"', "")
    return f'{key}:"{plain}"' if " " in plain else f"{key}:{plain}"


def narrowed(rows: ApprovalQuerySet, q: str, *, sees: bool) -> ApprovalQuerySet:
    """Those of `rows` that fit every word of `q`; what a headline hides from whoever does not see
    it (ledger/disclosure.py) finds nothing.
    """
    for one in _words(q):
        meaning = _of_key(one)
        rows = rows.filter(_in_headline(rows, one, sees=sees) if meaning is None else meaning)
    return rows


def _words(q: str) -> list[str]:
    """Words, of which one in double quotes may hold spaces; an open quote is a character."""
    reading = shlex(q, posix=True)
    reading.whitespace_split, reading.commenters, reading.quotes = True, "", '"'
    reading.escape = ""
    try:
        return list(reading)
    except ValueError:
        return q.split()


def _of_key(one: str) -> Q | Exists | None:
    key, _, value = one.partition(":")
    read = KEYS.get(key)
    return read(value) if read and value else None


def _in_headline(rows: ApprovalQuerySet, word: str, *, sees: bool) -> Q:
    found = Q(headline__icontains=word)
    if sees:
        return found
    hiding = Q(headline__regex=disclosure.SUSPECTED)
    held = list(rows.filter(found, hiding).values_list("pk", "headline")[: LOOKED_AT_MAX + 1])
    if len(held) > LOOKED_AT_MAX:
        return found & ~hiding
    hidden = [pk for pk, text in held if word.lower() not in disclosure.parted(text)[0].lower()]
    return found & ~Q(pk__in=hidden)


def _ended(value: str) -> Q | Exists | None:
    return health.ENDS[value]() if value in health.ENDS else None


def _decided_by(value: str) -> Exists | None:
    if not is_number(value):
        return None
    return Exists(Decision.objects.filter(approval=OuterRef("pk"), person=int(value)))


def _asked_since(value: str) -> Q | None:
    if not DAYS.fullmatch(value):
        return None
    return Q(asked_at__gte=timezone.now() - timedelta(days=int(value[:-1])))


def _of_job(value: str) -> Q | Exists | None:
    return _of_jobs[0][0](value) if is_number(value) and _of_jobs else None


KEYS: Mapping[str, Callable[[str], Q | Exists | None]] = {
    "is": _ended,
    "by": _decided_by,
    "asked": _asked_since,
    "job": _of_job,
    "risk": lambda value: Q(risk=value) if value in RISKS else None,
    "agent": lambda value: Q(agent__name__iexact=value),
    "case": lambda value: Q(case_ref=value),
    "run": lambda value: Q(run_ref=value),
    "rule": lambda value: Q(rules__contains=[{"glob": value}]),
    "tool": lambda value: Q(calls__contains=[{"operation": value}]),
}
"""What each key means of its value; None where it can mean nothing, so that it is a word."""


# By which key, its name for people, and the SQL of its values. A rule that asks nobody is no group.
_RULES = """SELECT DISTINCT seen.id, rule ->> 'glob' FROM seen, jsonb_array_elements(rules) rule
WHERE rule ->> 'approval' IS DISTINCT FROM 'AUTO'"""
GROUPS: tuple[tuple[str, str, str], ...] = (
    ("agent", "Agent", "SELECT seen.id, name FROM seen JOIN workspaces_agent w ON w.id = agent_id"),
    ("rule", "Rule", _RULES),
    ("run", "Run", "SELECT id, nullif(run_ref, '') FROM seen"),
)
ALONE_IS_NO_GROUP = ("run", "job")


def groups(rows: ApprovalQuerySet) -> list[tuple[str, str, list[tuple[str, int]]]]:
    """Key, name and the largest values of each group into which `rows` fall, of the newest ones;
    one that tells none of them apart is left out.
    """
    newest = rows.order_by("-pk").values_list("pk", flat=True)[:LOOKED_AT_MAX]
    pks = list(newest)
    found: list[tuple[str, str, list[tuple[str, int]]]] = []
    if len(pks) < 2:  # noqa: PLR2004 - nothing to tell apart
        return found
    with replica.connection().cursor() as cursor:
        every = (*GROUPS, *(("job", "Bulk job", values) for _, values in _of_jobs))
        cursor.execute(_counting(every), [pks])
        counted = cursor.fetchall()
    for key, name, _ in every:
        least = 1 if key in ALONE_IS_NO_GROUP else 0
        counts = [(value, count) for of, value, count in counted if of == key and count > least]
        if counts and any(count < len(pks) for _, count in counts):
            found.append((key, name, counts))
    return found


def _counting(every: Iterable[tuple[str, str, str]]) -> str:
    parts = " UNION ALL ".join(
        f"""(SELECT '{key}', value, count(*) FROM ({values}) one (id, value)
        WHERE value IS NOT NULL GROUP BY value ORDER BY 3 DESC, 2 LIMIT {CHOICES_MAX})"""  # noqa: S608 - our own words
        for key, _, values in every
    )
    return f"""
    WITH seen AS (SELECT id, agent_id, rules, run_ref, plan_id FROM approvals_approval
        WHERE id = ANY(%s::bigint[]))
    {parts}"""  # noqa: S608 - our own words
