"""The starters of the policy: what they say of honest and of hijacked runs."""

import pytest

from approvals import versions
from approvals.policy import load_new
from approvals.policy.expressions import CannotCompile
from bench.attacks import People, play
from tests.approvals.door import visit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("name", versions.STARTERS)
def test_every_starter_can_be_saved_and_is_offered_by_the_editor(name, acme, leads, ada, client):
    policy = load_new(versions.starter(name))

    assert policy.asks_of_unknown
    assert all(rule.words for rule in policy.always)
    for rule in (*policy.rules, *policy.always):
        people = sum(need.count for need in rule.requires) or 1
        assert people >= 2 or "two" not in rule.words, "it asks whom its words name"
    assert {rule.glob for rule in policy.always} <= {*(one.glob for one in policy.rules), "*"}
    for rule in policy.asking:
        try:
            rule.when.check_functions()
        except CannotCompile as wrong:
            raise AssertionError(f"{rule.glob}: {wrong}") from wrong
    versions.save(acme, versions.starter(name), by=ada)


def test_the_editor_starts_from_a_starter(acme, ada, operators, client):
    client.force_login(ada)
    page = client.get("/w/acme/policies/new/?starter=finance").content.decode()

    assert "An account that nobody named" in page
    assert "?starter=code-agent" in page
    assert "nobody named" not in client.get("/w/acme/policies/new/?starter=../x").content.decode()


def test_hijacked_runs_are_stopped_or_asked_about_and_most_honest_ones_go_on():
    """`python -m bench attacks` plays more of them, and prints the table."""
    people = People("story")

    def story(client):
        return play(client, people, seed=5, honest=6, attacked=1)

    table = visit(story, connections_max=4)

    assert table.stopped_or_asked >= 0.95, table.missed
    assert set(table.attacks) == {"recipient swapped", "amount split", "new account", "slow drift",
                                  "instruction in a result", "lookalike"}  # fmt: skip
    assert table.honest["proceed"] > 4 * table.honest["wait"], str(table)
