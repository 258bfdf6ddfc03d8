"""What a reader is not shown finds nothing for them: not by its digits, nor by its beginning."""

import pytest
from django.contrib.postgres.search import SearchVector
from django.db.models import Value
from django.test import Client

from ledger import disclosure, finding
from ledger.models import Run
from recovery import search
from recovery.models import Case
from recovery.triage import case_projection
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


def test_a_word_of_a_secret_finds_for_whoever_is_shown_it_alone(paid, readers, subtests):
    vic, sue = readers
    for q in PROBES:
        with subtests.test(q=q):
            assert [cases(paid, one, q) for one in (vic, sue)] == [False, True]
            assert [runs_listed(paid, one, f"{q}*") for one in (vic, sue)] == [False, True]


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
    """It tells nothing meanwhile, though that version goes on beside this one."""

    def indexed(model, text):
        model.objects.update(search=SearchVector(Value(text), config="simple"))

    indexed(Case, f"Gone {WHOLE} run_1")
    indexed(Run, f"pay {WHOLE} inworkspace{paid.pk} instatefailed")
    vic, sue = readers
    for reader, found in ((vic, False), (sue, True)):
        assert cases(paid, reader, "DE89") is found
        assert runs_listed(paid, reader, "DE89*") is found

    assert finding.catch_up() == 1
    assert case_projection.WordsWalk().goes_on() == 1

    assert [cases(paid, one, "DE89") for one in readers] == [False, True]
    assert [runs_listed(paid, one, "DE89*") for one in readers] == [False, True]
    assert cases(paid, vic, "Nora")
    assert runs_listed(paid, vic, "nora")
    assert finding.catch_up() == case_projection.WordsWalk().goes_on() == 0


def test_a_phrase_goes_on_before_and_after_a_secret(paid, readers):
    vic, sue = readers
    for phrase in (f'"Pay {IBAN}"', f'"with {TOKEN}"'):
        assert [cases(paid, one, phrase) for one in (vic, sue)] == [False, True], phrase


def test_a_whole_value_confirms_nothing_that_is_hidden(paid, readers):
    vic, sue = readers
    for q in (f"target:{WHOLE}", f"customer:acc_{WHOLE}", f"target:x,{WHOLE}"):
        assert [cases(paid, one, q) for one in (vic, sue)] == [False, True], q


def test_a_pattern_over_names_that_hide_nothing_is_read_for_everybody(paid, readers):
    for reader in readers:
        assert cases(paid, reader, "agent:t*")
        assert not cases(paid, reader, "connector:pay*")


def test_numbers_that_stand_beside_one_another_are_no_card(agent, policy, readers):
    run = AgentRun(agent, "run_1").begins("Close them")
    numbers = ["4111111", "11111111", "4021335", "4021336", "4021337"]
    done = run.does("tickets.update", *[("ticket", one, {"a": 1}, {"a": 2}) for one in numbers])
    run.ends("failed", failed_action=done, error={"type": "Gone", "message": "no such ticket"})
    run.case()
    finding.catch_up()
    for number in numbers:
        assert runs_listed(agent.workspace, readers[0], number), number
        assert cases(agent.workspace, readers[0], number), number


def test_an_erasure_that_comes_between_leaves_no_words(paid, readers, monkeypatch):
    """It changes no revision: words that were read before it were written after it, for good."""
    Run.objects.update(search_revision=0)
    parted = disclosure.parted

    def meanwhile(text):
        Run.objects.update(request="", customer="", customer_name="", search=None)
        return parted(text)

    monkeypatch.setattr(disclosure, "parted", meanwhile)
    finding.catch_up()
    monkeypatch.setattr(disclosure, "parted", parted)
    finding.catch_up()

    assert not runs_listed(paid, readers[1], "nora")
