"""Mallory has the credentials of the desk's database role: names, owners, settings, what people
were asked, what is sealed and where connections lead stay as they are (test_past_the_desk.py).
"""

import psycopg
import pytest
from django.conf import settings

from approvals import consent_requests, deciders, inbox, named_lists
from connectors import connections
from ledger import desk_events
from tests.approvals.cast import as_the_desk, put_in_force
from tests.approvals.test_past_the_desk import FINANCE, REFUSED, desk, mallory  # noqa: F401
from tests.approvals.test_wishes import ask_first  # noqa: F401 - a fixture
from tests.servers import as_runtime
from workspaces import teams
from workspaces.models import Act, Secret

pytestmark = pytest.mark.django_db(transaction=True)

ROUND = """
CREATE TEMP TABLE workspaces_act AS SELECT * FROM workspaces_act WITH NO DATA;
INSERT INTO workspaces_act (workspace_id, type, data)
    SELECT id, 'member.added', '{"team": "finance", "person": "mallory@example.com"}'
    FROM workspaces_workspace;
CREATE TEMP TABLE pg_class AS SELECT oid, 'amends_desk'::regrole::oid AS relowner
    FROM pg_catalog.pg_class; SET LOCAL search_path = pg_temp, pg_catalog, public"""


def test_a_table_of_her_own_that_is_called_like_ours_tells_nothing(desk, acme, finance, mallory):  # noqa: F811
    """PostgreSQL looks among a session's temporary tables first, whatever asks."""
    into = "INSERT INTO public.workspaces_user_groups (user_id, group_id) VALUES ({}, {})"
    for shadows in ROUND.split(";")[:2], ROUND.split(";"):
        with pytest.raises(REFUSED, match="the act that tells of it"):
            desk(*shadows, into.format(mallory.pk, finance.group_id))
    assert not finance.group.user_set.filter(pk=mallory.pk).exists()


def test_what_a_team_is_called_and_what_a_right_is_called_stays_so(desk, acme, ask, ben, mallory):  # noqa: F811
    """A policy names a team, and a team is granted a right by its name."""
    viewers = mallory.groups.get().team
    desk(
        "WITH made AS (INSERT INTO auth_group (name) VALUES ('mine') RETURNING id)"
        " INSERT INTO workspaces_user_groups (user_id, group_id) SELECT %(who)s, id FROM made",
        who=mallory.pk,
    )
    for change in (
        "UPDATE auth_permission SET codename = 'approve' WHERE codename = 'view_sensitive'",
        "UPDATE django_content_type SET model = 'another'",
        "UPDATE workspaces_team SET name = 'other'",
        "UPDATE workspaces_team SET group_id = %(group)s WHERE name = 'finance'",
        "DELETE FROM workspaces_team",
        (
            "INSERT INTO workspaces_team (workspace_id, name, group_id)"
            " SELECT %(acme)s, 'board', id FROM auth_group WHERE name = 'mine'"
        ),
    ):
        with pytest.raises(REFUSED):
            desk(change, group=viewers.group_id, acme=acme.pk)
    assert list(deciders.entitled(ask(FINANCE))) == [ben.pk]


def test_nobody_is_taken_out_and_no_right_withdrawn_unheard(desk, acme, ada, ben, finance):  # noqa: F811
    """Who no longer may decide might break the glass, or look at how it was broken."""
    of_another = (
        "INSERT INTO workspaces_act (workspace_id, type, at, data) VALUES (%(acme)s,"
        ' \'member.removed\', now(), \'{"team": "finance", "person": "eve@example.com"}\')'
    )
    taken_out = "DELETE FROM workspaces_user_groups WHERE group_id = %(finance)s"
    for changes in (
        [taken_out],
        [taken_out, of_another],
        ["DELETE FROM workspaces_workspacegrouppermission"],
    ):
        with pytest.raises(REFUSED, match="without the act that tells of it"):
            desk(*changes, acme=acme.pk, finance=finance.group_id)
    with as_the_desk():
        teams.withdraw(finance, "approve", by=ada)
        teams.remove(finance, ben, by=ada)
    assert not ben.groups.exists()


def test_who_counts_and_what_is_kept_change_with_the_policy_alone(desk, acme, ada, agent):  # noqa: F811
    for change in (
        "UPDATE workspaces_workspace SET probation_seconds = 0",
        "UPDATE workspaces_workspace SET retention_days = 1",
        "UPDATE workspaces_workspace SET mask = '{}', mask_shows_last4 = true",
        f"UPDATE workspaces_workspace SET founder_id = {ada.pk}",
        "UPDATE workspaces_workspace SET slug = 'globex'",
        "UPDATE workspaces_workspace SET masking_key = ''",
        "DELETE FROM workspaces_workspace",
        f"UPDATE workspaces_agent SET owner_id = {ada.pk}",
    ):
        with pytest.raises(REFUSED):
            desk(change)
    with as_the_desk():
        put_in_force(acme, ada, {"policies": {}, "probation": "2h"})
    acme.refresh_from_db()
    assert acme.probation_seconds == 7200


def test_a_list_keeps_its_name(desk, acme, ada):  # noqa: F811
    named_lists.create(acme, "payees", "text")
    with pytest.raises(REFUSED):
        desk("UPDATE approvals_namedlist SET name = 'retired'")


def test_what_the_affected_person_wants_is_what_they_said(desk, ask_first, ben):  # noqa: F811
    approval = ask_first("must")
    [wish] = approval.consent_requests.all()
    for change in (
        "UPDATE approvals_wish SET answer = 'yes', answered_at = now()",
        "DELETE FROM approvals_wish",
        "UPDATE approvals_wish SET token_digest = 'mine'",
        (
            "INSERT INTO approvals_wish (approval_id, person_ref, name, contact, question,"
            " token_digest, token_sealed, asked_at, answer, note, answered_at) SELECT approval_id,"
            " 'bob', '', '', '', 'mine', '', now(), 'yes', '', now() FROM approvals_wish"
        ),
    ):
        with pytest.raises(REFUSED):
            desk(change)
    with as_the_desk():
        consent_requests.answer(wish, "no", "I never asked for it")
    with pytest.raises(REFUSED, match="written once"):
        desk("UPDATE approvals_wish SET answer = 'yes'")
    with pytest.raises(inbox.NotEntitled):
        inbox.grant(approval, by=ben, seen=approval.digest)


def test_a_secret_is_shown_in_no_other_ones_place(desk, acme, ask_first, ben):  # noqa: F811
    """Each sealed text opens with the same keys, so a link would show whatever stands there."""
    [wish] = ask_first("must").consent_requests.all()
    assert "/ask/" in consent_requests.link_of(wish)
    Secret.objects.seal(acme, "crm (compensate)", {"token": "hunter2"})
    with pytest.raises(REFUSED):
        desk("UPDATE workspaces_secret SET sealed = ''")

    wish.token_sealed = Secret.objects.get(name="crm (compensate)").sealed
    assert consent_requests.link_of(wish) == ""


INTO = "INSERT INTO workspaces_user_groups (user_id, group_id) VALUES (%(who)s, %(group)s)"


def test_where_a_connection_leads_is_changed_on_the_record(desk, acme, ada):  # noqa: F811
    there = {"host": "mail.example.com", "sender": "desk@example.com"}
    with as_the_desk():
        made = connections.create(acme, "mail", "smtp", there, by=ada)
        connections.set_secret(made, "compensate", {"user": "u", "password": "p"}, by=ada)
        connections.disable(made, by=ada)
    elsewhere = """'{"host": "mail.evil.example", "sender": "desk@example.com"}'"""
    for change in (
        f"UPDATE connectors_connection SET settings = {elsewhere}",
        f"UPDATE connectors_connection SET sandbox_settings = {elsewhere}",
        "UPDATE connectors_connection SET observe_secret_id = compensate_secret_id",
        "UPDATE connectors_connection SET connector = 'http'",
        "UPDATE connectors_connection SET link = 'https://evil.example/{id}'",
        "UPDATE connectors_connection SET disabled_at = NULL",
        (
            "INSERT INTO connectors_connection (workspace_id, name, connector, settings,"
            " sandbox_settings, settings_digest, revision, compensate_secret_id, created_at,"
            f" last_error, concurrency, failures_in_a_row) SELECT workspace_id, 'mine', 'smtp',"
            f" {elsewhere}, '{{}}', '', 1, compensate_secret_id, now(), '', 4, 0"
            " FROM connectors_connection"
        ),
    ):
        with pytest.raises(REFUSED, match="the act that tells of it"):
            desk(change)
    of_another = (
        "INSERT INTO workspaces_act (workspace_id, type, at, data) SELECT workspace_id,"
        " 'connection.updated', now(), '{\"connection\": \"crm\"}' FROM connectors_connection"
    )
    with pytest.raises(REFUSED):
        desk(f"UPDATE connectors_connection SET settings = {elsewhere}", of_another)
    with as_the_desk():
        made.refresh_from_db()
        moved = connections.update(made, there | {"host": "mx.example.com"}, by=ada, revision=1)
        connections.enable(moved, by=ada)
    assert moved.compensate_secret is None, "and past no server that it was not entered for"


@pytest.fixture
def nobody_takes_in(monkeypatch):
    """Acts wait, as where the process that wrote them has died; the job comes seconds later."""
    monkeypatch.setattr(desk_events, "take_in", lambda: 0)


@pytest.mark.usefixtures("nobody_takes_in")
def test_an_act_that_still_waits_tells_of_no_other_change(desk, acme, ada):  # noqa: F811
    there = {"host": "mail.example.com", "sender": "desk@example.com"}
    with as_the_desk():
        made = connections.create(acme, "mail", "smtp", there, by=ada)
        connections.set_secret(made, "compensate", {"user": "u", "password": "p"}, by=ada)
        connections.update(made, there, by=ada, revision=1, link="https://mail.example.com/{id}")
    assert Act.objects.filter(taken_in_at=None, type="connection.updated").exists()
    elsewhere = """'{"host": "mail.evil.example", "sender": "desk@example.com"}'"""
    for change in (
        "link = 'https://evil.example/{id}'",
        f"sandbox_settings = {elsewhere}",
        f"settings = {elsewhere}",
        "observe_secret_id = compensate_secret_id",
    ):
        with pytest.raises(REFUSED, match="the act that tells of it"):
            desk(f"UPDATE connectors_connection SET {change}")


@pytest.mark.usefixtures("nobody_takes_in")
def test_who_was_taken_out_is_not_back_by_an_old_act(desk, ada, finance, mallory):  # noqa: F811
    with as_the_desk():
        teams.add(finance, mallory, by=ada)
        teams.remove(finance, mallory, by=ada)
    assert Act.objects.filter(taken_in_at=None, type="member.added").exists()
    with pytest.raises(REFUSED, match="the act that tells of it"):
        desk(INTO, who=mallory.pk, group=finance.group_id)


@pytest.mark.usefixtures("nobody_takes_in")
def test_what_others_put_on_the_record_meanwhile_is_not_hers(acme, ada, finance, mallory):  # noqa: F811
    """She begins before an administrator acts, and changes something once they have."""
    payees = named_lists.create(acme, "payees", "text")
    url = as_runtime(settings.DATABASE_URL)
    with psycopg.connect(url, autocommit=True) as hers, hers.transaction(force_rollback=True):
        hers.execute("SELECT pg_current_xact_id(), now()")
        with as_the_desk():
            put_in_force(acme, ada, {"policies": {}, "probation": "2h"})
            named_lists.change(payees, by=ada, add=[named_lists.NewEntry("IT-1")])
            teams.add(finance, mallory, by=ada)
            teams.remove(finance, mallory, by=ada)
        hers.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for change in (
            "UPDATE workspaces_workspace SET probation_seconds = 0",
            INTO,
            (
                "INSERT INTO approvals_listentry (list_id, key, mark, shown, label, since)"
                " SELECT id, 'mine', '', '', '', version FROM approvals_namedlist"
            ),
        ):
            with pytest.raises(REFUSED), hers.transaction():
                hers.execute(change, {"who": mallory.pk, "group": finance.group_id})
