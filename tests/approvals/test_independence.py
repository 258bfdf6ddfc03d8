"""A second pair of eyes is a second person: their address is proven, and who asks did not bring
them in today. Every statement of who may decide agrees, and so does the database."""

import re
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from psycopg import RawCursor

from approvals import awaiting, deciders, inbox, news
from approvals.models import Approval, Decision
from approvals.policy import load
from connectors import channels
from ledger import desk_events
from tests.approvals.cast import put_in_force, told
from tests.people import person, team
from tests.worlds import kept
from workspaces import entrance, independence, teams
from workspaces.models import Membership, User

PASSWORD = "a long enough secret"
A_DAY = timedelta(hours=24, minutes=1)


@pytest.fixture
@kept
def administrator(acme):
    """Asks, owns the agent, and may invite."""
    return person("ann", team(acme, "administrators", "view", "recover", "administer"))


@pytest.fixture
def ask(acme, administrator, finance):
    from tests.approvals.cast import asker

    return asker(acme, administrator)


def invited(client, acme, by, email, into):
    """Somebody opens the link that stood on the screen of whoever invited them."""
    client.force_login(by)
    shown = client.post(
        f"/w/{acme.slug}/settings/members/invite/", {"email": email, "teams": [into.pk]}
    )
    link = re.search(r"/join/[^/<]+/", shown.content.decode())[0]
    client.logout()
    said = {"name": "Second Ann", "password": PASSWORD, "password1": PASSWORD}
    answer = client.post(link, said | {"password2": PASSWORD})
    assert answer.status_code == 302, answer.content.decode()
    return User.objects.get(email=email)


def later(length):
    """Time passes for everybody who was brought in."""
    for row in Membership.objects.all():
        Membership.objects.filter(pk=row.pk).update(added_at=row.added_at - length)


def test_of_many_people_who_stand_alike_one_is_judged(acme, administrator):
    """Of each question each of two hundred was judged by herself."""
    leads = team(acme, "leads", "view", "approve")
    old = [person(f"old{number}", leads) for number in range(9)]
    later(A_DAY)
    new = person("new")
    teams.add(leads, new, by=administrator)
    asks = [administrator.pk, None]
    judged = "SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = %s"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL track_functions = 'all'")
        found = independence.standings([one.pk for one in [*old, new, administrator]], asks, acme)
        cursor.execute(judged, ["workspaces_is_independent"])
        [(calls,)] = cursor.fetchall()

    assert calls == 3, "the new one, who asks, and all others as one"
    alone = {pk: independence.standings([pk], asks, acme)[pk] for pk in found}
    assert found == alone
    assert [found[one.pk].is_independent for one in (old[0], new, administrator)] == [
        True, False, False]  # fmt: skip


def opinions(approval, who):
    """What each of the four says: may this person answer now?"""
    with RawCursor(connection.connection) as cursor:
        given = [approval.workspace_id, who.pk, approval.pk]
        cursor.execute(f"SELECT EXISTS (SELECT {news.AWAITING} AND a.id = $3)", given)
        [polled] = cursor.fetchone()
    try:
        with transaction.atomic():
            Decision.objects.create(approval=approval, person=who, granted=True, seen_digest="x")
            transaction.set_rollback(True)
        kept = True
    except IntegrityError:
        kept = False
    listed = awaiting.among(Approval.objects.all(), who).filter(pk=approval.pk).exists()
    fresh = Approval.objects.get(pk=approval.pk)
    return {
        "entitled": who.pk in deciders.entitled(fresh, [who.pk]),
        "ASKS": listed,
        "AWAITING": polled,
        "trigger": kept,
    }


def all_let(approval, who):
    assert all(opinions(approval, who).values()), (who, opinions(approval, who))


def none_lets(approval, who):
    assert not any(opinions(approval, who).values()), (who, opinions(approval, who))


@pytest.mark.django_db
def test_the_second_account_of_an_administrator_approves_nothing_of_theirs(
    client, acme, administrator, finance, ask, post_office
):
    approval = ask()
    second = invited(client, acme, administrator, "second@example.com", finance)
    card = f"/w/acme/approvals/{approval.pk}/"

    shown = client.get(card).content.decode()
    assert "Prove your address first" in shown
    answer = {"digest": approval.digest, "decision": "grant", "reason": "fine"}
    refused = client.post(f"{card}decide/", answer)
    assert refused.status_code == 409
    assert "prove first that your e-mail address is yours" in refused.content.decode()
    none_lets(approval, second)

    letters = str([one["text"] for one in post_office()])
    key = re.search(r"/accounts/confirm-email/[^/\s]+/", letters)[0]
    assert client.get(key).status_code == 200
    assert not independence.is_proven(second)  # what fetches links in mails proves nothing
    client.post(key)
    assert independence.is_proven(second)

    none_lets(approval, second)
    refused = client.post(f"{card}decide/", answer)
    assert refused.status_code == 409
    assert "Second Ann was brought in by Ann" in refused.content.decode()
    client.force_login(administrator)
    assert "was brought in by Ann" in client.get(card).content.decode()

    later(A_DAY)
    all_let(approval, second)
    inbox.grant(approval, by=second, seen=approval.digest)
    decided = client.get(card).content.decode()
    assert "brought in by Ann on" in decided


@pytest.mark.django_db
def test_whoever_puts_themselves_into_another_team_still_says_who_brought_them_in(
    client, acme, administrator, finance, ask
):
    approval, second = ask(), person("second")
    administrators = acme.teams.get(name="administrators")
    teams.add(administrators, second, by=administrator)
    teams.add(finance, second, by=administrator)
    teams.remove(finance, second, by=second)
    teams.add(finance, second, by=second)

    none_lets(approval, second)
    assert [one.brought_in_by for one in deciders.newcomers(approval)] == [
        f"was brought in by {administrator}"
    ]

    later(A_DAY)
    teams.remove(administrators, second, by=second)
    inbox.grant(approval, by=second, seen=approval.digest)
    client.force_login(administrator)
    decided = client.get(f"/w/acme/approvals/{approval.pk}/").content.decode()
    assert f"brought in by {administrator} on" in decided


@pytest.mark.django_db
def test_an_address_is_proven_before_the_first_answer_also_before_a_no(acme, ask, finance):
    approval = ask()
    nobody = User.objects.create_user("nobody@example.com", PASSWORD)
    teams.add(finance, nobody, by=None)
    none_lets(approval, nobody)

    with pytest.raises(inbox.NotEntitled, match="prove first"):
        inbox.reject(approval, by=nobody, seen=approval.digest, reason="no")
    with pytest.raises(IntegrityError, match="decided_from_a_proven_address"):
        Decision.objects.create(approval=approval, person=nobody, granted=False, seen_digest="x")


@pytest.mark.django_db
def test_another_address_that_was_proven_is_not_the_one_they_go_by(acme, ask, finance, ben):
    approval = ask()
    all_let(approval, ben)

    User.objects.filter(pk=ben.pk).update(email="somebody.else@example.com")

    none_lets(approval, User.objects.get(pk=ben.pk))


@pytest.mark.django_db
@pytest.mark.parametrize("whom", ["asks", "owns the agent", "brought in by who was brought in",
                                  "brought in who asks", "both brought in by a third"])  # fmt: skip
def test_whoever_is_of_the_circle_of_those_who_ask_does_not_count_for_a_day(
    whom, acme, administrator, finance, ask
):
    olga, other = person("olga"), person("other")
    later(A_DAY)
    if whom == "asks":
        approval, new = ask(), person("new")
        teams.add(finance, new, by=administrator)
    elif whom == "owns the agent":
        approval, new = ask(by=olga), person("new")
        Approval.objects.filter(pk=approval.pk).update(agent_owner=administrator)
        teams.add(finance, new, by=administrator)
    elif whom == "brought in by who was brought in":
        approval, between, new = ask(), person("between"), person("new")
        teams.add(acme.teams.get(name="administrators"), between, by=administrator)
        teams.add(finance, new, by=between)
    elif whom == "brought in who asks":
        new = person("new", finance)
        teams.add(acme.teams.get(name="administrators"), olga, by=new)
        approval = ask(by=olga)
    else:
        new = other
        teams.add(acme.teams.get(name="administrators"), olga, by=administrator)
        teams.add(finance, new, by=administrator)
        approval = ask(by=olga)
    none_lets(approval, new)
    approval.refresh_from_db()
    assert [one.person for one in deciders.newcomers(approval)] == [new]

    later(A_DAY)

    all_let(approval, new)


@pytest.mark.django_db
def test_who_is_new_counts_for_everybody_elses_questions(acme, ask, finance, ada):
    new = person("new")
    teams.add(finance, new, by=person("hr"))

    all_let(ask(by=ada), new)


@pytest.mark.django_db
def test_a_neighbours_probation_is_not_ours(acme, globex, ask, finance, administrator):
    new = person("new", finance)
    teams.add(team(globex, "guests", "view"), new, by=administrator)

    all_let(ask(), new)


@pytest.mark.django_db
def test_what_was_decided_stands_whoever_puts_the_decider_into_a_team_later(
    acme, administrator, finance, leads, ask, ben
):
    from approvals import grants

    approval = ask()
    inbox.grant(approval, by=ben, seen=approval.digest)

    teams.add(leads, ben, by=administrator)

    assert grants.still_entitled(Approval.objects.get(pk=approval.pk))
    Decision.objects.get(approval=approval).save()  # the trigger looks at it anew, and lets it be


@pytest.mark.django_db
def test_the_founder_counts_from_the_first_day_also_for_those_they_brought_in(db):
    from tests.approvals.cast import asker

    token = entrance.setup_link()
    founder, workspace = entrance.set_up(
        token, name="Fay", email="fay@example.com", password=PASSWORD,
        workspace_name="Ferry", slug="ferry",
    )  # fmt: skip
    new, other = person("new"), person("other")
    for one in (new, other):
        teams.add(workspace.teams.get(name="approvers"), one, by=founder)

    approval = asker(workspace, new)()

    all_let(approval, founder)
    none_lets(approval, other)
    none_lets(approval, new)


@pytest.mark.django_db
def test_the_policy_says_how_long_a_newcomer_waits(acme, administrator, finance, ask):
    new = person("new")
    teams.add(finance, new, by=administrator)
    approval = ask()
    assert load({"policies": {}}).probation_seconds == 24 * 3600

    put_in_force(acme, administrator, {"policies": {}, "probation": "2h"})
    none_lets(approval, new)
    later(timedelta(hours=1, minutes=59))
    none_lets(approval, new)
    later(timedelta(minutes=2))
    all_let(approval, new)

    put_in_force(acme, administrator, {"policies": {}, "probation": "0s"})
    later(-timedelta(hours=3))
    acme.refresh_from_db()
    assert acme.probation_seconds == 0


@pytest.mark.django_db
def test_a_word_at_the_server_lets_a_small_team_go_on_and_the_ledger_keeps_it(
    acme, administrator, finance, ask
):
    approval = ask()
    new = User.objects.create_user("new@example.com", PASSWORD, name="New")
    teams.add(finance, new, by=administrator)
    because = ["--because", "we are two"]
    with pytest.raises(CommandError, match="not a member of acme"):
        call_command("vouch", "acme", person("eve").email, "--at-once", *because)
    with pytest.raises(CommandError, match="--address, --at-once"):
        call_command("vouch", "acme", new.email, *because)

    with pytest.raises(CommandError, match="it has 401 characters, of which 400 can be kept"):
        call_command("vouch", "acme", new.email, "--address", "--because", "b" * 401)
    call_command("vouch", "acme", new.email, "--address", *because)
    none_lets(approval, new)
    call_command("vouch", "acme", new.email, "--at-once", *because)
    all_let(approval, new)

    desk_events.take_in()
    kept = told(acme, "member.vouched")
    assert [one["vouched"] for one in kept] == [["address"], ["counts at once"]]
    assert {(one["person"], one["because"]) for one in kept} == {("new@example.com", "we are two")}
    with pytest.raises(CommandError, match="needs no word"):
        call_command("vouch", "acme", new.email, "--address", "--at-once", *because)


@pytest.mark.django_db
def test_being_put_in_again_begins_anew_and_being_put_in_twice_changes_nothing(
    acme, administrator, finance, ask
):
    approval, new = ask(), person("new", finance)
    later(A_DAY)
    teams.add(finance, new, by=administrator)
    all_let(approval, new)

    teams.remove(finance, new, by=administrator)
    all_says = deciders.entitled(Approval.objects.get(pk=approval.pk), [new.pk])
    assert not all_says
    teams.add(finance, new, by=administrator)

    none_lets(approval, new)
    [one] = deciders.newcomers(approval)
    assert abs(one.counts_at - timezone.now() - timedelta(days=1)) < timedelta(minutes=5)


@pytest.mark.django_db
def test_a_desk_without_mail_says_what_to_do(client, acme, finance, settings):
    settings.EMAIL_BACKEND = channels.SMTP
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    nobody = User.objects.create_user("nobody@example.com", PASSWORD)
    teams.add(finance, nobody, by=None)
    client.force_login(nobody)

    shown = client.post("/address/", follow=True).content.decode()

    assert "could not send mail to nobody@example.com" in shown
    assert "manage.py vouch" in shown
    assert not independence.is_proven(nobody)
