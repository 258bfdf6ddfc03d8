"""Every list page: as many queries for thirty rows as for three, and no heavier than 60 kB.

The rows are of all that a list can hold. An address of a list that is not in LISTS fails, so that a
new one is counted too.
"""

import gzip
import re
from collections import Counter
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals import inbox, named_lists, versions
from config.edge import served
from connectors import channels, connections
from recovery.models import Case, Residue
from recovery.triage import triage
from recovery.views.saved_views import save_view
from tests.approvals.cast import asker, refund
from tests.people import logged_in, person, team
from tests.recovery.cases.conftest import POLICY
from tests.recovery.cases.test_disclosure import W, routes
from workspaces import entrance, keys, teams
from workspaces.models import Agent

pytestmark = pytest.mark.django_db

FEW, MANY = 3, 30
LISTS = (
    "queue/", "queue/?q=is:open,closed", "causes/", "bulk/", "views/", "residue/", "corrections/",
    "runs/", "ledger/", "audit/", "approvals/", "approvals/?view=all", "approvals/history/",
    "approvals/grants/", "approvals/health/", "policies/", "policies/lists/", "policies/reported/",
    "tools/",
    "connectors/", "channels/", "insights/", "settings/members/", "settings/keys/",
)  # fmt: skip
NO_LISTS = {
    "": "leads to the queue", "settings/": "a form", "settings/kept/": "sums of the whole desk",
    "settings/kept/progress/": "a part of the page above", "ledger/verify/": "a form",
    "connectors/new/": "a form", "policies/new/": "a form", "policies/pauses/": "is posted to",
    "queue/claim/": "is posted to", "queue/fresh/": "numbers", "queue/suggest/": "at most ten",
    "find/": "at most six of a kind",
    "approvals/fresh/": "numbers", "views/new/": "a form", "bulk/new/": "a dry run",
    "channels/new/": "is posted to", "settings/members/invite/": "is posted to",
    "settings/directory/": "of the directory", "settings/directory/tokens/": "is posted to",
    "settings/directory/people/let-back-in/": "is posted to",
    "settings/directory/teams/": "is posted to", "settings/log-in/": "of one provider",
    "settings/log-in/try/": "is posted to", "settings/log-in/save/": "is posted to",
    "settings/log-in/end/": "is posted to",
    "settings/delegations/": "is posted to", "settings/teams/": "is posted to",
    "settings/keys/new/": "is posted to",
    "settings/agents/": "is posted to", "settings/tokens/": "is posted to",
    "corrections/settings/": "a form", "approvals/health/proposal/": "one proposal",
    "settings/summary/": "a form", "settings/signing-keys/": "of one person at a time",
    "teach/": "a form",
}  # fmt: skip
WEIGHT_BYTES_MAX = 60_000
"""Compressed, with the sheet and the scripts, without the letters."""


@pytest.fixture
def grow(acme, ada, ben, cleo, agent, policy, begin_run, ticket):
    """Make everything of which there are lists, as often as it is said."""
    ask = asker(acme, ben)

    def more(numbers):
        for number in numbers:
            _works(number, begin_run, ticket)
            _is_set_up(number, acme, ada)
        triage.look()
        for number in numbers:
            _is_worked_on(number, ada)
            _is_asked(number, ask, cleo)

    return more


def _works(number, begin_run, ticket):
    row = ticket | {"id": f"T-{number}"}
    run = begin_run(f"run_{number}")
    change = ("ticket", f"main/T-{number}", row, row | {"priority": "high"})
    run.does("tickets.update", change)
    letter = "abcdefghij"[number % 10] * (number // 10 + 1)
    run.fails(f"tool_{number}.call", message=f"Refused {letter}")
    run.ends("failed")


def _is_set_up(number, acme, ada):
    Agent.objects.create(workspace=acme, name=f"agent-{number}", owner=ada)
    keys.create_key(Agent.objects.get(name=f"agent-{number}"), name=f"key {number}", by=ada)
    channels.create(acme, f"mail-{number}", "mail", by=ada, settings={"to": ["a@acme.example"]})
    where = {"host": f"db{number}.example.com", "database": "x", "tables": {"t": {"key": ["id"]}}}
    connections.create(acme, f"base-{number}", "sql", where, by=ada)
    versions.save(acme, POLICY + f"\n# {number}\n", by=ada)
    named_lists.create(acme, f"list_{number}", "mail")
    save_view(acme, by=ada, name=f"view {number}", query=f"tool:tool_{number}*", shared=True)
    group = team(acme, f"team-{number}", "view")
    person(f"member{number}", group)
    entrance.invite(acme, f"guest{number}@example.com", [group], by=ada)


def _is_worked_on(number, ada):
    case = Case.objects.get(run__run=f"run_{number}")
    due = timezone.now() + timedelta(days=1)
    Residue.objects.create(case=case, owner=ada, text=f"Call c_{number}", due_at=due)


def _is_asked(number, ask, cleo):
    ask(calls=[refund(100 + number)])
    over = ask(calls=[refund(200 + number)])
    inbox.reject(over, by=cleo, seen=over.digest, reason="not so much")


@pytest.fixture
def reader(acme, ada, leads):
    """Ada with every right there is, so that each page shows all that it has."""
    for one in (leads, team(acme, "heads", "view", "view_sensitive", "administer")):
        teams.add(one, ada, by=None)
    return logged_in(ada)


def test_every_list_is_counted():
    plain = {one.removeprefix(W) for one in routes() if one.startswith(W)}
    plain = {one for one in plain if "<" not in one}

    assert plain - {one.partition("?")[0] for one in LISTS} - set(NO_LISTS) == set()


def test_thirty_rows_take_as_many_queries_as_three_and_sixty_kilobytes(reader, grow):
    grow(range(FEW))
    for one in LISTS:
        reader.get(f"/w/acme/{one}")  # what a process learns once, it has learnt
    few = {one: asked_for(reader, one) for one in LISTS}

    grow(range(FEW, MANY))
    many = {one: asked_for(reader, one) for one in LISTS}

    assert not (again := asked_again(few, many)), "\n".join(again)
    heavy = {one: weight for one in LISTS if (weight := weight_of(many[one][1])) > WEIGHT_BYTES_MAX}
    assert heavy == {}


def asked_again(few, many):
    """The statements that a page with many rows asks more often than with few, if it asks more."""
    return [
        f"{one}: {count} times {sql[:300]}"
        for one, (statements, _) in many.items()
        for sql, count in (Counter(statements) - Counter(few[one][0])).items()
        if len(statements) > len(few[one][0])
    ]


def asked_for(reader, path):
    """The statements of a page, values apart, and its text."""
    with CaptureQueriesContext(connection) as asked:
        page = reader.get(f"/w/acme/{path}")
    assert page.status_code == 200, path
    plain = [re.sub(r"'[^']*'|\d+", "?", one["sql"]) for one in asked]
    return [re.sub(r"\?(, \?)+", "?", one) for one in plain], page.text


def weight_of(html):
    """What a browser that knows nothing loads of a page: itself, sheet, scripts, pictures."""
    linked = set(re.findall(rf'{settings.STATIC_URL}([^"#?]+\.(?:css|js|svg))', html))
    waiting, files = [STATIC / _plain(one) for one in linked], set()
    while waiting:
        one = waiting.pop()
        if one.exists() and one not in files:
            files.add(one)
            imported = re.findall(r'^import .*"\./(.+)";', one.read_text(), re.MULTILINE)
            waiting += [one.parent / name for name in imported]
    return _weight(html.encode()) + sum(map(_weight_of_file, files))


STATIC = Path(settings.STATICFILES_DIRS[0])


def _weight(text):
    return len(gzip.compress(text, 6))


@cache
def _weight_of_file(file):
    return _weight(served(str(file.relative_to(STATIC)), file.read_bytes()))


def _plain(name):
    """Without the digest that a deployment's static files have in their names."""
    return re.sub(r"\.[0-9a-f]{12}(\.\w+)$", r"\1", name)
