"""The page on which people decide what becomes of a step: what stopped it, and who answered."""

import pytest
from django.utils import timezone

from approvals import inbox
from approvals.models import Approval
from connectors import calllog, connections
from connectors.models import Connection, digest_of_settings
from ledger.models import Effect
from recovery.casework import settling
from recovery.models import Residue, Step, StepState
from recovery.triage import triage
from tests.approvals.cast import put_in_force
from tests.connectors.conftest import server_of
from tests.people import person, team
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand
from tests.worlds import kept

STRICTER = {
    "policies": {"shop.*": {"approval": "MANUAL", "requires": [{"group": "leads", "count": 1}]}},
    "twins": {
        "tickets.*": {"connection": "shop", "operation": "restore_row", "args": {"to": "before"}}
    },
}


@pytest.fixture
def desk(client, acme):
    """Olga recovers and may see payloads."""
    olga = person("olga", team(acme, "seniors", "view", "recover", "view_sensitive"))
    client.force_login(olga)
    return client


def plan_of(run, by, *, changed):
    """A plan that was drafted, then something changed, then it was tried."""
    case = run.case()
    plan = submitted(case, by)
    changed()
    by_hand.advance(plan.pk)
    triage.look([case.run_id])
    case.refresh_from_db()
    return case


def row(page, field):
    rows = page.context["stopped_by"]
    return next(one for one in rows if one["field"] == field)


def test_a_stricter_rule_is_shown_beside_what_it_asked_before(desk, raised, acme, ada):
    case = plan_of(raised, ada, changed=lambda: put_in_force(acme, ada, STRICTER))

    page = desk.get(f"/w/acme/cases/{case.pk}/settle/")

    answer, people = row(page, "rule.answer"), row(page, "rule.people")
    assert (answer["was"], answer["now"]) == ("AUTO", "MANUAL")
    assert (people["was"], people["now"]) == ("nobody", "1 person from leads")
    assert "What stopped it, field by field" in page.text
    assert "Sent in your name, under a new key." in page.text, "it was not sent before"
    assert "Nothing is sent but by a choice that says so." in page.text
    assert page.context["replan_url"].endswith(f"/cases/{case.pk}/compensate/")
    (step,) = desk.get(f"/w/acme/cases/{case.pk}/").context["plan"]["steps"]
    assert step["diff"] == page.context["stopped_by"]


@pytest.fixture
def reset(raised, shop_connection, shop_url, ada):
    """A plan whose connection was changed in two settings after it was submitted.

    It reaches its server in another way now, so its credentials were entered anew.
    """
    tables = shop_connection.settings["tables"]
    other = {
        "sslmode": "require",
        "tables": tables | {"note": {"table": "notes", "key": ["world", "id"]}},
    }
    credential = {"user": server_of(shop_url)["user"], "password": "canary-7Q"}

    def changed():
        settings = shop_connection.settings | other
        connections.update(shop_connection, settings, by=ada, revision=1)
        for purpose in ("observe", "compensate"):
            connections.set_secret(shop_connection, purpose, credential, by=ada)

    return plan_of(raised, ada, changed=changed)


def test_changed_settings_are_shown_one_by_one_and_who_changed_them(desk, reset):
    page = desk.get(f"/w/acme/cases/{reset.pk}/settle/")

    sslmode, notes = row(page, "settings.sslmode"), row(page, "settings.tables.note")
    assert (sslmode["was"], sslmode["now"]) == ("disable", "require")
    assert (notes["was"], notes["now"]) == (None, {"table": "notes", "key": ["world", "id"]})
    assert "sslmode, tables, by Ada at" in row(page, "connection_digest")["note"]
    assert len(page.context["stopped_by"]) == 3


def test_values_of_settings_are_for_who_may_see_payloads(client, reset, ada):
    client.force_login(ada)

    page = client.get(f"/w/acme/cases/{reset.pk}/settle/")

    assert row(page, "settings.sslmode")["now"] == "hidden: needs view_sensitive"
    assert "sslmode, tables, by Ada at" in row(page, "connection_digest")["note"]


def test_what_others_wrote_is_hidden_from_who_may_not_see_payloads(client, raised, shop, ada):
    case = plan_of(
        raised,
        ada,
        changed=lambda: shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1"),
    )
    client.force_login(ada)

    page = client.get(f"/w/acme/cases/{case.pk}/")

    (step,) = page.context["plan"]["steps"]
    assert {one["now"] for one in step["diff"]} == {"hidden: needs view_sensitive"}
    assert "Finn" not in page.text
    assert page.context["plan"]["state"] == StepState.NEEDS_HUMAN, "nothing of it goes on by itself"
    decided = client.get(step["url"])
    assert "What would be sent" in decided.text
    assert "Nothing was sent yet." in decided.text
    assert "a person, and nothing else of its plan goes on." in decided.text


@pytest.fixture
@kept(in_turn=True)
def lost(raised, shop, ada):
    """A step that was sent, and of which nobody knows what became."""
    case = plan_of(
        raised,
        ada,
        changed=lambda: shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1"),
    )
    Step.objects.update(was=StepState.UNKNOWN, state=StepState.NEEDS_HUMAN, drift=None)
    triage.look([case.run_id])
    case.refresh_from_db()
    return case


def test_a_step_in_doubt_shows_its_whole_key_and_the_sum_it_moves(desk, lost):
    (step,) = settling.steps_in_doubt(lost)
    step.preview |= {"money": {"amount_minor": 128_600, "currency": "USD"}}
    step.save()

    facts = {
        one["name"]: one.get("value")
        for one in desk.get(f"/w/acme/cases/{lost.pk}/settle/").context["sent"]
    }

    assert facts["Key"] == step.key
    assert facts["Amount"] == "$1\u00a0286.00"


def test_tries_of_one_answer_are_one_line_with_the_time_of_the_last(desk, lost):
    (step,) = settling.steps_in_doubt(lost)
    step.attempts.all().delete()
    Step.objects.update(note="")
    answers = [
        ("absent", ""),
        ("applied", ""),
        ("", ""),
        ("no_effect", "busy"),
        ("no_effect", "busy"),
        ("no_effect", "gone"),
    ]
    for number, (outcome, detail) in enumerate(answers, 1):
        at = timezone.now().replace(hour=9, minute=number)
        step.attempts.create(
            number=number, fence=1, key="k", intended_at=at, outcome=outcome, detail=detail
        )

    page = desk.get(f"/w/acme/cases/{lost.pk}/settle/")

    lines = [one["words"] for one in page.context["probes"]]
    assert lines == [
        "Try 6: no effect. gone", "Tries 4 to 5: no effect. busy", "Try 3: no answer.",
        "Try 2: done.", "Try 1: no answer, and it was found not to be done.",
    ]  # fmt: skip
    times = [one["time"] for one in page.context["probes"]][:3]
    assert all(at in time for at, time in zip(("09:06", "09:05", "09:03"), times, strict=True))
    why = {one["name"]: one.get("value") for one in page.context["sent"]}["It waits because"]
    assert why == "the desk cannot go on with it by itself"


def test_a_target_that_cannot_be_read_just_now_says_so(desk, lost, shop, shop_connection):
    shop.execute("ALTER TABLE tickets RENAME TO moved")

    page = desk.get(f"/w/acme/cases/{lost.pk}/settle/")

    assert "What the target looks like now:</b> it could not be read. " in page.text
    assert "Look in the system itself, by what was sent." in page.text
    assert "It is asked again each time" in page.text
    assert 'href="/w/acme/connectors/shop/"' in page.text
    Connection.objects.update(settings=shop_connection.settings | {"database": "another"})

    page = desk.get(f"/w/acme/cases/{lost.pk}/settle/")

    assert "what is read over it says nothing of the step" in page.text
    assert "Look in the system itself, by what was sent." in page.text
    assert "It is asked again each time" not in page.text, "nobody asks it"


def test_where_the_connection_is_off_or_values_are_hidden_the_page_says_what_to_do(
    client, desk, lost, shop_connection, ada
):
    connections.disable(shop_connection, by=ada)
    page = desk.get(f"/w/acme/cases/{lost.pk}/settle/")
    assert "The connection shop is disabled" in page.context["target_unread"]
    client.force_login(ada)

    page = client.get(f"/w/acme/cases/{lost.pk}/settle/")

    assert "it is shown to who may see values (view_sensitive)" in page.text
    assert "target_now" not in page.context
    assert "Look in the system itself" in page.text


def test_a_probe_that_cannot_be_made_says_why_and_what_to_do(desk, begin_run, acme, ada):
    by_key = {"connection": "gone", "operation": "find", "args": {}}
    undone_by = {"connection": "shop", "operation": "restore_row", "args": {"to": "before"}}
    run = begin_run()
    run.plans("tickets.update", ("ticket", "main/T-182"))
    run.ends("failed")
    case = run.case()
    put_in_force(acme, ada, {"twins": {"tickets.*": undone_by | {"probe": by_key}}})

    page = desk.get(f"/w/acme/cases/{case.pk}/settle/")

    assert "The probe was not made: there is no connection “gone”." in page.text
    assert page.text.count("Look in the system itself, by what was sent") == 1


def test_a_page_that_is_loaded_again_and_again_leaves_a_dead_system_alone(
    desk, lost, shop_connection
):
    gone = shop_connection.settings | {"database": "gone"}
    Connection.objects.update(settings=gone)
    approved = digest_of_settings(shop_connection.connector, gone)
    Step.objects.update(connection_digest=approved)

    for _ in range(2 * calllog.FAILURES_MAX):
        page = desk.get(f"/w/acme/cases/{lost.pk}/settle/")

    assert Connection.objects.get().failures_in_a_row == calllog.FAILURES_MAX
    assert "left alone until" in page.context["target_unread"]


def test_who_answers_second_learns_who_was_first_and_keeps_their_words(desk, lost, ada):
    (step,) = settling.steps_in_doubt(lost)
    revision = lost.revision
    settling.settle_step(
        step, outcome="applied", evidence="The ticket reads normal", by=ada, seen=revision
    )
    said = {"step": step.pk, "outcome": "again", "evidence": "I saw nothing", "revision": revision}

    page = desk.post(f"/w/acme/cases/{lost.pk}/settle/", said)

    assert page.status_code == 409
    assert "Ada answered it" in page.text
    assert "The ticket reads normal" in page.text
    assert page.context["evidence"] == "I saw nothing"
    assert page.context["why_not"].startswith("it was answered already")
    step.refresh_from_db()
    assert (step.state, step.generation) == (StepState.APPLIED, 1)


def test_of_what_cannot_be_read_back_a_persons_word_counts_and_is_told_as_theirs(
    desk, lost, ada, acme
):
    (step,) = settling.steps_in_doubt(lost)
    there = f"/w/acme/cases/{lost.pk}/settle/"
    done = next(one for one in desk.get(there).context["ways"] if one["value"] == "applied")
    assert done["note"] == "It is read back, and counts only if that shows it."
    blind = {"host": "127.0.0.1", "port": 25, "sender": "desk@acme.example"}
    mail = connections.create(acme, "mail", "smtp", blind, by=ada)
    Step.objects.update(connection=mail, operation="send_correction")

    done = next(one for one in desk.get(there).context["ways"] if one["value"] == "applied")

    assert done["note"] == "It cannot be read back: your word is what counts."
    step = Step.objects.get()
    settling.settle_step(step, outcome="applied", evidence="Sent", by=ada, seen=lost.revision)
    by_hand.advance(step.plan_id)
    step.refresh_from_db()
    assert step.state == StepState.REPORTED
    (told,) = desk.get(f"/w/acme/cases/{lost.pk}/").context["plan"]["steps"]
    assert told["outcome"] == "A person says it is done; it cannot be read back."


def test_a_second_word_on_an_agents_call_is_kept_too(desk, begin_run, ada, finn):
    run = begin_run()
    run.plans("tickets.update", ("ticket", "main/T-182"))
    run.ends("failed")
    case = run.case()
    (action,) = settling.facts_now(case).unknown()
    shown = desk.get(f"/w/acme/cases/{case.pk}/settle/")
    assert {"name": "Key", "value": action.key, "mono": True} in shown.context["sent"], "whole"
    assert "The policy has no probe for tickets.update" in shown.text
    assert "Nothing is sent by settling; it says what is so." in shown.text
    said = {"outcome": "applied", "evidence": "It reads high", "revision": case.revision}
    settling.settle_action(
        case, action, outcome="no_effect", evidence="It reads normal", by=ada, seen=case.revision
    )

    page = desk.post(f"/w/acme/cases/{case.pk}/settle/", said | {"action": action.pk})

    assert page.status_code == 409
    assert "It reads normal" in page.text
    assert page.context["evidence"] == "It reads high"
    theirs = said | {"action": action.pk, "outcome": "no_effect", "evidence": "It reads normal "}
    desk.force_login(ada)
    again = desk.post(f"/w/acme/cases/{case.pk}/settle/", theirs, follow=True)
    assert "Written down, in your name." in again.text, "her own word, whose answer did not come"
    desk.force_login(finn)
    assert desk.post(f"/w/acme/cases/{case.pk}/settle/", theirs).status_code == 409


def test_what_the_agent_tells_after_a_person_settled_its_call_is_not_put_into_its_mouth(
    begin_run, ada
):
    """The agent never said that it did not succeed: Ada did."""
    run = begin_run()
    action = run.plans("tickets.update", ("ticket", "main/T-182"))
    run.ends("failed")
    case = run.case()
    (doubtful,) = settling.facts_now(case).unknown()
    settling.settle_action(
        case, doubtful, outcome="no_effect", evidence="It reads normal", by=ada, seen=case.revision
    )

    run.send("action.succeeded", action, attempt="1")

    headline = run.case().headline
    assert headline.endswith("tells of tickets.update otherwise than was settled")
    assert "says both" not in headline


def test_a_form_about_nothing_of_this_case_leads_back(desk, raised):
    case = raised.case()

    for said in ({"step": "99999999"}, {"action": "x"}, {}):
        page = desk.post(f"/w/acme/cases/{case.pk}/settle/", said | {"evidence": "x"})
        assert page.status_code == 302


def test_leads_are_asked_anew_by_the_new_plan(desk, raised, acme, ada, ben):
    """What the page offers instead of an answer."""
    case = plan_of(raised, ada, changed=lambda: put_in_force(acme, ada, STRICTER))
    plan = submitted(case, ada, reason="As it is now")
    approval = Approval.objects.get(pk=plan.approval_id)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")

    by_hand.advance(plan.pk)

    case.refresh_from_db()
    assert case.outcome == "restored"


LINK = "https://shop.example/{type}/{name}?of={id}"
LEADS_TO = "https://shop.example/ticket/T-182?of=main%2FT-182"


def test_where_somebody_has_to_look_a_link_leads_to_the_record(
    desk, raised, shop_connection, acme, ada
):
    def changed():
        settings = shop_connection.settings
        connections.update(shop_connection, settings, by=ada, revision=1, link=LINK)
        put_in_force(acme, ada, STRICTER)

    case = plan_of(raised, ada, changed=changed)

    settle = desk.get(f"/w/acme/cases/{case.pk}/settle/")
    whole = desk.get(f"/w/acme/cases/{case.pk}/")

    assert [one.url for one in settle.context["links"]] == [LEADS_TO]
    for page in (settle, whole):
        assert f'href="{LEADS_TO}" target="_blank" rel="noopener noreferrer"' in page.text
        assert "Look in shop (shop.example)" in page.text
    residue = Residue.objects.create(
        case=case, owner=ada, due_at=timezone.now(), text="One ticket", effect=Effect.objects.get()
    )
    assert LEADS_TO in desk.get(f"/w/acme/residue/{residue.pk}/").text
    connections.update(shop_connection, shop_connection.settings, by=ada, revision=2, link="")
    assert "Look in shop" not in desk.get(f"/w/acme/cases/{case.pk}/").text
