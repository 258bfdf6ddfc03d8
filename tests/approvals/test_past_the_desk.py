"""Mallory has the credentials of the database role as which a desk runs, and nothing else. What she
writes past the desk decides nothing, hands nobody a right, and takes nothing of the record back."""

import hashlib
from datetime import timedelta

import psycopg
import pytest
from django.conf import settings
from django.utils import timezone

from amends.protocol.vocabulary import EventType
from approvals import deciders, glass_decisions, grants, inbox, named_lists
from approvals.models import Approval, BrokenGlass, GrantUse, PolicyVersion, SigningKey
from approvals.policy import PolicyUnreadable, RequiredApprovers, active, active_policies
from ledger import audit, desk_events, sealer
from tests.approvals.cast import as_the_desk, now, put_in_force, told
from tests.approvals.door import Agent as Trip
from tests.people import person, team
from tests.servers import as_runtime
from tests.worlds import kept
from workspaces import delegations, keys, teams
from workspaces.models import APIKey, Delegation, DirectoryToken, PersonToken

pytestmark = pytest.mark.django_db(transaction=True)

FINANCE = RequiredApprovers("finance", 1)
REFUSED = (psycopg.errors.InsufficientPrivilege, psycopg.errors.RestrictViolation)


@pytest.fixture
@kept
def mallory(acme):
    """A member of the workspace who may look and no more; she has the role's credentials, too."""
    return person("mallory", team(acme, "viewers", "view"))


@pytest.fixture
def desk(mallory):
    """One transaction of the desk's own role, whatever it is told to write."""

    def desk(*statements, **values):
        url = as_runtime(settings.DATABASE_URL)
        with psycopg.connect(url, autocommit=True) as runtime, runtime.transaction():
            for statement in statements:
                runtime.execute(statement, values)

    return desk


LENT = """
INSERT INTO workspaces_delegation (workspace_id, delegator_id, delegate_id, reason, starts_at,
    until, "end") VALUES (%(acme)s, %(ben)s, %(mallory)s, 'away', now(),
    now() + interval '1 day', '')"""


def test_a_right_that_nobody_handed_over_decides_nothing(desk, acme, ask, ben, mallory):
    """She writes that Ben handed her his right. Neither the desk takes her yes, nor does a yes that
    she writes herself, with its event in the ledger, count."""
    approval = ask(FINANCE)
    desk(LENT, acme=acme.pk, ben=ben.pk, mallory=mallory.pk)
    forged = Delegation.objects.get()

    assert mallory.pk not in deciders.entitled(approval)
    with pytest.raises(inbox.NotEntitled):
        inbox.grant(approval, by=mallory, seen=approval.digest)

    desk(
        "INSERT INTO approvals_decision (approval_id, person_id, delegation_id, granted, reason,"
        " seen_digest, at, teams)"
        " VALUES (%(approval)s, %(mallory)s, %(lent)s, true, '', %(digest)s, now(), '{}')",
        "UPDATE approvals_approval SET was = 'waiting', state = 'granted'",
        approval=approval.pk, mallory=mallory.pk, lent=forged.pk, digest=approval.digest,
    )  # fmt: skip
    desk_events.record(
        acme, EventType.APPROVAL_GRANTED, by=mallory, part="gate",
        data={"approval": approval.pk, "digest": approval.digest, "delegation": forged.pk},
    )  # fmt: skip
    assert grants.still_entitled(Approval.objects.get())
    assert not grants.use(approval.pk, approval.digest)
    Approval.objects.update(was="granted", state="used")
    assert grants.lost(approval.pk, approval.calls[0]["digest"]) == grants.UNRECORDED


def test_an_agent_hears_why_a_yes_that_is_only_a_row_lets_nothing_pass(desk, acme, key, ada, ben):
    """Also where the policy asks nobody any more: what stands on the row is never used unproven."""
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip = Trip(key)
    assert trip.begin(tool="pay.card").json()["answer"] == "wait"
    asked = Approval.objects.get()
    desk(
        "INSERT INTO approvals_decision (approval_id, person_id, granted, reason, seen_digest, at,"
        " teams) VALUES (%(approval)s, %(ben)s, true, '', %(digest)s, now(), '{}')",
        "UPDATE approvals_approval SET was = 'waiting', state = 'granted'",
        approval=asked.pk, ben=ben.pk, digest=asked.digest,
    )  # fmt: skip
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "AUTO"}}})

    said = trip.begin(tool="pay.card").json()

    assert (said["answer"], said["code"]) == ("denied", "not_approved")
    assert said["reason"] == "the ledger does not tell that people approved it"
    assert told(acme, "approval.denied")[-1]["reason"] == said["reason"]


def test_what_was_handed_over_on_the_record_is_used_and_stays_as_it_was_told(
    desk, acme, ask, ben, cleo, mallory
):
    dora = person("dora", team(acme, "others", "view"))
    term = delegations.Term(now(), now() + timedelta(days=2))
    row = delegations.give(acme, by=ben, to=dora, team=None, term=term, reason="away")
    approval = ask(FINANCE)
    assert mallory.pk not in deciders.entitled(approval)

    for change in (
        "UPDATE workspaces_delegation SET delegate_id = %(mallory)s",
        "UPDATE workspaces_delegation SET delegator_id = %(mallory)s",
        "UPDATE workspaces_delegation SET until = now() + interval '80 days'",
        "UPDATE workspaces_delegation SET team_id = NULL",
        "DELETE FROM workspaces_delegation",
    ):
        with pytest.raises(REFUSED):
            desk(change, mallory=mallory.pk)
    inbox.grant(approval, by=dora, seen=approval.digest)
    assert grants.use(approval.pk, approval.digest)

    delegations.revoke(row, by=ben)
    with pytest.raises(REFUSED, match="handed back"):
        desk("""UPDATE workspaces_delegation SET ended_at = NULL, ended_by_id = NULL, "end" = ''""")
    assert Delegation.objects.get().end == "revoked"


def test_the_glass_is_broken_and_reviewed_on_the_record_alone(desk, acme, ask, ada, ben, cleo):
    put_in_force(acme, ada, {"policies": {}, "breakGlass": {"after": "15m"}})
    olga = person("olga", team(acme, "more operators", "view", "administer"))
    eli = person("eli", team(acme, "agents", "view", "recover"))

    def asked():
        found = ask(FINANCE, by=eli)
        Approval.objects.filter(pk=found.pk).update(asked_at=now() - timedelta(hours=1))
        return Approval.objects.get(pk=found.pk)

    forged, real = asked(), asked()
    desk(
        "INSERT INTO approvals_brokenglass (workspace_id, approval_id, review, opened_at)"
        " VALUES (%(acme)s, %(approval)s, '', now())",
        *(
            "INSERT INTO approvals_decision (approval_id, person_id, break_glass, granted, reason,"
            " seen_digest, at, teams, fresh_login_at) VALUES"
            f" (%(approval)s, {one.pk}, true, true, '', %(digest)s, now(), '{{}}', now())"
            for one in (ada, olga)
        ),
        "UPDATE approvals_approval SET was = 'waiting', state = 'granted' WHERE id = %(approval)s",
        acme=acme.pk, approval=forged.pk, digest=forged.digest,
    )  # fmt: skip
    for one in (ada, olga):  # as of an ordinary yes, which theirs was not
        desk_events.record(
            acme, EventType.APPROVAL_GRANTED, by=one, part="gate",
            data={"approval": forged.pk, "digest": forged.digest, "break_glass": True},
        )  # fmt: skip
    assert grants.still_entitled(Approval.objects.get(pk=forged.pk))
    assert not grants.use(forged.pk, forged.digest)

    for one in (ada, olga):
        glass_decisions.agree(
            Approval.objects.get(pk=real.pk), by=one, seen=real.digest, reason="on a plane",
            login_at=timezone.now(),
        )  # fmt: skip
    assert grants.use(real.pk, real.digest)
    reviewed = "review = 'fine', reviewed_at = now(), reviewed_by_id = %(cleo)s"
    for change in (
        f"UPDATE approvals_brokenglass SET {reviewed}",
        "DELETE FROM approvals_brokenglass",
        "UPDATE approvals_brokenglass SET approval_id = approval_id",
    ):
        with pytest.raises(REFUSED):
            desk(change, cleo=cleo.pk)
    assert not BrokenGlass.objects.exclude(reviewed_at=None).exists()


def test_a_policy_comes_into_force_on_the_record_and_is_the_document_of_its_digest(desk, acme, ada):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "DENY"}}})
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    strict = PolicyVersion.objects.get(active=True)
    off = "UPDATE approvals_policyversion SET active = false WHERE active"
    for changes in (
        [off],
        [off, "UPDATE approvals_policyversion SET active = true WHERE number = 1"],
        ["DELETE FROM approvals_policyversion WHERE active"],
    ):
        with pytest.raises(REFUSED):
            desk(*changes)
    lax = (
        "INSERT INTO approvals_policyversion (id, workspace_id, number, document, source, digest,"
        " note, created_at, active, unmet) VALUES (-1, %(acme)s, 3, '{\"policies\": {}}', '',"
        " %(digest)s, '', now(), {active}, '[]')"
    )
    values = {"acme": acme.pk, "digest": strict.digest}
    with pytest.raises(REFUSED):
        desk(off, lax.replace("{active}", "true"), **values)

    desk(lax.replace("{active}", "false"), **values)  # before it, under the digest of that in force
    active_policies._compiled.clear()
    with pytest.raises(PolicyUnreadable, match="saved under its digest"):
        active_policies.of_digest(acme.pk, strict.digest)
    assert active(acme).document == strict.document


def test_nobody_is_put_into_a_team_or_granted_a_right_without_the_act_that_tells_of_it(
    desk, acme, ask, ben, finance, mallory
):
    viewers = mallory.groups.get().team
    into = "INSERT INTO workspaces_user_groups (user_id, group_id) VALUES (%(who)s, %(group)s)"
    may = (
        "INSERT INTO workspaces_workspacegrouppermission (group_id, permission_id,"
        " content_object_id) SELECT %(viewers)s, id, %(acme)s FROM auth_permission"
        " WHERE codename = 'approve'"
    )
    values = {
        "who": mallory.pk, "group": finance.group_id, "viewers": viewers.group_id, "acme": acme.pk,
    }  # fmt: skip
    for change in (
        into, may, "UPDATE workspaces_user_groups SET user_id = %(who)s WHERE group_id = %(group)s"
    ):  # fmt: skip
        with pytest.raises(REFUSED, match="the act that tells of it"):
            desk(change, **values)
    assert mallory.pk not in deciders.entitled(ask(FINANCE))

    # With an act that is then hidden from the ledger.
    act = (
        "INSERT INTO workspaces_act (workspace_id, type, at, data)"
        " VALUES (%(acme)s, 'member.added', now(),"
        ' \'{"team": "finance", "person": "mallory@example.com"}\')'
    )
    for hidden in (
        "UPDATE workspaces_act SET taken_in_at = now() WHERE taken_in_at IS NULL",
        "DELETE FROM workspaces_act WHERE taken_in_at IS NULL",
        "UPDATE workspaces_act SET data = '{}'",
    ):
        with pytest.raises(REFUSED):
            desk(into, act, hidden, **values)
    desk(into, act, **values)
    desk_events.take_in()
    assert told(acme, "member.added")[-1]["person"] == mallory.email, "so it is on the record"


def test_who_brought_somebody_in_is_known_as_long_as_they_stand_in_the_team(
    desk, acme, ada, ben, finance, leads
):
    new = person("new")
    teams.add(finance, new, by=ada)
    for change in (
        "DELETE FROM workspaces_membership",
        "UPDATE workspaces_membership SET sponsors = '{}', added_by_id = NULL",
        "UPDATE workspaces_membership SET vouched_at = now()",
        "UPDATE workspaces_membership SET added_at = now() - interval '9 days'",
    ):
        with pytest.raises(REFUSED, match="who brought a member in"):
            desk(change)
    teams.remove(finance, new, by=ada)
    teams.add(leads, new, by=ada)


def test_a_key_is_made_on_the_record_and_stays_what_it_is(desk, acme, ada, agent):
    mine = hashlib.sha256(b"amends_0badc0de_mallory").digest()
    made = {
        "workspaces_apikey": (
            ", agent_id, scopes, trusted_runtime", ", %(agent)s, '{begin}', true",
        ),
        "workspaces_persontoken": (", person_id", ", %(ada)s"),
        "workspaces_directorytoken": ("", ""),
    }  # fmt: skip
    keys.create_token(acme, by=ada, name="mine")
    keys.create_directory_token(acme, by=ada, name="mine")
    known, _ = keys.create_key(agent, by=ada, name="mine")
    for kind, (columns, more) in made.items():
        with pytest.raises(REFUSED, match="no key is made without"):
            desk(
                f"INSERT INTO {kind} (workspace_id, name, prefix, digest, created_at{columns})"
                f" VALUES (%(acme)s, 'mine', '0badc0de', %(mine)s, now(){more})",
                acme=acme.pk, mine=mine, ada=ada.pk, agent=agent.pk,
            )  # fmt: skip
        for change in ("digest = %(mine)s", "workspace_id = workspace_id", "expires_at = NULL"):
            with pytest.raises(REFUSED):
                desk(f"UPDATE {kind} SET {change}", mine=mine)
    for change in ("trusted_runtime = true", "scopes = '{begin,import}'"):
        with pytest.raises(REFUSED):
            desk(f"UPDATE workspaces_apikey SET {change}")
    keys.revoke(known, by=ada)
    with pytest.raises(REFUSED, match="stays so"):
        desk("UPDATE workspaces_apikey SET revoked_at = NULL")
    kinds = (APIKey, PersonToken, DirectoryToken)
    assert [kind.objects.count() for kind in kinds] == [1, 1, 1]


def test_a_value_comes_and_goes_with_a_version_of_its_list_that_is_on_the_record(desk, acme, ada):
    payees = named_lists.create(acme, "payees", "text")
    written = [named_lists.NewEntry("Eve"), named_lists.NewEntry("Bob")]
    with as_the_desk():
        named_lists.change(payees, by=ada, add=written)
        [bob] = payees.entries.filter(shown="Bob").values_list("key", flat=True)
        named_lists.change(payees, by=ada, remove=[bob])

    entry = (
        "INSERT INTO approvals_listentry (list_id, key, mark, shown, label, since)"
        " VALUES (%(list)s, 'mallory', '', 'mallory', '', {})"
    )
    version = (
        "INSERT INTO approvals_listchange (list_id, version, digest, by_id, note, added, removed)"
        f" VALUES (%(list)s, 9, '', {ada.pk}, '', 1, 0)"
    )
    for changes in (
        [entry.format(1)],
        [entry.format(9), version],
        ["UPDATE approvals_listentry SET until = 2 WHERE until IS NULL"],
        ["UPDATE approvals_listentry SET until = NULL"],
        ["UPDATE approvals_listentry SET key = 'mallory'"],
        ["DELETE FROM approvals_listentry"],
    ):
        with pytest.raises(REFUSED):
            desk(*changes, list=payees.pk)
    assert list(payees.entries.filter(until=None).values_list("shown", flat=True)) == ["Eve"]


def test_what_was_drawn_and_which_keys_were_taken_away_stays_so(desk, acme, ask, agent, ben):
    grant = ask(FINANCE)
    GrantUse.objects.create(
        approval=grant, agent=agent, key="k", run_ref="r", action="a", amount=9, at=now()
    )
    SigningKey.objects.create(
        workspace=acme, person=ben, credential="c", label="blue", event="e", sign_count=7,
        removed_at=now(),
    )  # fmt: skip
    for change in (
        "DELETE FROM approvals_grantuse",
        "UPDATE approvals_grantuse SET amount = 0",
        "UPDATE approvals_grantuse SET action = 'another'",
        "UPDATE approvals_grantuse SET key = 'another'",
        "UPDATE approvals_signingkey SET removed_at = NULL",
        "UPDATE approvals_signingkey SET sign_count = 0",
        "UPDATE approvals_signingkey SET person_id = person_id",
        "DELETE FROM approvals_signingkey",
    ):
        with pytest.raises(REFUSED):
            desk(change)


def test_an_event_that_was_kept_from_the_log_is_told_by_every_check(desk, acme, ask, ben):
    """She writes Ben's yes and the event that tells of it, and no turn at the sealer with it; or
    takes the turn away. Nothing that is signed would ever tell of it."""
    first, second = ask(), ask()
    sealer.seal(acme)
    decision = (
        "INSERT INTO approvals_decision (approval_id, person_id, granted, reason, seen_digest, at,"
        " teams) VALUES (%(approval)s, %(ben)s, true, '', %(digest)s, now(), '{}')"
    )
    event = (
        "INSERT INTO ledger_event (place, received_at, workspace_id, event_id, type, run, action,"
        " actor_kind, actor, data, salt, digest) VALUES (nextval('ledger_place'), now(), %(acme)s,"
        " %(event)s, 'approval.granted', '', '', 'person', %(ben)s,"
        " jsonb_build_object('approval', %(approval)s::int, 'digest', %(digest)s::text), '', '')"
    )
    turn = (
        "INSERT INTO ledger_unsealed (place, workspace_id, received_at)"
        " SELECT place, workspace_id, received_at FROM ledger_event WHERE event_id = %(event)s"
    )
    for approval, more in ((first, ()), (second, (turn, "DELETE FROM ledger_unsealed"))):
        desk(
            decision, event, *more, acme=acme.pk, approval=approval.pk, digest=approval.digest,
            ben=ben.pk, event=f"forged {approval.pk}",
        )  # fmt: skip

    for look in (audit.audit, audit.audit_all):
        [bad] = [one for one in look(acme) if not one.ok]
        assert bad.name == "Every event is in the log"
        assert "2 are in none and wait for none: approval.granted at " in bad.words
