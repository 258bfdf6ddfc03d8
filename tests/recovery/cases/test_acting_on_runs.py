"""What people do about a run from its pages: report it, stop it, say what they saw of a call."""

import re

import pytest

from approvals import pauses
from approvals.models import Pause
from ledger.models import Action, Event
from recovery.casework import settling
from recovery.models import Case
from recovery.triage import triage
from tests.approvals.cast import put_in_force
from tests.people import logged_in, person, team


@pytest.fixture
def good(begin_run, shop, ticket):
    """A run that ended well, and yet set the wrong ticket."""
    run = begin_run()
    wrong = ("ticket", "main/T-182", ticket, ticket | {"priority": "high"})
    run.does("tickets.update", wrong, planned={"args": {"priority": "high"}})
    return run.ends()


def test_ada_reports_a_run_that_looked_good_and_is_led_to_its_case(desk, good, ada):
    assert good.case() is None
    page = desk.get("/w/acme/runs/run_1/")
    assert "/w/acme/report/run_1/" in page.text
    assert "See its case" not in page.text
    asked = desk.get("/w/acme/report/run_1/").text
    assert "What did this run do wrong?" in asked
    beside = asked[asked.index("What it did") :].replace("<wbr>", "")
    assert "tickets.update" in beside, "what it did stands beside what is written of it"
    assert not Case.objects.exists()

    answer = desk.post("/w/acme/report/run_1/", {"why": "It was T-204 that she meant"})

    case = Case.objects.get()
    assert answer["location"] == f"/w/acme/cases/{case.pk}/"
    assert case.standing_count == 1
    assert Event.objects.get(type="case.reported").actor == str(ada.pk)
    assert case.headline in desk.get("/w/acme/report/run_1/").text, "its case is named"
    there = f'href="/w/acme/cases/{case.pk}/">See its case'
    assert there in desk.get("/w/acme/runs/run_1/").text


def test_a_report_needs_words_a_run_and_somebody_who_recovers(desk, client, good, acme, dev):
    assert desk.post("/w/acme/report/run_1/", {"why": " "}).status_code == 422
    assert desk.get("/w/acme/report/run_7/").status_code == 404
    vik = person("vik", team(acme, "viewers", "view"))
    client.force_login(vik)
    assert client.post("/w/acme/report/run_1/", {"why": "x"}).status_code == 403
    assert "/report/" not in client.get("/w/acme/runs/run_1/").text
    client.force_login(dev)
    assert client.post("/w/acme/report/run_1/", {"why": "x"}).status_code == 404
    assert not Case.objects.exists()


def test_a_run_that_goes_on_is_stopped_from_its_page(desk, begin_run, client, acme):
    """Its id had to be typed on the page of policies."""
    run = begin_run("run_9")
    page = desk.get("/w/acme/runs/run_9/").text
    [there] = re.findall(r'href="([^"#]+)#[^"]*">Stop it', page)

    asked = desk.get(there)
    said = asked.context["pause_form"].initial | {"reason": "It writes to the wrong ones"}
    assert desk.post("/w/acme/policies/pauses/", said).status_code == 302

    one = Pause.objects.get()
    assert (one.kind, one.name) == ("run", "run_9")
    run.ends()
    assert ">Stop it" not in desk.get("/w/acme/runs/run_9/").text
    begin_run("run_10")
    client.force_login(person("vik", team(acme, "viewers", "view")))
    assert ">Stop it" not in client.get("/w/acme/runs/run_10/").text


@pytest.mark.parametrize(
    ("kind", "page", "name"),
    [("agent", "settings/keys/", "ticket-desk"), ("tool", "tools/", "tickets.update")],
)
def test_an_agent_and_a_tool_are_paused_from_where_they_stand(
    desk, begin_run, client, acme, kind, page, name
):
    """Their names had to be typed on the page of policies, where all of it stood chosen."""
    begin_run().fails("tickets.update")
    whole = desk.get("/w/acme/policies/").context["pause_form"]
    assert whole.initial == {}
    assert desk.post("/w/acme/policies/pauses/", {"kind": "", "reason": "x"}).status_code == 422

    links = re.findall(r'href="([^"#]+)#pauses-title"', desk.get(f"/w/acme/{page}").text)
    there = next(one for one in links if one.endswith(f"?{kind}={name}"))
    said = desk.get(there).context["pause_form"].initial | {"reason": "It pays twice"}
    assert desk.post("/w/acme/policies/pauses/", said).status_code == 302

    one = Pause.objects.get()
    assert (one.kind, one.name) == (kind, name)
    client.force_login(person("vik", team(acme, "viewers", "view")))
    assert "#pauses-title" not in client.get(f"/w/acme/{page}").text.partition("<main")[2]


def test_a_run_its_agent_or_its_tool_is_stopped_from_the_case(desk, begin_run, ada, acme):
    run = begin_run()
    run.fails("tickets.update", outcome="unknown")
    triage.look()
    desk.post("/w/acme/report/run_1/", {"why": "It sends one mail after the other"})
    case = Case.objects.get()
    offered = desk.get(f"/w/acme/cases/{case.pk}/").context["pausing"]["choices"]
    assert [one["value"] for one in offered][:2] == ["run", "agent"]

    said = {"kind": "run", "why": "Look at it first"}
    page = desk.post(f"/w/acme/cases/{case.pk}/pause/", said, follow=True)

    assert "Run run_1 is stopped until it is lifted." in page.text
    pause = Pause.objects.get()
    assert (pause.kind, pause.name, pause.paused_by) == ("run", "run_1", ada)
    assert pauses.held_runs([pause]) == [(1, False)]
    assert desk.get("/w/acme/queue/?q=is:paused").context["cases"][0]["run"] == "run_1"
    looks_on = logged_in(person("vik", team(acme, "viewers", "view")))
    seen = looks_on.get(f"/w/acme/cases/{case.pk}/")
    assert "You look on: acting on a case takes the permission “recover”" in seen.text
    assert all(one["why_not"] for one in seen.context["acts"])
    again = desk.post(f"/w/acme/cases/{case.pk}/pause/", said, follow=True)
    assert "already paused" in again.text
    for wrong in ({"kind": "workspace", "why": "x"}, {"kind": "agent", "why": " "}, {}):
        desk.post(f"/w/acme/cases/{case.pk}/pause/", wrong)
    assert Pause.objects.count() == 1


@pytest.fixture
def unseen(good, acme, ada):
    """The rule leaves it to a person to look, and nobody has."""
    rule = {"tickets.*": {"approval": "AUTO", "verify": "PERSON"}}
    put_in_force(acme, ada, {"policies": rule})
    return good.case()


def test_a_rule_that_asks_for_a_person_is_answered_by_one(desk, unseen, ada):
    assert unseen.reasons == ["verification_missing"]
    notice = desk.get(f"/w/acme/cases/{unseen.pk}/").context["notices"][0]
    url = notice["links"][0]["url"]
    page = desk.get(url)
    assert b"&lt;time" not in page.content, "a time is shown, not its markup"
    assert re.search(rb"<dt>Done</dt><dd><time ", page.content)
    assert "Is it as tickets.update should have left it?" in page.text
    said = {"revision": unseen.revision, "action": page.context["subject_id"]}

    assert desk.post(url, said | {"outcome": "ok", "evidence": " "}).status_code == 409
    assert desk.post(url, said | {"evidence": "x"}).status_code == 409
    desk.post(url, said | {"outcome": "ok", "evidence": "T-182 is the one she meant"})

    event = Event.objects.get(type="action.verified")
    assert (event.actor_kind, event.actor) == ("person", str(ada.pk))
    assert event.data["checks"][0]["actual"] == "T-182 is the one she meant"
    assert Action.objects.get().verified == "ok"
    assert desk.get(f"/w/acme/cases/{unseen.pk}/").context["notices"] == []
    assert desk.get(url).status_code == 302, "nothing waits any more"


def test_whoever_is_to_look_reads_what_the_call_was_made_with(client, unseen, acme, ada):
    sue = person("sue", team(acme, "seniors", "view", "view_sensitive", "recover"))
    raw = []
    for who in (ada, sue):
        client.force_login(who)
        raw.append(client.get(f"/w/acme/cases/{unseen.pk}/confirm/").context["raw"])

    assert raw == ["", '{\n  "priority": "high"\n}']


def test_what_a_person_finds_wrong_is_a_failed_verification(desk, unseen):
    url = f"/w/acme/cases/{unseen.pk}/confirm/"
    said = {"revision": unseen.revision, "outcome": "wrong", "evidence": "It is T-204"}

    desk.post(url, said)

    unseen.refresh_from_db()
    assert unseen.reasons[0] == "verification_failed"
    page = desk.get(f"/w/acme/cases/{unseen.pk}/").text
    assert ">went wrong <time" in page, "its run completed"


def test_whoever_confirms_after_somebody_else_keeps_what_they_wrote(
    desk, unseen, operators, monkeypatch
):
    """*It is not*, and why, was lost: the page said that it has been verified meanwhile."""
    url = f"/w/acme/cases/{unseen.pk}/confirm/"
    said = {"revision": unseen.revision, "action": Action.objects.get().pk}
    theirs, mine = said | {"outcome": "ok", "evidence": "T-182"}, {"outcome": "wrong"}
    other, confirm = logged_in(person("otto", operators)), settling.confirm

    def twice(*about, **words):  # a second click, while the first is on its way
        confirm(*about, **words)
        return confirm(*about, **words)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(settling, "confirm", twice)
        first = other.post(url, theirs, follow=True)
    again = other.post(url, theirs, follow=True)

    page = desk.post(url, said | mine | {"evidence": "It is T-204"})

    assert "Written down, in your name." in first.text
    assert "Written down, in your name." in again.text
    assert page.status_code == 409
    assert ">It is T-204</textarea>" in page.text
    assert re.search(r'value="wrong" required checked', page.text)
    assert "Otto answered it" in page.text
    assert "It counts as verified now." in page.text
    assert "No verification has come" not in page.text
    assert Event.objects.filter(type="action.verified").count() == 1


def test_a_viewer_confirms_and_stops_nothing(client, unseen, ben):
    client.force_login(ben)
    assert client.get(f"/w/acme/cases/{unseen.pk}/").context["notices"] == []
    assert client.get(f"/w/acme/cases/{unseen.pk}/").context["pausing"] is None
    assert client.post(f"/w/acme/cases/{unseen.pk}/confirm/", {}).status_code == 403
    assert client.post(f"/w/acme/cases/{unseen.pk}/pause/", {"kind": "agent"}).status_code == 403
