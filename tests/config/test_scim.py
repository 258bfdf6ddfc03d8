"""Acme's directory says who works there (SCIM 2.0): people and groups come by it, and who leaves is
out at once."""

import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from approvals import deciders, grants, inbox
from approvals.models import Approval
from approvals.policy import RequiredApprovers
from config import providers, single_sign_on
from ledger import desk_events
from tests.adapters.conftest import environment_of
from tests.approvals.cast import asker, told
from tests.people import acme, ada, dev, globex, logged_in, operators, person, team
from tests.processes import Processes
from workspaces import delegations, entrance, independence, keys, teams
from workspaces.delegations import Term
from workspaces.models import (
    DirectoryGroup,
    DirectoryPerson,
    DirectoryToken,
    LoginProvider,
    Membership,
    PersonToken,
    Team,
    User,
    Workspace,
)

__all__ = ["acme", "ada", "dev", "globex", "operators"]
HERE = Path(__file__).parent
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
DIRECTORY = "/w/acme/settings/directory/"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


class Directory:
    """Speaks for a workspace by a token."""

    def __init__(self, workspace: Workspace, by: User) -> None:
        self.row, self.token = keys.create_directory_token(workspace, by=by, name="directory")
        self.root = f"/scim/v2/{workspace.slug}"

    def says(self, method: str, path: str, said: Any = None, **headers: str) -> Any:
        body = b"" if said is None else json.dumps(said).encode()
        return Client().generic(
            method, f"{self.root}{path}", body, content_type="application/scim+json",
            headers={"Authorization": f"Bearer {self.token}"} | headers,
        )  # fmt: skip

    def person(self, who: str, **more: Any) -> str:
        said = {"schemas": [USER], "userName": f"{who}@example.com", "externalId": who} | more
        answer = self.says("POST", "/Users", said)
        assert answer.status_code == 201, answer.content
        return str(answer.json()["id"])

    def group(self, name: str, *members: str) -> str:
        said = {"schemas": [GROUP], "displayName": name,
                "members": [{"value": one} for one in members]}  # fmt: skip
        answer = self.says("POST", "/Groups", said)
        assert answer.status_code == 201, answer.content
        return str(answer.json()["id"])

    def patch(self, path: str, *operations: dict[str, Any]) -> Any:
        answer = self.says("PATCH", path, {"schemas": [PATCH], "Operations": list(operations)})
        assert answer.status_code in {200, 204}, answer.content
        return answer


@pytest.fixture
def directory(acme: Workspace, ada: User) -> Directory:
    return Directory(acme, ada)


def teams_of(email: str) -> set[str]:
    return set(User.objects.get(email=email).groups.values_list("team__name", flat=True))


def letting_in(name: str, *may: Any) -> Team:
    found = Team.objects.get(name=name)
    for one in may:
        teams.grant(found, one, by=None)
    return found


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(1200)
def test_the_checker_of_the_standard_finds_nothing_wrong(
    acme: Workspace, ada: User, processes: Processes
) -> None:
    token = keys.create_directory_token(acme, by=ada, name="checker")[1]
    url = processes.kept_web().url
    command = [environment_of("scim2_tester", HERE / "environments"), HERE / "scim_tester.py",
               f"{url}/scim/v2/acme", token]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    results = json.loads(done.stdout)

    assert len(results) > 50
    fine = {"SUCCESS", "COMPLIANT", "ACCEPTABLE", "SKIPPED"}
    assert not (wrong := [one for one in results if one[0] not in fine]), json.dumps(
        wrong, indent=1
    )


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_a_group_is_a_team_and_its_people_stand_in_it(
    acme: Workspace, directory: Directory
) -> None:
    cleo = directory.person("cleo", displayName="Cleo", name={"givenName": "Cleo"})
    finance = directory.group("finance", cleo)
    assert (teams_of("cleo@example.com"), str(User.objects.get(email="cleo@example.com"))) == (
        {"finance"}, "Cleo",
    )  # fmt: skip
    assert not User.objects.get(email="cleo@example.com").has_usable_password()
    assert teams.grants_of(Team.objects.get(name="finance")) == [], "nothing, until somebody says"

    eli = directory.person("eli")
    directory.patch(f"/Groups/{finance}", {"op": "add", "path": "members",
                                           "value": [{"value": eli}]})  # fmt: skip
    directory.patch(f"/Groups/{finance}", {"op": "remove", "path": f'members[value eq "{cleo}"]'})
    assert (teams_of("cleo@example.com"), teams_of("eli@example.com")) == (set(), {"finance"})

    shown = directory.says("GET", f"/Users/{eli}").json()
    assert [one["display"] for one in shown["groups"]] == ["finance"]
    for asked, found in (('userName eq "CLEO@example.com"', [cleo]), ('externalId eq "eli"', [eli]),
                         ('userName eq "nobody@example.com"', []),
                         ('userName sw "cleo" or externalId eq "eli"', [cleo, eli])):  # fmt: skip
        answer = directory.says("GET", f"/Users?filter={asked}").json()
        assert {one["id"] for one in answer.get("Resources", [])} == set(found), asked


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_who_leaves_is_out_at_once(
    acme: Workspace, ada: User, directory: Directory, company: providers.Provider
) -> None:
    cleo_id, ben_id = directory.person("cleo"), directory.person("ben")
    directory.group("finance", cleo_id, ben_id)
    letting_in("finance", "view", "approve")
    Membership.objects.update(sponsors=[], added_by=None)
    cleo, ben = (User.objects.get(email=f"{one}@example.com") for one in ("cleo", "ben"))
    for one in (cleo, ben):
        independence.prove(one)
    browser = logged_in(cleo)
    browser.get("/w/acme/queue/")
    token = keys.create_token(acme, by=cleo, name="script")[1]
    teams.add(team(acme, "admins", "view", "administer"), ada, by=None)
    link = f"/join/{entrance.invite(acme, 'Cleo@example.com', [team(acme, 'late')], by=ada)}/"
    assert browser.get(link).status_code == 200
    dora = person("dora", team(acme, "viewers", "view"))
    now = timezone.now()
    tomorrow = Term(now, now + timedelta(days=1))
    delegations.give(acme, by=cleo, to=dora, team=None, term=tomorrow, reason="away")
    approval = asker(acme, ada)(RequiredApprovers("finance", 1))
    inbox.grant(approval, by=cleo, seen=approval.digest)
    assert grants.still_entitled(Approval.objects.get(pk=approval.pk))

    directory.patch(f"/Users/{cleo_id}", {"op": "replace", "path": "active", "value": False})

    assert teams_of(cleo.email) == set()
    assert not grants.still_entitled(Approval.objects.get(pk=approval.pk))
    assert dora.pk not in deciders.entitled(Approval.objects.get(pk=approval.pk))
    assert keys.person_of(token) is None
    assert PersonToken.objects.get().revoked_at is not None
    assert Client().get(link).status_code == 410, "she is not let in again by an old link"
    assert not UserSession.objects.filter(user=cleo).exists()
    assert teams_of(ben.email) == {"finance"}
    assert directory.says("GET", f"/Users/{cleo_id}").json()["active"] is False
    single_sign_on.follow(company, cleo, {"deciders"})
    assert teams_of(cleo.email) == set(), "no group of the log-in puts her back"

    directory.patch(f"/Users/{cleo_id}", {"op": "replace", "value": {"active": True}})
    assert teams_of(cleo.email) == {"finance"}
    assert directory.says("DELETE", f"/Users/{cleo_id}").status_code == 204
    assert teams_of(cleo.email) == set()
    assert directory.says("GET", f"/Users/{cleo_id}").status_code == 404
    single_sign_on.follow(company, cleo, {"deciders"})
    assert teams_of(cleo.email) == set(), "nor of whom the directory no longer knows"
    assert [one["id"] for one in directory.says("GET", "/Users").json()["Resources"]] == [ben_id]

    directory.group("leads", directory.person("cleo"))
    single_sign_on.follow(company, cleo, {"deciders"})
    assert teams_of(cleo.email) == {"leads", "finance"}, "until it does again"


@pytest.fixture
def company(settings: Any) -> providers.Provider:
    """The company's log-in, of which one group is a team."""
    settings.OIDC_TEAMS = ["deciders=acme/finance"]
    settings.OIDC_URL = "https://login.example.com"
    found = providers.provider_of(providers.COMPANY)
    assert found is not None
    return found


@pytest.mark.django_db
@pytest.mark.usefixtures("operators", "as_the_owner")
def test_whom_it_deleted_an_administrator_lets_back_in(
    client: Client, acme: Workspace, directory: Directory, company: providers.Provider
) -> None:
    """Hired again after the account had got another address: the directory makes a second one."""
    ann = person("ann", team(acme, "administrators", "view", "administer"))
    cleo_id = directory.person("cleo")
    cleo = User.objects.get(email="cleo@example.com")
    directory.group("finance", cleo_id)
    User.objects.filter(pk=cleo.pk).update(email="cleo@new.example")
    directory.says("DELETE", f"/Users/{cleo_id}")
    directory.person("cleo")
    single_sign_on.follow(company, cleo, {"deciders"})
    assert teams_of("cleo@new.example") == set()

    client.force_login(ann)
    left = client.get(DIRECTORY).content.decode().partition('id="left-title"')[2]
    assert "cleo@new.example" in left
    assert cleo_id not in left, "an id tells nobody who that is"
    [act] = re.findall(r'action="([^"]+/let-back-in/)"', left)
    for _ in "twice":
        client.post(act)
    single_sign_on.follow(company, cleo, {"deciders"})

    assert teams_of("cleo@new.example") == {"finance"}
    assert "left-title" not in client.get(DIRECTORY).content.decode()
    desk_events.take_in()
    [said] = told(acme, "directory.person_let_back_in")
    assert said["person"] == "cleo@new.example"


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_whom_it_still_knows_nobody_but_itself_lets_back_in(
    client: Client, acme: Workspace, directory: Directory
) -> None:
    client.force_login(person("ann", team(acme, "administrators", "view", "administer")))
    directory.person("cleo", active=False)
    row = DirectoryPerson.objects.get()

    assert "let-back-in" not in client.get(DIRECTORY).content.decode()
    assert client.post(f"{DIRECTORY}people/{row.pk}/let-back-in/").status_code == 404


@pytest.mark.django_db
@pytest.mark.usefixtures("operators", "as_the_owner")
def test_once_there_is_no_directory_any_more_an_administrator_lets_the_log_in_decide(
    client: Client, acme: Workspace, directory: Directory, company: providers.Provider, ada: User
) -> None:
    """A gap between two tokens lets nobody in; a company that ends its directory says so here."""
    client.force_login(person("ann", team(acme, "administrators", "view", "administer")))
    rows = {who: directory.person(who) for who in ("cleo", "finn", "gus")}
    directory.group("finance", *rows.values())
    people = {who: User.objects.get(email=f"{who}@example.com") for who in rows}
    directory.says("DELETE", f"/Users/{rows['cleo']}")
    for who in ("finn", "gus"):
        directory.patch(f"/Users/{rows[who]}", {"op": "replace", "path": "active", "value": False})
    assert client.post(f"{DIRECTORY}people/let-back-in/").status_code == 404

    keys.revoke(directory.row, by=ada)
    for one in people.values():
        single_sign_on.follow(company, one, {"deciders"})
    assert [teams_of(one.email) for one in people.values()] == [set()] * 3

    page = client.get(DIRECTORY).content.decode()
    assert page.count("Let back in</button>") == 3
    assert "put out of every team here then" in page, "an administrator may have put them in since"
    gus = DirectoryPerson.objects.get(person=people["gus"])
    client.post(f"{DIRECTORY}people/{gus.pk}/let-back-in/")
    client.post(f"{DIRECTORY}people/let-back-in/")
    for one in people.values():
        single_sign_on.follow(company, one, {"deciders"})

    assert [teams_of(one.email) for one in people.values()] == [{"finance"}] * 3
    assert "left-title" not in client.get(DIRECTORY).content.decode()
    desk_events.take_in()
    assert len(told(acme, "directory.person_let_back_in")) == 3
    assert DirectoryGroup.objects.get().members == []


@pytest.mark.django_db
def test_whoever_made_the_token_has_brought_in_whom_it_brings(
    acme: Workspace, operators: Team, ada: User, directory: Directory
) -> None:
    """An administrator's second mailbox is no second person because a program brought it in."""
    directory.group("finance", directory.person("second"))
    letting_in("finance", "view", "approve")
    second = User.objects.get(email="second@example.com")
    assert not independence.is_proven(second)
    independence.prove(second)
    approval = asker(acme, ada)(RequiredApprovers("finance", 1))

    assert second.pk not in deciders.entitled(approval)
    assert [one.person for one in deciders.newcomers(approval)] == [second]


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_teams_of_before_are_not_the_directorys_until_they_are_handed_over(
    client: Client, acme: Workspace, ada: User, directory: Directory
) -> None:
    administrators = team(acme, "administrators", "view", "administer")
    ann = person("ann", administrators)
    said = {"schemas": [GROUP], "displayName": "administrators"}
    refused = directory.says("POST", "/Groups", said)
    assert (refused.status_code, refused.json()["scimType"]) == (409, "uniqueness")
    assert "can hand it over" in refused.json()["detail"]

    client.force_login(ann)
    client.post("/w/acme/settings/directory/teams/", {"team": administrators.pk})
    [group] = directory.says("GET", "/Groups").json()["Resources"]
    assert group["displayName"] == "administrators"
    ann_id = directory.person("ann")
    directory.patch(f"/Users/{ann_id}", {"op": "replace", "path": "active", "value": False})
    assert teams_of(ann.email) == {"administrators"}, "the last one stays"
    desk_events.take_in()
    assert [one["team"] for one in told(acme, "directory.team_handed_over")] == ["administrators"]


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_a_group_that_is_renamed_there_keeps_the_name_by_which_rules_ask_its_team(
    client: Client, acme: Workspace, directory: Directory
) -> None:
    group = directory.group("finance", directory.person("cleo"))
    name = {"op": "replace", "path": "displayName", "value": "Finance EMEA"}
    directory.patch(f"/Groups/{group}", name)

    assert acme.teams.filter(name="finance").exists()
    assert teams_of("cleo@example.com") == {"finance"}
    query = "/Groups?filter=" + quote('displayName eq "finance emea"')
    [found] = directory.says("GET", query).json()["Resources"]
    assert (found["id"], found["displayName"]) == (group, "Finance EMEA")
    client.force_login(person("ann", team(acme, "administrators", "view", "administer")))
    assert "called “Finance EMEA” there" in client.get(DIRECTORY).content.decode()
    other = directory.says("POST", "/Groups", {"schemas": [GROUP], "displayName": "Finance EMEA"})
    assert other.status_code == 409
    directory.patch(f"/Groups/{group}", name | {"value": "finance"})
    assert "called" not in client.get(DIRECTORY).content.decode()


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_a_token_opens_its_workspace_alone_and_is_shown_once(
    client: Client, acme: Workspace, globex: Workspace, dev: User
) -> None:
    ann = person("ann", team(acme, "administrators", "view", "administer"))
    client.force_login(ann)
    assert "Confirm that it is you" in client.get(DIRECTORY).content.decode()
    stale = client.post(f"{DIRECTORY}tokens/", {"name": "Entra"})
    assert stale.status_code == 422, "a log-in of before says nothing of who sits there now"
    assert not DirectoryToken.objects.exists()

    client.post("/accounts/reauthenticate/", {"password": "correct horse"})
    page = client.post(f"{DIRECTORY}tokens/", {"name": "Entra"}).content.decode()
    token = re.search(r"amends_\w+_[\w-]+", page)[0]
    assert token not in client.get("/w/acme/settings/directory/").content.decode()
    bearer = {"Authorization": f"Bearer {token}"}
    assert Client().get("/scim/v2/acme/Users", headers=bearer).status_code == 200
    refused = Client().get("/scim/v2/globex/Users", headers=bearer)
    assert refused.status_code == 401
    assert refused.json()["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"]
    assert Client().get("/scim/v2/acme/Users").status_code == 401
    theirs = keys.create_token(acme, by=ann, name="script")[1]
    script = {"Authorization": f"Bearer {theirs}"}
    assert Client().get("/scim/v2/acme/Users", headers=script).status_code == 401

    assert "administers no more" not in client.get(DIRECTORY).content.decode()
    client.force_login(person("bea", team(acme, "deputies", "view", "administer")))
    ann.groups.clear()
    assert "administers no more" in client.get(DIRECTORY).content.decode()
    listed = client.get(f"{DIRECTORY}?table=directory-tokens&format=json").getvalue()
    assert json.loads(listed)[0]["maker_administers"] is False
    alive = Client().get("/scim/v2/acme/Users", headers=bearer).status_code
    assert alive == 200, "else nobody who leaves after them would be out"
    row = DirectoryToken.objects.get()
    client.post(f"/w/acme/settings/directory/tokens/{row.pk}/revoke/")
    assert Client().get("/scim/v2/acme/Users", headers=bearer).status_code == 401


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_somebody_who_works_elsewhere_too_stays_there(
    acme: Workspace, dev: User, directory: Directory
) -> None:
    browser = logged_in(dev)
    browser.get("/w/globex/queue/")
    dev_id = directory.person("dev")
    directory.group("finance", dev_id)
    assert "finance" in teams_of(dev.email)

    directory.says("DELETE", f"/Users/{dev_id}")

    assert teams_of(dev.email) == {"all"}
    assert browser.get("/w/globex/queue/").status_code == 200
    [left] = DirectoryPerson.objects.all()
    assert (left.person, left.user_name, left.external_id, left.document) == (dev, dev_id, "", {})


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("way", ["password", "company"])
def test_an_account_that_a_stranger_made_under_an_address_is_not_let_in_by_it(
    acme: Workspace, globex: Workspace, dev: User, directory: Directory, way: str
) -> None:
    """An administrator of another workspace took up the invitation to a colleague-to-be."""
    there = team(globex, "guests", "view")
    said = {"schemas": [USER], "userName": "cleo@example.com"}
    stranger = User.objects.create_user("cleo@example.com", "correct horse")
    if way == "company":
        stranger.set_unusable_password()
        stranger.save()
        SocialAccount.objects.create(user=stranger, provider="of-globex", uid="cleo")
    teams.add(there, stranger, by=dev)

    refused = directory.says("POST", "/Users", said)

    assert (refused.status_code, refused.json()["scimType"]) == (409, "uniqueness")
    assert "has not proven that it is theirs" in refused.json()["detail"]
    assert not DirectoryPerson.objects.exists()
    independence.prove(stranger)
    directory.group("finance", directory.person("cleo"))
    assert teams_of("cleo@example.com") == {"finance", "guests"}


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_who_was_let_in_before_or_never_came_is_the_same_person_to_the_directory(
    acme: Workspace, ada: User, directory: Directory
) -> None:
    invited = User.objects.create_user("cleo@example.com", "correct horse")
    teams.add(team(acme, "late"), invited, by=ada)
    first = directory.person("eli")
    assert directory.says("DELETE", f"/Users/{first}").status_code == 204

    directory.group("finance", directory.person("cleo"), directory.person("eli"))

    assert teams_of("cleo@example.com") == {"finance", "late"}
    assert teams_of("eli@example.com") == {"finance"}


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_who_left_and_comes_back_is_let_in_by_the_workspaces_own_log_in_or_an_operators_word(
    acme: Workspace, ada: User, directory: Directory
) -> None:
    """The directory forgot them in between, and none of their teams was left."""
    LoginProvider.objects.create(
        workspace=acme, provider_id="of-acme", issuer="https://id.example", set_by=ada
    )
    rows = [directory.person("cleo"), directory.person("eli")]
    cleo, eli = (User.objects.get(email=f"{one}@example.com") for one in ("cleo", "eli"))
    SocialAccount.objects.create(user=cleo, provider="of-acme", uid="cleo")
    eli.set_password("a long enough secret")
    eli.save()
    for row in rows:
        assert directory.says("DELETE", f"/Users/{row}").status_code == 204

    again = {"schemas": [USER], "userName": eli.email}
    assert directory.says("POST", "/Users", again).status_code == 409
    call_command("vouch", "acme", eli.email, "--address", "--because", "I know them")
    directory.group("finance", directory.person("cleo"), directory.person("eli"))

    assert teams_of(cleo.email) == teams_of(eli.email) == {"finance"}


@pytest.mark.django_db
@pytest.mark.usefixtures("operators")
def test_what_is_refused_is_refused_in_the_form_of_the_standard(directory: Directory) -> None:
    directory.person("cleo")
    twice = directory.says("POST", "/Users", {"schemas": [USER], "userName": "Cleo@example.com"})
    assert (twice.status_code, twice.json()["scimType"]) == (409, "uniqueness")
    strange = directory.says("GET", "/Users?filter=userName eq")
    assert (strange.status_code, strange.json()["scimType"]) == (400, "invalidFilter")
    nobody = directory.says("POST", "/Groups", {"schemas": [GROUP], "displayName": "x",
                                                "members": [{"value": "nobody"}]})  # fmt: skip
    assert (nobody.status_code, nobody.json()["scimType"]) == (400, "invalidValue")
    assert not Team.objects.filter(name="x").exists(), "all of it or nothing"
    more = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
    entra = {"schemas": [USER, more], "userName": "eli@example.com", "title": "Accountant",
             more: {"department": "F"}}  # fmt: skip
    taken = directory.says("POST", "/Users", entra)
    assert taken.status_code == 201, "what it does not keep it lets pass"
    assert "title" not in taken.json()
