"""Teach the desk to undo this: a twin made of a call on record, rehearsed, and saved."""

import html

import pytest
from django.test import Client

from approvals import versions
from approvals.models import PolicyVersion
from connectors import connections
from connectors.models import Connection
from ledger.models import Effect, Run
from recovery.casework import cases
from recovery.engine import steps
from recovery.models import Case
from recovery.planning.drafting import connections_of, draft_steps
from recovery.run_facts.runs import facts_of
from recovery.triage import triage
from tests.people import logged_in, person
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand
from tests.worlds import kept
from workspaces import teams

TEACH = "/w/acme/teach/"


@pytest.fixture
def browser(acme):
    """Nina, who administers and sees payloads."""
    admins = teams.create(
        acme, "admins", by=None, may=["view", "view_sensitive", "recover", "administer"]
    )
    return logged_in(person("nina", admins))


@pytest.fixture
@kept(in_turn=True)
def closed(begin_run, shop, ticket):
    """A run that closed T-182 by a tool of which nothing says how it is undone, and failed."""
    run = begin_run()
    done = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high'")
    run.does(
        "desk.close", ("ticket", "main/T-182", ticket, done), planned={"args": {"seat": "S-7"}}
    )
    run.send("run.failed", error={"type": "Boom", "message": "it broke"})
    triage.look()
    return run


def said(effect, **more):
    return {"effect": effect.pk, "glob": "desk.close", "target": "ticket"} | more


def test_what_nothing_undoes_is_taught_from_the_case_and_undone_then(browser, acme, closed, shop):
    case, effect = Case.objects.get(), Effect.objects.get()
    here = f"/w/acme/cases/{case.pk}/"
    page = browser.get(here)
    leads = f"{TEACH}?effect={effect.pk}"
    assert [one["url"] for one in page.context["acts"] if one["main"]] == [leads]
    assert "Teach the desk to undo desk.close." in page.text
    assert page.text.count(leads) == page.text.count("Nothing says") == 1, "it is said once"
    assert f"{here}outlook/" not in page.text, "there is nothing to look at"
    assert leads in browser.get(f"{here}compensate/").text
    tools = browser.get("/w/acme/tools/").text
    assert f"{TEACH}?tool=desk.close" in tools
    assert f"{TEACH}?tool=tickets.update" not in tools
    from_tools = browser.get(f"{TEACH}?tool=desk.close").text
    assert 'name="tool" value="desk.close"' in from_tools
    assert f'href="{here}"' not in from_tools
    asked = browser.get(f"{TEACH}?effect={effect.pk}").text
    assert 'value="desk.close"' in asked
    assert f'<a href="{here}" data-back>' in asked, "it leads back to where it was begun"

    chosen = browser.post(TEACH, said(effect, operation="shop.restore_row", act="choose")).text
    assert 'name="arg_to" value="before"' in chosen
    rehearsed = browser.post(
        TEACH, said(effect, operation="shop.restore_row", arg_to="before", act="rehearse")
    )
    shown = html.unescape(rehearsed.text)
    assert '"priority": "normal"' in shown
    assert "nothing was called" in shown
    assert shop.execute("SELECT priority FROM tickets").fetchone()[0] == "high"

    saves = said(effect, operation="shop.restore_row", arg_to="before", act="save")
    keepers = teams.create(acme, "keepers", by=None, may=["view", "administer"])
    kim = logged_in(person("kim", keepers))
    assert "undo the case" not in kim.post(TEACH, saves, follow=True).text, "they may not"
    saved = browser.post(TEACH, saves)
    version = PolicyVersion.objects.latest("number")
    assert saved.headers["Location"] == f"/w/acme/policies/{version.number}/"
    assert not version.active
    assert f'<a href="{here}compensate/">undo the case by it</a>' in browser.get(saved.url).text
    versions.activate(version, by=None)
    drafted = draft_steps(facts_of(case.run), connections_of([acme]))
    assert [one.step.operation for one in drafted.steps] == ["restore_row"]
    page = browser.get(here)
    assert not page.context["acts_why"]
    assert TEACH not in page.text


def test_the_first_that_can_be_taught_leads_on_a_preview(browser, closed):
    closed.does("mail.send", ("mail", "m-1", None, {"to": "eve"}))
    triage.look()

    page = browser.get(f"/w/acme/cases/{Case.objects.get().pk}/compensate/")

    assert [one["leads"] for one in page.context["cannot"]] == [False, True]
    assert page.text.count('class="button main-act" href') == 1


def test_who_may_not_teach_the_desk_reads_who_can(browser, closed, ada, client):
    here = f"/w/acme/cases/{Case.objects.get().pk}/"
    client.force_login(ada)

    case, preview = client.get(here), client.get(f"{here}compensate/").text

    assert case.context["acts_why"] == "Compensate: Nina can teach the desk how."
    assert "Nina can teach the desk how." in preview
    assert TEACH not in case.text + preview


def test_what_all_rehearsed_calls_lack_is_said_once(browser, closed, begin_run, ticket):
    other = begin_run()
    other.does("desk.close", ("ticket", "main/T-204", ticket, ticket | {"priority": "high"}))
    effect = Effect.objects.earliest("pk")
    asked = said(effect, operation="shop.restore_row", arg_to="result.row", act="rehearse")

    shown = browser.post(TEACH, asked).text

    assert shown.count("A fact that the undo needs is not known") == 1
    assert shown.count(f"run {other.run}") == shown.count(f"run {closed.run}") == 1


def test_a_twin_that_lacks_a_fact_says_which_and_is_not_saved(browser, closed):
    effect = Effect.objects.get()
    for source, told in (
        ("result.row", "A fact that the undo needs is not known"),
        ("befor", "did you mean before?"),
        ("", "to"),
    ):
        asked = said(effect, operation="shop.restore_row", arg_to=source, act="save")
        refused = browser.post(TEACH, asked)
        assert refused.status_code == 422
        assert told in html.unescape(refused.text)
    assert PolicyVersion.objects.count() == 1


def test_a_version_saved_meanwhile_is_told_once_and_what_was_typed_stays(browser, acme, closed):
    effect = Effect.objects.get()
    page = browser.get(f"{TEACH}?effect={effect.pk}").text
    assert 'name="seen" value="1"' in page
    versions.save(acme, "policies: {a: {approval: DENY}}", by=None, note="theirs")
    typed = said(
        effect, operation="shop.restore_row", arg_to="before", words="Put it back", seen="1"
    )
    tried = browser.post(TEACH, typed | {"act": "rehearse"})
    assert 'name="seen" value="1"' in tried.text

    told = browser.post(TEACH, typed | {"act": "save"})

    assert told.status_code == 409
    assert "saved version 2 since you began" in told.text
    assert "Put it back" in told.text
    assert 'name="seen" value="2"' in told.text
    assert PolicyVersion.objects.count() == 2
    assert browser.post(TEACH, typed | {"act": "save", "seen": "2"}).status_code == 302


def test_what_cannot_be_undone_at_all_is_not_offered_to_be_taught(browser, begin_run, ticket):
    run = begin_run()
    run.does("mail.send", ("mail", "m-1", None, {"to": "x"}))
    run.send("run.failed", error={"type": "Boom", "message": "it broke"})
    triage.look()
    page = browser.get(f"/w/acme/cases/{Case.objects.get().pk}/").text
    assert TEACH not in page
    assert f"{TEACH}?tool" not in browser.get("/w/acme/tools/").text
    assert browser.get(f"{TEACH}?effect=999999").status_code == 404


def test_what_nobody_planned_has_no_name_by_which_it_could_be_taught(browser, begin_run, ticket):
    """Its case led to a page that is not there."""
    run = begin_run()
    told = {"target": {"type": "ticket", "id": "main/T-1"}, "before": ticket, "after": None}
    run.send("action.succeeded", "act_1", effects=[told])
    case = run.ends("failed").case()

    page = browser.get(f"/w/acme/cases/{case.pk}/").text
    preview = browser.get(f"/w/acme/cases/{case.pk}/compensate/").text

    assert (case.suggestion, TEACH in page + preview) == ("close", False)
    assert "can teach the desk" not in page + preview


def test_what_the_desk_undoes_with_is_taught_only_where_people_report_such_an_undo_as_wrong(
    browser, raised, ada
):
    plan = submitted(raised.case(), ada)
    by_hand.advance(plan.pk)
    tools = browser.get("/w/acme/tools/").text
    assert "shop.restore_row" in tools
    assert f"{TEACH}?tool=shop.restore_row" not in tools

    case = cases.report(Run.objects.get(run=steps.run_of(plan)), text="It was right", by=ada)

    assert f"{TEACH}?effect=" in browser.get(f"/w/acme/cases/{case.pk}/").text


def test_only_who_administers_teaches_and_values_are_for_who_sees_them(acme, closed, operators):
    effect = Effect.objects.get()
    operator = logged_in(person("otto", operators))
    assert operator.get(f"{TEACH}?effect={effect.pk}").status_code == 403
    assert TEACH not in operator.get(f"/w/acme/cases/{Case.objects.get().pk}/").text
    hidden = Client()
    olgas = teams.create(acme, "olgas", by=None, may=["view", "administer"])
    hidden.force_login(person("olga", olgas))
    page = hidden.post(
        TEACH, said(effect, operation="shop.restore_row", arg_to="before", act="rehearse")
    ).text
    assert "args.seat" in page
    assert "S-7" not in page
    assert "normal" not in page


@pytest.fixture
def webhook(acme, outbound):
    """A system of which nothing is said but that it can restore."""
    outbound.append("127.0.0.1")
    declared = {"restore": {"title": "Restore {target} at {place}"}}
    settings = {"url": "http://127.0.0.1:9/undo", "operations": declared}
    return connections.create(acme, "crm", "webhook", settings, by=None)


def test_an_operation_that_declares_no_arguments_is_taught_with_any(browser, acme, closed, webhook):
    effect = Effect.objects.get()
    operation = "crm.restore"

    chosen = browser.post(TEACH, said(effect, operation=operation, act="choose")).text
    assert "It declares none" in chosen
    wrong = browser.post(TEACH, said(effect, operation=operation, act="rehearse", arguments="to"))
    assert (wrong.status_code, "name = expression, each name once" in wrong.text) == (422, True)

    lines = {"arguments": "to = before\nwhy = target.id"}
    page = browser.post(TEACH, said(effect, operation=operation, act="rehearse", **lines))

    assert page.context["rehearsed"][0]["lacks"] == ""
    saved = browser.post(TEACH, said(effect, operation=operation, act="save", **lines))
    assert saved.status_code == 302
    twin = PolicyVersion.objects.latest("number").document["agentSafety"]["twins"]["desk.close"]
    assert twin["args"] == {"to": "before", "why": "target.id"}


def test_without_a_connection_the_page_says_what_is_missing_first(browser, acme, closed):
    Connection.objects.all().delete()
    page = browser.get(f"{TEACH}?effect={Effect.objects.get().pk}").text
    assert "No connection offers an operation yet" in page
