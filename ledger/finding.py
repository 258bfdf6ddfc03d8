"""Finding runs by words: request, goal, customer, ending and errors, tools and targets.

The words are put together after the fact, by a job a second or two behind, for to do it at intake
would slow every event down. Workspace, state and agent are lexemes too: so the text index alone
answers, and the planner has no reason to walk the runs by date looking for a rare word.
"""

import re
from typing import Any

from django.contrib.postgres.search import SearchQuery
from django.db import connection
from django.db.models import QuerySet

from ledger.models import Run
from workspaces.locks import ROW_LOCK
from workspaces.models import Workspace

RUNS_AT_A_TIME = 500
ROUNDS_MAX = 20
CHARACTERS_MAX = 20_000
ACTIONS_MAX = 200
WORDS_MAX = 20
# More hits than this are found sooner by walking the runs by date: every few of them fit.
HITS_MAX = 2_000

CATCH_UP = f"""
WITH due AS MATERIALIZED (
    SELECT id FROM ledger_run WHERE is_unsearchable ORDER BY id LIMIT %s
    {ROW_LOCK} SKIP LOCKED
)
UPDATE ledger_run r SET search_revision = r.revision,
    search = to_tsvector('simple', left(concat_ws(' ', r.request, r.goal, r.run, r.customer,
            r.customer_name, r.summary, r.reason, r.error ->> 'type', r.error ->> 'message',
            g.name, (
                SELECT string_agg(concat_ws(' ', a.tool, a.error ->> 'type', a.error ->> 'message',
                    (SELECT string_agg(t ->> 'id', ' ') FROM jsonb_array_elements(a.targets) t)
                ), ' ')
                FROM (SELECT * FROM ledger_action WHERE run_id = r.id LIMIT %s) a
            )), %s))
        || array_to_tsvector(ARRAY['inworkspace' || r.workspace_id, 'instate' || r.state])
FROM due LEFT JOIN ledger_run own ON own.id = due.id
LEFT JOIN workspaces_agent g ON g.id = own.agent_id
WHERE r.id = due.id"""  # noqa: S608 - our own words


def catch_up() -> int:
    """Put together the words of runs that changed; returns of how many."""
    done = 0
    for _ in range(ROUNDS_MAX):
        with connection.cursor() as cursor:
            cursor.execute(CATCH_UP, [RUNS_AT_A_TIME, ACTIONS_MAX, CHARACTERS_MAX])
            done += cursor.rowcount
            if cursor.rowcount < RUNS_AT_A_TIME:
                break
    return done


def narrowed(found: QuerySet[Run], workspace: Workspace, q: str, state: str = "") -> QuerySet[Run]:
    """Of `found` the runs that hold all words of `q`; a word that ends in * is a beginning."""
    query = _query(workspace, q, state)
    if query is None:
        return found.none()
    hits = Run.objects.filter(search=query)
    ids = list(hits.order_by().values_list("pk", flat=True)[: HITS_MAX + 1])
    if len(ids) > HITS_MAX:
        return found.filter(search=query)
    return found.filter(pk__in=ids)


def _query(workspace: Workspace, q: str, state: str) -> SearchQuery | None:
    words = [_term(word) for word in _words(q)]
    if not words:
        return None
    own = [f"inworkspace{workspace.pk}"] + ([f"instate{state}"] if state.isalpha() else [])
    return SearchQuery(" & ".join([*own, *words]), config="simple", search_type="raw")


def _words(q: str) -> list[Any]:
    """(word, is a beginning), cut at anything but letters and digits."""
    return [
        (word.rstrip("*"), word.endswith("*"))
        for word in re.findall(r"\w+\*?", q.lower())[:WORDS_MAX]
    ]


def _term(word: tuple[str, bool]) -> str:
    text, is_beginning = word
    return f"'{text}'{':*' if is_beginning else ''}"
