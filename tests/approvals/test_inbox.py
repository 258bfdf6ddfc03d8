"""Deciding: by people entitled to it, on what they saw, once."""

import itertools
import re
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from approvals import awaiting, deciders, grants, inbox, periodic
from approvals.deciders import entitled
from approvals.models import Approval, ApprovalState, Decision
from approvals.policy import RequiredApprovers
from approvals.signals import approval_decided
from approvals.views import lists
from tests.approvals.cast import as_the_desk, asker, now, told
from tests.people import logged_in, person, team
from workspaces import teams
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove


def let_it_expire(approval):
    Approval.objects.filter(pk=approval.pk).update(expires_at=now() - timedelta(seconds=1))


def test_a_second_person_approves_and_the_grant_runs_once(ask, ben, acme):
    approval = ask()

    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")

    assert grants.use(approval.pk, "0" * 64) is False
    assert grants.use(approval.pk, approval.digest) is True
    assert grants.use(approval.pk, approval.digest) is False
    assert [one["reason"] for one in told(acme, "approval.granted")] == ["checked"]
    assert len(told(acme, "approval.used")) == 1


def test_who_has_left_the_team_is_not_counted_as_agreed(ask, ben, finance, ada, client):
    approval = ask(RequiredApprovers(None, 2))
    inbox.grant(approval, by=ben, seen=approval.digest)
    client.force_login(ada)
    shown = "/w/acme/approvals/?view=all"
    assert "1 of 2 agreed" in client.get(shown).content.decode()

    teams.remove(finance, ben, by=None)

    assert "0 of 2 agreed" in client.get(shown).content.decode()


def test_a_card_says_that_its_yes_counts_no_more_once_who_gave_it_has_left(
    ask, ben, finance, client, ada
):
    approval = ask()
    inbox.grant(approval, by=ben, seen=approval.digest)
    client.force_login(ada)
    card = f"/w/acme/approvals/{approval.pk}/"
    says = "This yes no longer counts."
    assert says not in client.get(card).text

    teams.remove(finance, ben, by=None)

    assert says in client.get(card).text
    teams.add(finance, ben, by=None)
    assert says not in client.get(card).text


def test_a_no_is_taken_by_one_look_at_whose_right_it_is(ask, ben, finance, monkeypatch):
    """In the very moment Ben leaves, who could answer when he was looked up."""
    approval, look = ask(), deciders.mandates

    def looked(*asked):
        found = look(*asked)
        teams.remove(finance, ben, by=None)
        return found

    monkeypatch.setattr(deciders, "mandates", looked)

    assert inbox.reject(approval, by=ben, seen=approval.digest, reason="no").state == "rejected"


@pytest.mark.parametrize(("said", "became"), [("grant", "waiting"), ("reject", "rejected")])
def test_the_same_answer_sent_once_more_is_the_one_that_was_given(
    ask, ben, acme, client, said, became
):
    """A proxy that heard no answer sends it again; another one stays refused."""
    approval = ask(RequiredApprovers(None, 2))
    client.force_login(ben)
    given = {"digest": approval.digest, "decision": said, "reason": "as  agreed "}
    other = {"decision": {"grant": "reject", "reject": "grant"}[said]}

    def decide(**more):
        return client.post(f"/w/acme/approvals/{approval.pk}/decide/", given | more)

    assert [decide().status_code for _ in range(2)] == [302, 302]
    for more in ({"reason": "as ordered"}, other, {"digest": "0" * 64}, {"digest": "\0"}):
        assert decide(**more).status_code == 409
    approval.refresh_from_db()
    assert (approval.state, approval.decisions.count()) == (became, 1)
    assert len(told(acme, f"approval.{said}ed")) == 1


def test_the_list_asks_no_more_of_the_database_the_more_is_partly_agreed(ask, ben, ada, client):
    client.force_login(ada)
    counts = []
    for _ in range(2):
        for need in (RequiredApprovers(None, 2), RequiredApprovers("finance", 2)) * 2:
            approval = ask(need)
            inbox.grant(approval, by=ben, seen=approval.digest)
        with CaptureQueriesContext(connection) as asked:
            client.get("/w/acme/approvals/?view=all")
        counts.append(len(asked))

    assert counts[0] == counts[1]


def test_who_is_back_in_the_team_has_said_yes_and_nobody_need_say_it_again(
    ask, ben, cleo, finance, acme
):
    """Ben is out of it while Cleo agrees, who was the last that was needed, once he is back."""
    approval = ask(RequiredApprovers(None, 2))
    inbox.grant(approval, by=ben, seen=approval.digest)
    teams.remove(finance, ben, by=None)
    inbox.grant(approval, by=cleo, seen=approval.digest)
    with CaptureQueriesContext(connection) as asked:
        assert periodic.complete_due() == 0, "one of two"
    assert not [one["sql"] for one in asked if "FOR NO KEY UPDATE" in one["sql"]]
    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING

    teams.add(finance, ben, by=None)
    assert not awaiting.among(Approval.objects.all(), person("finn", finance)).exists()
    with as_the_desk():
        assert (periodic.complete_due(), periodic.complete_due()) == (1, 0)

    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED
    assert [one.requirement.count for one in approval.decisions.all()] == [2, 2]
    assert grants.use(approval.pk, approval.digest) is True


def test_whoever_asked_cannot_answer_nor_can_the_owner_of_the_agent(ask, ada, finance, agent):
    teams.add(finance, ada, by=None)
    approval = ask()

    with pytest.raises(inbox.NotEntitled, match="second person"):
        inbox.grant(approval, by=ada, seen=approval.digest)

    assert awaiting.among(Approval.objects.all(), ada).count() == 0


def test_the_database_refuses_one_pair_of_eyes_whatever_the_code_says(ask, ada):
    approval = ask()

    with pytest.raises(IntegrityError), transaction.atomic():
        Decision.objects.create(
            approval=approval, person=ada, granted=True, seen_digest=approval.digest
        )


def test_what_was_not_shown_is_not_approved(ask, ben):
    approval = ask()

    with pytest.raises(inbox.OutOfDate):
        inbox.grant(approval, by=ben, seen="0" * 64)


def test_two_teams_are_two_people_even_for_someone_in_both(ask, ben, cleo, finance, leads):
    teams.add(leads, ben, by=None)
    approval = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))

    inbox.grant(approval, by=ben, seen=approval.digest)
    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING
    with pytest.raises(CannotMove):
        inbox.grant(approval, by=ben, seen=approval.digest)

    inbox.grant(approval, by=cleo, seen=approval.digest)
    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED
    places = {one.person.name: one.requirement.team.name for one in approval.decisions.all()}
    assert places == {"Ben": "finance", "Cleo": "leads"}


def test_someone_in_both_teams_moves_over_when_only_their_first_place_is_left(
    ask, ben, leads, finance
):
    teams.add(leads, ben, by=None)
    fred = person("fred", finance)
    approval = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))
    inbox.grant(approval, by=ben, seen=approval.digest)

    assert list(awaiting.among(Approval.objects.all(), fred)) == [approval]
    inbox.grant(approval, by=fred, seen=approval.digest)

    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED


def test_a_part_that_is_already_given_is_not_asked_again(ask, ben, finance):
    fred = person("fred", finance)
    approval = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))
    inbox.grant(approval, by=ben, seen=approval.digest)

    assert awaiting.among(Approval.objects.all(), fred).count() == 0
    with pytest.raises(inbox.NotEntitled, match="already given"):
        inbox.grant(approval, by=fred, seen=approval.digest)


def test_the_badge_counts_what_the_inbox_lists(ask, ada, ben, cleo, dev, finance, acme):
    fred = person("fred", finance)
    ask()
    late, half, own = (
        ask(),
        ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1)),
        ask(RequiredApprovers("leads", 1)),
    )
    inbox.grant(half, by=ben, seen=half.digest)
    let_it_expire(late)
    Approval.objects.filter(pk=own.pk).update(agent_owner=cleo)

    for who in (ada, ben, cleo, dev, fred):
        listed = awaiting.among(Approval.objects.all(), who).count()
        assert awaiting.count(acme, who, limit=10) == listed, who
        for limit in (1, 10):
            shown = awaiting.listed(Approval.objects.all(), acme, who, limit)
            assert shown.count() == listed, who
    assert awaiting.count(acme, ben, limit=10) == 1
    assert awaiting.count(acme, cleo, limit=10) == 2
    assert awaiting.count(acme, ben, limit=0) == 0


def test_a_page_of_the_inbox_asks_once_who_may_answer_what(ask, ben):
    """It asked six times for each page, and each time looked at every question that waits."""
    for _ in range(3):
        ask()
    page = logged_in(ben)
    page.get("/w/acme/approvals/")

    with CaptureQueriesContext(connection) as asked:
        page.get("/w/acme/approvals/")

    told = [one["sql"] for one in asked if "workspaces_is_independent(" in one["sql"]]
    assert len([sql for sql in told if "OFFSET 0) two" in sql]) == 1


@pytest.mark.parametrize("view", ["mine", "all"])
def test_the_number_of_a_list_is_that_of_its_chip_and_counted_once(ask, ben, monkeypatch, view):
    monkeypatch.setattr(lists, "PAGE", 2)
    for _ in range(3):
        ask()
    page = logged_in(ben)

    with CaptureQueriesContext(connection) as asked:
        shown = page.get(f"/w/acme/approvals/?view={view}").content.decode()

    assert re.search(r'aria-label="Pages">\s*<span>3<', shown)
    told = [one["sql"] for one in asked]
    assert sum("SELECT COUNT(*)" in sql for sql in told) == 1, "all that waits"
    assert not any('FROM "account_emailaddress"' in sql for sql in told), "who is asked has one"
    assert not any('"approvals_approval"."id" IN (' in sql for sql in told), "a blank for each"


def test_the_badge_does_not_count_a_neighbours_questions(ask, ben, acme, globex, dev):
    treasury = team(globex, "treasury", "view", "approve")
    teams.add(treasury, ben, by=None)
    ask()
    of_globex = asker(globex, dev)
    of_globex(RequiredApprovers("treasury", 1))
    of_globex(RequiredApprovers("treasury", 1))

    assert awaiting.count(globex, ben, limit=10) == 2
    assert awaiting.count(acme, ben, limit=10) == 1


def test_what_a_yes_rests_on_is_read_once(ask, ben):
    approval = ask(RequiredApprovers("leads", 1), RequiredApprovers("finance", 1))

    with CaptureQueriesContext(connection) as asked:
        inbox.grant(approval, by=ben, seen=approval.digest)

    told = [one["sql"] for one in asked if 'FROM "approvals_requirement"' in one["sql"]]
    assert len(told) == 1
    assert len(deciders.progress(Approval.objects.get()).missing()) == 1


def test_only_the_calls_that_add_up_to_what_was_approved_are_made_under_it(ask, ben):
    approval, forged = ask(), ask()
    for one in (approval, forged):
        inbox.grant(one, by=ben, seen=one.digest)
        assert grants.use(one.pk, one.digest)
    Approval.objects.filter(pk=forged.pk).update(calls=[forged.calls[0] | {"digest": "f" * 64}])

    assert grants.lost(approval.pk, approval.calls[0]["digest"]) == ""
    assert "not among those" in grants.lost(approval.pk, "0" * 64)
    assert "not among those" in grants.lost(forged.pk, "f" * 64)


def test_law_2_a_late_grant_is_refused_and_so_is_a_late_use(ask, ben):
    late, granted = ask(), ask()
    inbox.grant(granted, by=ben, seen=granted.digest)
    for approval in (late, granted):
        let_it_expire(approval)
        approval.refresh_from_db()

    with pytest.raises(CannotMove, match="expired"):
        inbox.grant(late, by=ben, seen=late.digest)
    assert grants.use(granted.pk, granted.digest) is False


def test_a_stranger_sees_nothing_and_decides_nothing_nor_does_a_superuser_without_a_team(ask, dev):
    root = person("root")
    root.is_superuser = root.is_staff = True
    root.save()
    approval = ask()

    assert Approval.objects.visible_to(dev).count() == 0
    for stranger in (dev, root):
        assert awaiting.among(Approval.objects.all(), stranger).count() == 0
        with pytest.raises(inbox.NotEntitled):
            inbox.grant(approval, by=stranger, seen=approval.digest)


def test_who_may_only_view_decides_nothing_and_a_former_approver_no_longer_counts(
    ask, ben, finance, acme
):
    viewer = person("vera", team(acme, "guests", "view"))
    approval = ask(RequiredApprovers(None, 2))
    assert awaiting.among(Approval.objects.all(), viewer).count() == 0
    with pytest.raises(inbox.NotEntitled):
        inbox.grant(approval, by=viewer, seen=approval.digest)
    fred = person("fred", finance)
    inbox.grant(approval, by=ben, seen=approval.digest)

    ben.groups.set(viewer.groups.all())  # made a viewer meanwhile
    inbox.grant(approval, by=fred, seen=approval.digest)

    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING
    assert set(entitled(approval)) & {viewer.pk, ben.pk} == set()


def test_an_approver_who_left_no_longer_stands_behind_the_grant(ask, ben):
    approval = ask()
    inbox.grant(approval, by=ben, seen=approval.digest)
    assert grants.still_entitled(approval)

    ben.is_active = False
    ben.save()

    assert not grants.still_entitled(approval)


def test_a_no_ends_it_and_its_reason_is_kept(ask, ben, cleo, django_capture_on_commit_callbacks):
    heard = []
    listen = lambda approval_id, **_: heard.append(approval_id)  # noqa: E731
    approval_decided.connect(listen, weak=False)
    approval = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))

    with django_capture_on_commit_callbacks(execute=True):
        inbox.reject(approval, by=ben, seen=approval.digest, reason="the wrong card")
    approval_decided.disconnect(listen)

    approval.refresh_from_db()
    assert (approval.state, approval.closing_reason) == ("rejected", "the wrong card")
    assert heard == [approval.pk]
    with pytest.raises(CannotMove):
        inbox.grant(approval, by=cleo, seen=approval.digest)


def test_a_no_says_why(ask, ben):
    approval = ask()

    with pytest.raises(InvalidInput, match="Say why"):
        inbox.reject(approval, by=ben, seen=approval.digest, reason=" ")

    approval.refresh_from_db()
    assert approval.state == "waiting"


def test_who_neither_asked_nor_may_decide_withdraws_nothing(ask, acme):
    approval = ask()
    guest = person("guest", team(acme, "guests", "view"))

    with pytest.raises(inbox.NotEntitled, match="only who asked"):
        inbox.withdraw(approval, by=guest, reason="I do not like it")

    approval.refresh_from_db()
    assert approval.state == "waiting"


def test_an_unused_grant_can_be_withdrawn_and_then_does_not_run(ask, ben):
    approval = ask()
    inbox.grant(approval, by=ben, seen=approval.digest)

    for _ in range(2):  # once more, as no answer came
        inbox.withdraw(approval, by=ben, reason="seen the second mail")
    with pytest.raises(CannotMove):
        inbox.withdraw(approval, by=ben, reason="another")

    assert grants.use(approval.pk, approval.digest) is False


def test_critical_needs_a_fresh_log_in(ask, ben):
    approval = ask(fresh_login=True, risk="critical")

    for login_at in (None, now() - timedelta(minutes=6)):
        with pytest.raises(inbox.NeedsFreshLogin):
            inbox.grant(approval, by=ben, seen=approval.digest, login_at=login_at)

    inbox.grant(approval, by=ben, seen=approval.digest, login_at=now())
    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED


def test_a_team_of_one_may_approve_its_own_when_the_rule_says_so_and_freshly(ask, ada, finance):
    teams.add(finance, ada, by=None)
    approval = ask(self_approval=True)

    with pytest.raises(inbox.NeedsFreshLogin):
        inbox.grant(approval, by=ada, seen=approval.digest)
    inbox.grant(approval, by=ada, seen=approval.digest, login_at=now())

    assert approval.decisions.get().self_approval is True


def test_table_of_moves_and_constraint_are_one(ask, subtests):
    from approvals.models import APPROVAL_MOVES

    row = Approval.objects.filter(pk=ask().pk)
    for was, state in itertools.product(["", *ApprovalState.values], ApprovalState.values):
        with subtests.test(was=was, state=state):
            allowed = state in APPROVAL_MOVES[was]
            try:
                with transaction.atomic():
                    row.update(was=was, state=state)
                    connection.check_constraints()
                    transaction.set_rollback(True)
            except IntegrityError:
                assert not allowed
            else:
                assert allowed
