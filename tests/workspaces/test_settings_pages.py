"""The settings pages: who may change what, and what is shown once."""

import re
from datetime import timedelta

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from workspaces import entrance, teams
from workspaces.access import may
from workspaces.forms import OneLine
from workspaces.models import Act, Agent, APIKey, DirectoryPerson, Invitation, User

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk(client, ada):
    client.force_login(ada)
    return client


PAGES = ["settings/", "settings/members/", "settings/keys/"]


@pytest.mark.parametrize("page", PAGES)
def test_every_settings_page_opens_for_a_viewer_without_its_forms(client, ben, airline, page):
    client.force_login(ben)

    answer = client.get(f"/w/airline/{page}")

    assert answer.status_code == 200
    assert "administer" in answer.text


def test_each_tab_of_the_settings_opens_for_whoever_is_shown_it(client, ada, ben, airline):
    def tabs(person):
        client.force_login(person)
        shown = client.get("/w/airline/settings/").text
        tabs = shown[shown.index('<nav class="tabs"') :]
        return re.findall(r'href="([^"]+)"', tabs[: tabs.index("</nav>")])

    kept = "/w/airline/settings/kept/"
    assert kept in tabs(ada)
    assert client.get(kept).status_code == 200
    assert kept not in tabs(ben)
    assert [client.get(one).status_code for one in tabs(ben)] == [200] * len(tabs(ben))


def test_a_setting_is_shown_kept_and_told_by_being_named_in_the_form(desk, client, ben, airline):
    said = {"name": "Flight   desk", "timezone": "Europe/Paris"}
    was = {"name": airline.name, "timezone": airline.timezone}

    assert desk.post("/w/airline/settings/", said).status_code == 302
    assert desk.post("/w/airline/settings/", said | {"timezone": "Mars"}).status_code == 422

    airline.refresh_from_db()
    assert (airline.name, airline.timezone) == ("Flight desk", "Europe/Paris")
    assert Act.objects.get(type="workspace.changed").data == said | {
        "name": "Flight desk", "was": was,
    }  # fmt: skip
    client.force_login(ben)
    shown = client.get("/w/airline/settings/").text
    assert "<dt>Time zone</dt><dd>Europe/Paris</dd>" in shown
    assert client.post("/w/airline/settings/", said).status_code == 403


def test_of_two_old_pages_the_second_puts_nothing_back_without_a_word(desk, airline):
    here = "/w/airline/settings/"
    seen = re.search(r'name="seen" value="([^"]+)"', desk.get(here).text)[1]
    said = {"name": airline.name, "timezone": airline.timezone, "seen": seen}
    assert desk.post(here, said | {"timezone": "Europe/Paris"}).status_code == 302

    wrong = desk.post(here, said | {"name": ""})
    assert (wrong.status_code, seen in wrong.text) == (422, True), "it is still an old page"
    second = desk.post(here, said | {"name": "Flights"})

    airline.refresh_from_db()
    assert (second.status_code, airline.timezone) == (409, "Europe/Paris")
    assert "Somebody has changed these settings" in second.text
    assert 'value="Flights"' in second.text, "what was typed is kept"
    again = re.search(r'name="seen" value="([^"]+)"', second.text)[1]
    assert desk.post(here, said | {"name": "Flights", "seen": again}).status_code == 302


def test_whoever_presses_a_button_hears_what_came_of_it(desk, airline, ben):
    def said(path, **fields):
        answer = desk.post(f"/w/airline/settings/{path}", fields, follow=True)
        return re.findall(r"data-focus>([^<]+)</div>", answer.text)

    assert said("teams/", name="finance", may="view") == [
        "The team finance is made. Nobody is in it yet."
    ]
    finance = airline.teams.get(name="finance")
    assert said(f"teams/{finance.pk}/", may="approve") == ["What finance may is saved."]
    members = f"teams/{finance.pk}/people/"
    assert said(members, person=ben.pk, act="add") == ["Ben is in finance now."]
    assert said(members, person=ben.pk, act="remove") == ["Ben is no longer in finance."]
    last = f"teams/{airline.teams.get(name='viewers').pk}/people/"
    assert said(last, person=ben.pk, act="remove") == [
        "Ben is no longer in viewers, and no longer works here."
    ]
    assert said("agents/", name="booker") == ["booker is added. It needs a key next."]


OWN = {"single_keys_known": "1", "timezone": "", "mail_approvals": "on"}


def test_a_new_name_is_on_the_record_and_is_nobody_elses(desk, airline, ada, ben):
    User.objects.filter(pk=ben.pk).update(name="Tor Lindqvist")

    def renamed(name):
        return desk.post("/w/airline/settings/", OWN | {"name": name})

    for other in ("Tor Lindqvist", "tor lindqvist", "Tor L\u0456ndqvist", "Tor  Lindqvist"):
        assert "looks the same" in renamed(other).text, other
    for unseen in ("Tor\u200b L.", "Tor \u202eL."):
        assert "nobody sees" in renamed(unseen).text
    assert User.objects.get(pk=ada.pk).name == ada.name
    assert not Act.objects.filter(type="member.renamed").exists()

    assert renamed("Ada Nilsson").status_code == 302

    told = Act.objects.get(type="member.renamed").data
    assert told == {"person": ada.email, "name": "Ada Nilsson", "was": ada.name}
    assert renamed("Ada Nilsson").status_code == 302
    assert Act.objects.filter(type="member.renamed").count() == 1


def test_who_joins_takes_nobodys_name(client, airline, ada):
    token = entrance.invite(airline, "cleo@example.com", [], by=ada)
    said = {"name": ada.name, "password": "a long enough secret"}
    assert "looks the same" in client.post(f"/join/{token}/", said).text
    assert not User.objects.filter(email="cleo@example.com").exists()


@pytest.mark.parametrize("page", PAGES)
def test_a_stranger_learns_nothing_of_a_workspace(client, airline, page):
    client.force_login(User.objects.create_user("dev@example.com", "a long enough secret"))

    assert client.get(f"/w/airline/{page}").status_code == 404


def test_a_new_desk_says_how_to_set_it_up(client):
    assert "setup_link" in client.get("/").text


def test_the_set_up_page_makes_a_workspace_and_logs_in(client):
    token = entrance.setup_link()
    said = {
        "name": "Ada",
        "email": "ada@example.com",
        "password": "a long enough secret",
        "workspace_name": "Airline desk",
        "slug": "airline",
    }

    answer = client.post(f"/setup/{token}/", said, follow=True)

    assert answer.redirect_chain[-1][0] == "/w/airline/settings/keys/"
    assert client.post(f"/setup/{token}/", said).status_code == 410


def test_a_workspace_without_a_name_is_one_mistake_and_not_two(client):
    said = {"name": "Ada", "email": "ada@example.com", "password": "a long enough secret"}

    answer = client.post(f"/setup/{entrance.setup_link()}/", said)

    assert list(answer.context["form"].errors) == ["workspace_name"]


@pytest.mark.parametrize(
    ("name", "slug"), [("Airline desk", "airline-desk"), ("Ærø & Söhne", "r-sohne"), ("東京", None)]
)
def test_the_short_name_is_made_of_the_name_where_that_can_be(client, name, slug):
    token = entrance.setup_link()
    said = {"name": "Ada", "email": "ada@example.com", "password": "a long enough secret"}

    answer = client.post(f"/setup/{token}/", said | {"workspace_name": name})

    if slug is None:
        assert "A short name of letters and digits is needed here." in answer.text
    else:
        assert answer.url == f"/w/{slug}/settings/keys/"


def test_a_weak_password_is_refused_in_words(client):
    answer = client.post(
        f"/setup/{entrance.setup_link()}/",
        {"name": "A", "email": "a@b.de", "password": "12345", "workspace_name": "A", "slug": "a"},
    )

    assert "too short" in answer.text


def test_a_key_is_shown_in_one_answer_and_never_again(desk, airline, ada):
    agent = Agent.objects.create(workspace=airline, name="airline-desk", owner=ada)

    shown = desk.post(
        "/w/airline/settings/keys/new/",
        {"agent": agent.pk, "name": "production", "scopes": ["ingest", "begin"]},
    )

    key = APIKey.objects.get()
    assert f"amends_{key.prefix}_" in shown.text
    assert f"amends_{key.prefix}_" not in desk.get("/w/airline/settings/keys/").text
    APIKey.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    listed = desk.get("/w/airline/settings/keys/").text
    assert ("Expired" in listed, "Active" in listed) == (True, False)


def test_the_agent_that_was_just_added_is_chosen_for_the_next_key(desk, airline):
    for name in ("first", "second"):
        desk.post("/w/airline/settings/agents/", {"name": name})

    chosen = desk.get("/w/airline/settings/keys/").text

    assert f'<option value="{Agent.objects.get(name="second").pk}" selected>second' in chosen


def test_a_viewer_makes_no_key_and_invites_nobody(client, ben, airline):
    client.force_login(ben)

    assert client.post("/w/airline/settings/agents/", {"name": "mole"}).status_code == 403
    assert client.post("/w/airline/settings/members/invite/", {}).status_code == 403


def test_an_invited_person_makes_an_account_and_joins(desk, airline, client, mailoutbox):
    viewers = airline.teams.get(name="viewers")
    shown = desk.post(
        "/w/airline/settings/members/invite/", {"email": "cleo@example.com", "teams": [viewers.pk]}
    )
    link = shown.context["invited"]["link"]
    assert link in mailoutbox[0].body
    desk.logout()

    client.post(link, {"name": "Cleo", "password": "a long enough secret"})

    cleo = User.objects.get(email="cleo@example.com")
    assert may(cleo, "view", airline)
    assert Invitation.objects.get().accepted_at is not None


def test_the_last_administrator_stays(desk, airline, ada):
    administrators = airline.teams.get(name="administrators")

    desk.post(f"/w/airline/settings/teams/{administrators.pk}/", {"may": ["view"]})
    desk.post(
        f"/w/airline/settings/teams/{administrators.pk}/people/",
        {"person": ada.pk, "act": "remove"},
    )

    assert may(ada, "administer", airline)


def test_whoever_stands_in_a_team_can_leave_it_and_lands_where_they_still_are(
    client, desk, airline, ada, ben
):
    night = teams.create(airline, "night shift", by=ada, may=["recover"])
    teams.add(night, ben, by=ada)

    def leaves(person, team):
        client.force_login(person)
        address = f"/w/airline/settings/teams/{team.pk}/leave/"
        is_offered = address in client.get("/w/airline/settings/members/").text
        answer = client.post(address, follow=True)
        assert answer.status_code == 200
        return is_offered, re.findall(r"data-focus>([^<]+)</div>", answer.text), answer.text

    assert leaves(ben, night)[:2] == (True, ["You are no longer in night shift."])
    told = Act.objects.get(type="member.removed")
    assert (told.person, told.data) == (ben, {"team": "night shift", "person": ben.email})
    assert leaves(ben, night)[:2] == (
        False, ["You are not in night shift: nothing was changed."],
    )  # fmt: skip
    assert Act.objects.filter(type="member.removed").count() == 1
    assert "You are in no workspace" in leaves(ben, airline.teams.get(name="viewers"))[2]

    last = airline.teams.get(name="administrators")
    assert "Nobody could administer" in leaves(ada, last)[2]
    assert may(ada, "administer", airline)


def test_from_an_old_page_no_right_comes_back_that_somebody_has_withdrawn(desk, airline, ada):
    team = airline.teams.get(name="viewers")
    teams.set_grants(team, ["view", "approve"], by=ada)
    form = f'action="/w/airline/settings/teams/{team.pk}/">'
    drawn = desk.get("/w/airline/settings/members/").text.partition(form)[2].partition("</form>")[0]
    [seen] = re.findall(r'name="seen" value="([^"]*)"', drawn)
    teams.set_grants(team, ["view"], by=ada)
    there, said = f"/w/airline/settings/teams/{team.pk}/", {"may": ["view", "approve", "recover"]}

    told = desk.post(there, said | {"seen": seen}, follow=True).text

    assert "Somebody has changed what viewers may since you saw it" in told
    assert teams.grants_of(team) == ["view"]
    desk.post(there, said | {"seen": "view"})
    assert teams.grants_of(team) == ["approve", "recover", "view"]


def test_what_the_forms_of_a_team_do_not_offer_changes_nothing(desk, airline):
    team = airline.teams.get(name="viewers")

    for person in ("nobody", "", "9" * 30):
        said = {"person": person, "act": "add"}
        answer = desk.post(f"/w/airline/settings/teams/{team.pk}/people/", said)
        assert answer.status_code == 404
    granted = desk.post(f"/w/airline/settings/teams/{team.pk}/", {"may": ["view", "everything"]})

    assert granted.status_code == 302
    assert list(teams.grants_of(team)) == ["view"]
    assert not team.group.user_set.exists()


def test_a_link_scanner_changes_nothing(desk, airline):
    for page in ("members/invite/", "agents/", "keys/new/", "tokens/", "teams/"):
        assert desk.get(f"/w/airline/settings/{page}").status_code == 405


@pytest.mark.parametrize("page", ["channels/", "audit/", "settings/keys/"])
def test_a_page_among_the_settings_tabs_stands_under_settings(desk, airline, page):
    shown = desk.get(f"/w/airline/{page}").text

    assert 'href="/w/airline/settings/" aria-current="page"' in shown


def test_a_name_of_two_lines_becomes_one_and_its_owner_can_still_invite(desk, ada, airline):
    User.objects.filter(pk=ada.pk).update(name="Ada\r\nBcc: all@example.com")  # as it once could be

    page = desk.post(
        "/w/airline/settings/members/invite/",
        {"email": "cleo@example.com", "teams": [airline.teams.get(name="viewers").pk]},
    )

    assert page.status_code == 200
    assert "cleo@example.com is invited.</b> The link went there by mail." in page.text
    (letter,) = mail.outbox
    assert letter.subject == "Ada⏎Bcc: all@example.com invites you to Airline desk on Amends"
    assert not {"\r", "\n"} & set(letter.subject)
    assert letter.recipients() == ["cleo@example.com"]
    link = re.search(r"/join/\S+", str(letter.body))
    assert link is not None
    asked = Client().get(link[0]).text
    assert "invites you into viewers. There people see what software agents did" in asked
    form = OneLine(max_length=80)
    assert form.clean("Ada\r\nBcc: all@example.com") == "Ada Bcc: all@example.com"


def test_everybody_who_left_is_found_on_the_page_of_the_directory(desk, airline):
    """Only the first two hundred were, and nothing said so."""
    left = {f"p{number:03}@example.com" for number in range(220)}
    DirectoryPerson.objects.bulk_create(
        DirectoryPerson(workspace=airline, user_name=one, active=False) for one in left
    )
    found: set[str] = set()
    address = "/w/airline/settings/directory/"
    while address:
        page = desk.get(address).text
        found |= set(re.findall(r"p[0-9]{3}@example.com", page))
        [address] = re.findall(r'href="([^"]+)" rel="next"', page) or [""]

    assert found == left
