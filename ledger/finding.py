"""Finding runs by words: request, goal, customer, ending and errors, tools and targets.

The words are put together after the fact, by a job a second or two behind, for to do it at intake
would slow every event down. Workspace, state and agent are lexemes too: so the text index alone
answers, and the planner has no reason to walk the runs by date looking for a rare word.
"""

import re
from functools import reduce
from operator import and_
from typing import Any, Literal

from django.contrib.postgres.search import SearchQuery, SearchQueryCombinable, SearchQueryField
from django.db import connection
from django.db.models import Func, QuerySet, Value
from django.db.models.expressions import RawSQL

from ledger import disclosure
from ledger.models import Run
from workspaces.locks import ROW_LOCK
from workspaces.models import Workspace

Kind = Literal["word", "beginning", "phrase"]
MARK = "="
MARKED_MAX = 200
RUNS_AT_A_TIME = 500
ROUNDS_MAX = 20
CHARACTERS_MAX = 20_000
ACTIONS_MAX = 200
WORDS_MAX = 20
# More hits than this are found sooner by walking the runs by date: every few of them fit.
HITS_MAX = 2_000

UNSEARCHABLE = "is_unsearchable"
# Put together by a version up to 28 November 2026 (docs/versions.md says which may upgrade), that
# kept no secrets apart, and found by the lexeme that it gave them.
OLD = f"search @@ $q$'inworkspace':* & !'{MARK}'$q$::tsquery"
# Every part in a line of its own: numbers that stand side by side are no card.
DUE = """
WITH due AS MATERIALIZED (
    SELECT id FROM ledger_run WHERE {due} AND id > %s ORDER BY id LIMIT %s
)
SELECT r.id, r.xmin::text || r.ctid::text,
    left(concat_ws(E'\\n', r.request, r.goal, r.run, r.customer,
    r.customer_name, r.summary, r.reason, r.error ->> 'type', r.error ->> 'message',
    g.name, (
        SELECT string_agg(concat_ws(E'\\n', a.tool, a.error ->> 'type', a.error ->> 'message',
            (SELECT string_agg(t ->> 'id', E'\\n') FROM jsonb_array_elements(a.targets) t)
        ), E'\\n')
        FROM (SELECT * FROM ledger_action WHERE run_id = r.id LIMIT %s) a
    )), %s)
FROM due JOIN ledger_run r ON r.id = due.id
LEFT JOIN workspaces_agent g ON g.id = r.agent_id
ORDER BY r.id"""

WORDS = "to_tsvector('simple', %s) || array_to_tsvector(%s::text[])"
# What changed since it was read is left to the next turn, as is what somebody is changing: by its
# row, for an erasure changes that and no revision.
CATCH_UP = f"""
WITH read AS (
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[])
        AS one (id, row, told, secrets)
), still AS MATERIALIZED (
    SELECT r.id FROM ledger_run r JOIN read ON r.id = read.id
        AND r.xmin::text || r.ctid::text = read.row
    ORDER BY r.id {ROW_LOCK} OF r SKIP LOCKED
)
UPDATE ledger_run r SET search_revision = r.revision,
    search = to_tsvector('simple', read.told)
        || array_to_tsvector(string_to_array(read.secrets, ' '))
        || array_to_tsvector(ARRAY['ofworkspace' || r.workspace_id, 'instate' || r.state])
FROM still JOIN read ON read.id = still.id WHERE r.id = still.id"""  # noqa: S608 - our own words


def catch_up() -> int:
    """Put together the words of runs that changed, and of those that an older version left;
    returns of how many.
    """
    return _catch_up(UNSEARCHABLE) + _catch_up(OLD)


def _catch_up(due_where: str) -> int:
    done, last = 0, 0
    for _ in range(ROUNDS_MAX):
        with connection.cursor() as cursor:
            cursor.execute(
                DUE.format(due=due_where), [last, RUNS_AT_A_TIME, ACTIONS_MAX, CHARACTERS_MAX]
            )
            due = cursor.fetchall()
            if due:
                texts = [told_and_secret(text) for _, _, text in due]
                told, secrets = [one[0] for one in texts], [" ".join(one[1]) for one in texts]
                ids, rows = [row[0] for row in due], [row[1] for row in due]
                cursor.execute(CATCH_UP, [ids, rows, told, secrets])
                done += cursor.rowcount
                last = ids[-1]
        if len(due) < RUNS_AT_A_TIME:
            break
    return done


def words(text: str) -> RawSQL:
    """What a text is found by, as a value of a column of words."""
    return RawSQL(WORDS, told_and_secret(text))  # noqa: S611 - the text is a parameter


def told_and_secret(text: str) -> tuple[str, list[str]]:
    """What everybody finds, and the words of the secrets, as those find them who are shown them:
    behind a sign that PostgreSQL never leaves in a word that somebody types. The sign alone says
    that secrets are kept apart.
    """
    told, secrets = disclosure.parted(text)
    parts = {
        _letters(part)
        for one in secrets
        for part in (one, *re.findall(r"[^\W_]+", one), *re.findall(r"\w+", one))
    }
    return told, [MARK, *sorted(MARK + part for part in parts)]


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)[:MARKED_MAX].lower()


def query(text: str, kind: Kind, *, sees: bool) -> Any:
    """What finds a text among words; secrets only for whoever `sees` them (ledger/disclosure.py).

    PostgreSQL takes a quoted text apart as it took apart what it is to find.
    """
    if kind == "phrase":
        told, secrets = disclosure.parted(text) if sees else (text, [])
        found = SearchQuery(told, config="simple", search_type="phrase")
        if secrets:
            whole = [_marked(_letters(one)) for one in secrets]
            return reduce(and_, [found, *whole] if _letters(told) else whole)
    else:
        quoted = text.replace("\\", "").replace("'", "''")
        raw = f"'{quoted}'{':*' if kind == 'beginning' else ''}"
        found = SearchQuery(raw, config="simple", search_type="raw")
    secret = _letters(text)
    if not sees:
        return found & _marked("")
    return found | _marked(secret, "" if kind == "word" else ":*") if secret else found


def _marked(word: str, beginning: str = "") -> Any:
    return _Marked(Value(f"'{MARK}{word}'{beginning}"))


class _Marked(SearchQueryCombinable, Func):  # type: ignore[misc]
    """A word as it stands among the words, which no parser reads first."""

    template = "%(expressions)s::tsquery"
    output_field = SearchQueryField()
    config = None


def narrowed(
    found: QuerySet[Run], workspace: Workspace, q: str, state: str = "", *, sees: bool
) -> QuerySet[Run]:
    """Of `found` the runs that hold all words of `q`; a word that ends in * is a beginning."""
    asked = _query(workspace, q, state, sees=sees)
    if asked is None:
        return found.none()
    hits = Run.objects.filter(search=asked)
    ids = list(hits.order_by().values_list("pk", flat=True)[: HITS_MAX + 1])
    if len(ids) > HITS_MAX:
        return found.filter(search=asked)
    return found.filter(pk__in=ids)


def _query(workspace: Workspace, q: str, state: str, *, sees: bool) -> Any:
    words = re.findall(r"\w+\*?", q.lower())[:WORDS_MAX]
    if not words:
        return None
    own = query(f"ofworkspace{workspace.pk}", "word", sees=False)
    if sees:
        own |= query(f"inworkspace{workspace.pk}", "word", sees=True)  # not yet put together anew
    asked = [own]
    if state.isalpha():
        asked.append(query(f"instate{state}", "word", sees=sees))
    for one in words:
        kind: Kind = "beginning" if one.endswith("*") else "word"
        asked.append(query(one.rstrip("*"), kind, sees=sees))
    return reduce(and_, asked)
