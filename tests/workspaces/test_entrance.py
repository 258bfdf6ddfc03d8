"""How people get in, and what they may once they are."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from guardian.shortcuts import assign_perm

from tests.locks import comes_before_the_commit
from workspaces import entrance, keys, teams
from workspaces.access import may, people_with, workspaces_of
from workspaces.models import (
    Act,
    Agent,
    Invitation,
    Secret,
    User,
    Workspace,
    opened_masking_key,
)

pytestmark = pytest.mark.django_db


def test_a_set_up_link_makes_the_first_administrator_once():
    token = entrance.setup_link()

    ada, desk = entrance.set_up(
        token,
        name="Ada",
        email="Ada@Example.com",
        password="a long enough secret",
        workspace_name="Airline desk",
        slug="airline",
    )

    assert may(ada, "administer", desk)
    assert ada.email == "ada@example.com"
    with pytest.raises(entrance.LinkIsOver):
        entrance.set_up(
            token, name="Eve", email="eve@example.com", password="x", workspace_name="E", slug="e"
        )


def test_only_teams_are_granted_anything_no_single_person_and_no_superuser(airline):
    root = User.objects.create_superuser("root@example.com", "a long enough secret")
    fred = User.objects.create_user("fred@example.com", "a long enough secret")
    assign_perm("workspaces.view", fred, airline)

    for alone in (root, fred):
        assert not may(alone, "view", airline)
        assert not workspaces_of(alone).exists()
        assert alone not in people_with("view", airline)


def test_a_deactivated_person_may_nothing_before_their_request_ends_and_is_counted_nowhere(
    airline, ada
):
    User.objects.filter(pk=ada.pk).update(is_active=False)
    as_it_is_now = User.objects.get(pk=ada.pk)

    for seen in (ada, as_it_is_now):
        assert not may(seen, "view", airline)
        assert not workspaces_of(seen).exists()
    assert ada not in people_with("approve", airline)


def test_a_grant_in_one_workspace_opens_no_other(airline, ada):
    other = Workspace.objects.create(name="Billing", slug="billing")

    assert may(ada, "view", airline)
    assert not may(ada, "view", other)
    assert list(workspaces_of(ada)) == [airline]


def test_an_invitation_works_once_and_only_for_its_address(airline, ada):
    viewers = airline.teams.get(name="viewers")
    token = entrance.invite(airline, "Ben@example.com", [viewers], by=ada)
    ben = User.objects.create_user("ben@example.com", "a long enough secret")
    dev = User.objects.create_user("dev@example.com", "a long enough secret")

    with pytest.raises(entrance.LinkIsOver):
        entrance.accept(token, by=dev)
    assert entrance.accept(token, by=ben) == airline
    assert may(ben, "view", airline)
    assert not may(ben, "recover", airline)
    with pytest.raises(entrance.LinkIsOver):
        entrance.accept(token, by=ben)


def test_an_invitation_ends_with_the_right_of_who_made_it(airline, ada):
    noor = User.objects.create_user("noor@example.com", "a long enough secret", name="Noor")
    administrators = airline.teams.get(name="administrators")
    teams.add(administrators, noor, by=ada)
    ben = User.objects.create_user("ben@example.com", "a long enough secret")
    token = entrance.invite(airline, ben.email, [administrators], by=noor)
    kept = entrance.invite(airline, "cleo@example.com", [administrators], by=ada)

    teams.remove(administrators, noor, by=ada)

    assert Invitation.objects.get(email=ben.email).withdrawn_at is not None
    assert Act.objects.get(type="invitation.withdrawn").data["email"] == ben.email
    with pytest.raises(entrance.LinkIsOver):
        entrance.accept(token, by=ben)
    assert entrance.standing_invitation(kept) is not None
    Invitation.objects.filter(email=ben.email).update(withdrawn_at=None)
    assert entrance.standing_invitation(token) is None, "however it came to stand again"
    User.objects.filter(pk=ada.pk).update(is_active=False)
    assert entrance.standing_invitation(kept) is None


@pytest.mark.django_db(transaction=True)
def test_who_takes_up_an_invitation_as_it_is_withdrawn_does_not_come_in(airline, ada):
    ben = User.objects.create_user("ben@example.com", "a long enough secret")
    token = entrance.invite(airline, ben.email, airline.teams.all(), by=ada)
    invitation = Invitation.objects.get()

    with pytest.raises(entrance.LinkIsOver):
        comes_before_the_commit(
            lambda: entrance.withdraw(invitation, by=ada),
            lambda: entrance.accept(token, by=ben),
        )

    assert not may(ben, "view", airline)


@pytest.mark.django_db(transaction=True)
def test_of_two_administrators_who_take_each_other_out_one_stays(airline, ada):
    """Each saw that the other was still there, and then nobody was."""
    administrators = airline.teams.get(name="administrators")
    noor = User.objects.create_user("noor@example.com", "a long enough secret", name="Noor")
    teams.add(administrators, noor, by=ada)

    with pytest.raises(teams.NobodyLeft):
        comes_before_the_commit(
            lambda: teams.remove(administrators, noor, by=ada),
            lambda: teams.remove(administrators, ada, by=noor),
        )

    assert list(people_with("administer", airline)) == [ada]


def test_a_team_of_another_workspace_cannot_be_joined_by_invitation(airline, ada):
    other = entrance.open_workspace("Clinic", "clinic", by=ada)
    token = entrance.invite(airline, "ben@example.com", [*other.teams.all()], by=ada)
    ben = User.objects.create_user("ben@example.com", "a long enough secret")

    entrance.accept(token, by=ben)

    assert not may(ben, "view", other)


def test_a_key_is_shown_once_and_kept_as_a_digest(airline, ada):
    desk = Agent.objects.create(workspace=airline, name="airline-desk", owner=ada)

    key, token = keys.create_key(desk, by=ada, name="production")

    assert keys.proves(token, key.digest)
    assert not keys.proves(token + "x", key.digest)
    assert token.encode() not in bytes(key.digest)
    assert Act.objects.filter(type="key.created", person=ada).exists()


def test_a_revoked_persons_token_opens_nothing(airline, ada):
    kept, token = keys.create_token(airline, by=ada, name="script")
    assert keys.person_of(token) == kept

    assert keys.person_of(token[:-4] + "xxxx") is None, "the prefix alone opens nothing"

    keys.revoke(kept, by=ada)

    assert keys.person_of(token) is None


def test_the_token_of_a_person_who_was_shut_out_opens_nothing(airline, ada):
    _, token = keys.create_token(airline, by=ada, name="script")
    User.objects.filter(pk=ada.pk).update(is_active=False)

    assert keys.person_of(token) is None


def test_one_key_does_not_both_act_and_import(airline, ada):
    desk = Agent.objects.create(workspace=airline, name="airline-desk", owner=ada)

    with pytest.raises(ValueError, match="does not both act and import"):
        keys.create_key(desk, by=ada, name="production", scopes=("begin", "import"))


def test_a_team_that_lost_a_grant_loses_it_at_once(airline, ada):
    teams.withdraw(airline.teams.get(name="approvers"), "approve", by=ada)

    assert not may(ada, "approve", airline)


def test_a_secret_rests_encrypted_and_survives_a_rotation(airline, settings):
    from cryptography.fernet import Fernet
    from django.core.management import call_command

    kept = Secret.objects.seal(airline, "payments", {"api_key": "sk_test_canary"})
    assert b"sk_test_canary" not in bytes(kept.sealed)

    settings.AMENDS_SECRET_KEYS = [Fernet.generate_key().decode(), *settings.AMENDS_SECRET_KEYS]
    call_command("rotate_secrets")
    kept.refresh_from_db()
    settings.AMENDS_SECRET_KEYS = settings.AMENDS_SECRET_KEYS[:1]

    assert kept.open() == {"api_key": "sk_test_canary"}


def test_the_masking_key_is_the_workspaces_for_good_and_survives_a_rotation(airline, settings):
    from cryptography.fernet import Fernet
    from django.core.management import call_command

    def key():
        return opened_masking_key(bytes(Workspace.objects.get(pk=airline.pk).masking_key))

    before = key()
    other = Workspace.objects.create(name="Billing", slug="billing")
    assert opened_masking_key(bytes(other.masking_key)) != before
    assert before.hex().encode() not in bytes(airline.masking_key)

    settings.AMENDS_SECRET_KEYS = [Fernet.generate_key().decode(), *settings.AMENDS_SECRET_KEYS]
    call_command("rotate_secrets")
    settings.AMENDS_SECRET_KEYS = settings.AMENDS_SECRET_KEYS[:1]
    opened_masking_key.cache_clear()

    assert key() == before


def test_a_workspace_is_made_at_the_server_for_somebody_who_has_an_account(db):
    from approvals.models import PolicyVersion

    ada = User.objects.create_user("ada@example.com", "a long enough secret", name="Ada")
    said = StringIO()

    call_command(
        "open_workspace", "Billing desk", "billing", founder="Ada@Example.com", stdout=said
    )

    assert "/w/billing/" in said.getvalue()
    made = Workspace.objects.get(slug="billing")
    assert may(ada, "administer", made)
    assert PolicyVersion.objects.filter(workspace=made).exists()
    for name, slug, founder in (
        ("Again", "billing", "ada@example.com"),
        ("Nobody's", "nobody", "eve@example.com"),
        ("Blank", "no slug", "ada@example.com"),
        ("", "nameless", "ada@example.com"),
    ):
        with pytest.raises(CommandError):
            call_command("open_workspace", name, slug, founder=founder)
