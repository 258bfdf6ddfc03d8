"""A desk is set up by script: what the commands make is what the pages make, and it works."""

import io
import json
import sys

import pytest
from django.core.management import CommandError, call_command
from django.db import connection as db

from connectors import accounts, registry
from connectors.models import Connection
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Caller
from tests.people import logged_in
from workspaces.models import Act, Agent, APIKey, Secret

pytestmark = pytest.mark.django_db(transaction=True)
ADA = ("--by", "Ada@example.com")
CANARY = "whsec_Y2FuYXJ5LXNlY3JldC10aGF0LW5vYm9keS1zZWVz"
SECOND = "whsec_Y2FuYXJ5LXNlY3JldC10aGF0LWNvbWVzLWFmdGVy"
SETTINGS = {
    "url": "https://licences.acme.example/amends",
    "operations": {"undo": {"title": "Undo"}},
}


def run(command, *words):
    said, aside = io.StringIO(), io.StringIO()
    call_command(command, "acme", *words, stdout=said, stderr=aside)
    return said.getvalue()


@pytest.fixture
def file(tmp_path):
    def write(name, value):
        (tmp_path / name).write_text(json.dumps(value))
        return str(tmp_path / name)

    return write


def test_an_agent_and_a_key_of_it_are_made_and_the_key_begins_a_call(acme, ada, ben):
    put_in_force(acme, ada, {"policies": {"crm.*": {"approval": "AUTO"}}})

    add = ("add", "bot", "--owner", "ben@example.com", "--description", "Books trips")
    assert "bot is added" in run("agents", *add, *ADA)
    assert "without a key" in run("agents")
    token = run("agents", "key", "bot", *ADA).removesuffix("\n")

    assert Caller(token).begin().json()["answer"] == "proceed"
    made = APIKey.objects.get()
    assert (made.scopes, made.trusted_runtime) == ([*APIKey.OF_AGENTS], False)
    assert Agent.objects.get().owner == ben
    acts = [(one.type, one.person, one.data) for one in Act.objects.order_by("pk")][-2:]
    told = {"key": made.prefix, "agent": "bot", "scopes": made.scopes, "trusted": False}
    assert acts == [
        ("agent.created", ada, {"agent": "bot", "owner": "ben@example.com"}),
        ("key.created", ada, told),
    ]
    [row] = json.loads(run("agents", "--json"))
    assert (row["agent"], row["owner"], row["state"]) == ("bot", "ben@example.com", "active")
    assert token not in str(row) + run("agents")

    run("agents", "revoke", made.prefix, *ADA)
    run("agents", "revoke", made.prefix, *ADA)

    assert Caller(token).begin(action="act_2").status_code == 401
    assert Act.objects.filter(type="key.revoked").count() == 1
    assert "revoked" in run("agents")


def test_a_key_has_the_scopes_and_the_end_that_were_said_as_in_the_form(acme, ada, agent):
    scopes = ("--scope", "ingest", "--scope", "import")

    run("agents", "key", agent.name, *scopes, "--trusted", "--days", "30", *ADA)

    made = APIKey.objects.get()
    assert (made.scopes, made.trusted_runtime) == (["ingest", "import"], True)
    assert (made.expires_at - made.created_at).days in {29, 30}
    for wrong, why in (
        (("--scope", "begin", "--scope", "import"), "does not both act and import"),
        (("--days", "5000"), "days:"),
        (("--scope", "approve"), "invalid choice"),
    ):
        with pytest.raises(CommandError, match=why):
            run("agents", "key", agent.name, *wrong, *ADA)
    assert APIKey.objects.count() == 1


def test_adding_an_agent_a_second_time_changes_nothing_and_says_what_differs(acme, ada, ben):
    add = ("add", "bot", "--description", "Books trips", *ADA)
    run("agents", *add)

    assert "as you say" in run("agents", *add)
    assert "as you say" in run("agents", "add", "bot", "--by", "ada@example.com")
    with pytest.raises(CommandError, match="another owner, another description"):
        run("agents", "add", "bot", "--owner", ben.email, "--description", "Pays", *ADA)
    assert Act.objects.filter(type="agent.created").count() == 1


REFUSED = [
    (("agents", "add", "bot", "--by", "ben@example.com"), "may not.*administer"),
    (("agents", "add", "bot", "--by", "eve@example.com"), "Nobody here has the address eve"),
    (("agents", "add", "bot"), "--by"),
    (("agents", "add", "no blanks", *ADA), "name: Letters, digits"),
    (("agents", "add", "bot", "--owner", "dev@example.com", *ADA), "no member of Acme"),
    (("agents", "key", "bot", *ADA), "no agent “bot” in Acme"),
    (("agents", "revoke", "0123456789", *ADA), "No agent of Acme has a key 0123456789"),
    (("connections", "disable", "shop", *ADA), "no connection “shop” in Acme"),
    (("connections", "disable", "shop", "--by", "ben@example.com"), "may not"),
]


def test_what_a_form_refuses_is_refused_in_words(acme, ada, ben, dev, subtests):
    before = Act.objects.count()

    for words, why in REFUSED:
        with subtests.test(words=words):
            with pytest.raises(CommandError, match=why):
                run(*words)
            assert not Agent.objects.exists()
            assert Act.objects.count() == before


def test_a_connection_is_added_with_its_credentials_and_offered_to_a_twin(
    acme, ada, file, monkeypatch
):
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"observe": {"secret": CANARY}})))
    settings = ("--settings-file", file("settings", SETTINGS))
    add = ("add", "licences", "--connector", "webhook", *settings)

    said = run("connections", *add, "--credentials-file", "-", *ADA)

    begun = {"source": "policies: {}", "act": "twin_add", "note": ""}
    offered = logged_in(ada).post("/w/acme/policies/new/", begun).text
    assert '<option value="licences"' in offered
    made = Connection.objects.get()
    assert made.observe_secret.open() == {"secret": CANARY}
    [row] = json.loads(run("connections", "--json"))
    assert (row["name"], row["connector"], row["state"]) == ("licences", "webhook", "incomplete")
    assert (row["may_observe"], row["may_compensate"], row["last_ok_at"]) == (True, False, None)
    assert CANARY not in said + str(row) + run("connections")

    # Again, with what was missing, and with what the schema says anyway.
    operations = {"undo": {"title": "Undo", "observes": True}}
    settings = ("--settings-file", file("settings", SETTINGS | {"operations": operations}))
    both = {"observe": {"secret": CANARY}, "compensate": {"secret": CANARY}}
    again = (*add, *settings, "--credentials-file", file("both", both), *ADA)
    assert "as you say" in run("connections", *again)
    assert run("connections", *again) == "licences is there already, as you say.\n"
    assert [one.type for one in Act.objects.order_by("pk")][-3:] == [
        "connection.created", "connection.secret_set", "connection.secret_set",
    ]  # fmt: skip

    run("connections", "disable", "licences", *ADA)
    assert "paused" in run("connections")
    run("connections", "enable", "licences", *ADA)
    assert "uncalled" in run("connections")


def test_a_connection_that_is_otherwise_is_not_changed_and_said_to_differ(acme, ada, file):
    add = ("add", "licences", "--connector")
    given = ("--settings-file", file("settings", SETTINGS), *ADA)
    secret = ("--credentials-file", file("old", {"observe": {"secret": CANARY}}))
    run("connections", *add, "webhook", *given, *secret)
    other = ("--settings-file", file("other", SETTINGS | {"url": "https://b.example/"}), *ADA)
    renewed = file("new", {"observe": {"secret": SECOND}})

    with pytest.raises(CommandError, match="another url, another credential to observe") as told:
        run("connections", *add, "webhook", *other, "--credentials-file", renewed)
    with pytest.raises(CommandError, match="another connector"):
        run("connections", *add, "http", *given)
    assert CANARY not in str(told.value)
    run("connections", "credentials", "licences", "--credentials-file", renewed, *ADA)

    made = Connection.objects.get()
    assert (made.settings, made.revision) == (SETTINGS, 1)
    assert made.observe_secret.open() == {"secret": SECOND}
    assert Secret.objects.count() == 1


def test_what_does_not_fit_the_connector_is_refused_and_nothing_of_it_stays(
    acme, ada, file, tmp_path
):
    (tmp_path / "broken").write_text(f'{{"secret": "{CANARY}"')
    fits, broken = file("settings", SETTINGS), str(tmp_path / "broken")
    right = ("webhook", "--settings-file", fits)
    add = ("add", "licences", *ADA, "--connector")
    for words, why in (
        (("webhook", "--settings-file", file("more", {**SETTINGS, "colour": "red"})), "colour"),
        (("pigeon", "--settings-file", fits), "pigeon"),
        (("webhook", "--settings-file", str(tmp_path / "gone")), "cannot be read"),
        (("webhook", "--settings-file", file("list", [])), "no object"),
        ((*right, "--credentials-file", broken), "cannot be read"),
        ((*right, "--credentials-file", file("c", {"secret": CANARY})), "and compensate alone"),
        ((*right, "--credentials-file", file("d", {"observe": {"key": CANARY}})), "wants: secret"),
    ):
        with pytest.raises(CommandError, match=why) as told:
            run("connections", *add, *words)
        assert CANARY not in str(told.value)
    assert not Connection.objects.exists()


def test_a_connection_whose_connector_is_gone_is_listed_all_the_same(acme, ada, file, monkeypatch):
    given = ("--settings-file", file("settings", SETTINGS), *ADA)
    run("connections", "add", "licences", "--connector", "webhook", *given)
    monkeypatch.setattr(registry, "names", list)

    assert "not installed" in run("connections")


def test_no_transaction_is_open_while_a_system_is_asked_whose_its_credential_is(
    acme, ada, file, monkeypatch
):
    open_ones = []

    def ask(*_):
        open_ones.append(db.in_atomic_block)
        return ""

    monkeypatch.setattr(accounts, "ask", ask)
    shop = {"host": "db.example", "database": "shop", "tables": {"orders": {"key": ["id"]}}}
    first, second = ({"observe": {"user": user}} for user in ("mia", "eve"))
    add = ("--connector", "sql", "--settings-file", file("settings", shop))

    run("connections", "add", "shop", *add, "--credentials-file", file("first", first), *ADA)
    said = run("connections", "credentials", "shop", "--credentials-file", file("b", second), *ADA)

    assert open_ones == [False, False]
    assert "It counts as another account (eve)" in said
