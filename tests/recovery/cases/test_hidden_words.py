"""What a reader is not shown finds nothing for them: not by its digits, nor by its beginning."""

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.postgres.search import SearchVector
from django.db import connection
from django.db.models import Value
from django.test import Client

from ledger import finding
from ledger.models import Run
from recovery import search
from recovery.models import Case
from tests.approvals.cast import asker
from tests.people import person, team
from tests.recovery.cases.cast import AgentRun

IBAN = "DE89 3704 0044 0532 0130 00"
WHOLE = IBAN.replace(" ", "")
TOKEN = "tok_live_8fQ2mZ7xK1pV4sJ9"
PROBES = ["DE89", "3704", "DE8937040044", "tok_live_8fQ2", TOKEN]


@pytest.fixture
def readers(acme):
    """Vic sees no payloads, Sue does."""
    return (
        person("vic", team(acme, "viewers", "view")),
        person("sue", team(acme, "seniors", "view", "view_sensitive")),
    )


@pytest.fixture
def paid(agent, policy):
    run = AgentRun(agent, "run_1").begins(f"Pay {IBAN} and {WHOLE} with {TOKEN} to Nora, O-77x")
    done = run.does("tickets.update", ("account", WHOLE, {"a": 1}, {"a": 2}))
    run.ends("failed", failed_action=done, error={"type": "Gone", "message": "no such account"})
    run.case()
    Case.objects.filter(run__run="run_1").update(customer=f"acc_{WHOLE}", failed_target=WHOLE)
    finding.catch_up()
    return agent.workspace


def page(reader, path, **query):
    client = Client()
    client.force_login(reader)
    return client.get(path, query).content.decode()


def runs_listed(workspace, reader, q):
    return "/runs/run_1/" in page(reader, f"/w/{workspace.slug}/runs/", q=q, state="failed")


def cases(workspace, reader, q):
    return bool(search.find(workspace, q, by=reader).cases)


@pytest.mark.parametrize("q", PROBES)
def test_a_word_of_a_secret_finds_for_whoever_is_shown_it_alone(paid, readers, q):
    vic, sue = readers
    begins = f"{q}*"
    assert [cases(paid, one, q) for one in (vic, sue)] == [False, True]
    assert [runs_listed(paid, one, begins) for one in (vic, sue)] == [False, True]


def test_what_everybody_is_shown_finds_for_everybody(paid, readers):
    for reader in readers:
        for q in ("Nora", "O-77x", "account"):
            assert cases(paid, reader, q), q
        assert runs_listed(paid, reader, "nora 77x")
    for sign in (finding.MARK, f"{finding.MARK * 2}", f"x/{finding.MARK}"):
        assert not cases(paid, readers[0], f"{sign}DE89"), "it stands in no word that is typed"


def test_a_phrase_of_a_secret_is_found_as_it_is_written(paid, readers):
    vic, sue = readers
    assert [cases(paid, one, '"DE89 3704 0044"') for one in (vic, sue)] == [False, True]


@pytest.mark.parametrize("q", ["target:DE89*", "target:*0130*", "customer:acc_DE*"])
def test_a_pattern_finds_no_value_that_is_hidden(paid, readers, q):
    vic, sue = readers
    assert [cases(paid, one, q) for one in (vic, sue)] == [False, True]
    Case.objects.update(failed_target="DE89", customer="acc_DE89 0130")
    assert cases(paid, vic, "target:DE*")
    assert cases(paid, vic, "customer:acc_DE*")


def test_what_is_offered_while_one_types_tells_no_beginning(paid, readers):
    vic, sue = readers
    offered = [
        [one.text for one in search.suggest(paid, "target:DE", by=reader)] for reader in (vic, sue)
    ]
    assert offered == [[], [WHOLE]]


def test_a_secret_of_a_headline_finds_no_approval(acme, readers, ada):
    approval = asker(acme, None)(by=None)
    approval.headline = f"Refund 50.00 to {IBAN}"
    approval.save(update_fields=["headline"])
    address = "/w/acme/approvals/"

    def listed(reader, q):
        return f"approvals/{approval.pk}/" in page(reader, address, q=q, view="all")

    vic = readers[0]
    assert [listed(vic, q) for q in ("refund", "3704", "DE8")] == [True, False, False]
    assert [listed(ada, q) for q in ("refund", "3704", "DE8")] == [True, True, True]


def test_what_older_versions_put_together_is_put_together_anew(paid, readers):
    def indexed(model, text):
        model.objects.update(search=SearchVector(Value(text), config="simple"))

    indexed(Case, f"Gone {WHOLE} run_1")
    indexed(Run, f"pay {WHOLE} inworkspace{paid.pk} instatefailed")
    vic = readers[0]
    assert cases(paid, vic, "DE89")
    assert runs_listed(paid, vic, "DE89*")

    migration = import_module("recovery.migrations.0036_secrets_among_the_words")
    migration.hide(apps, connection.schema_editor())
    finding.catch_up()

    assert [cases(paid, one, "DE89") for one in readers] == [False, True]
    assert [runs_listed(paid, one, "DE89*") for one in readers] == [False, True]
    assert cases(paid, vic, "Nora")
