"""What Eve is told: facts from the ledger, words from people, a record that can be checked."""

import threading
from datetime import timedelta

import pytest
from django.core import mail
from django.db import connection, connections, transaction
from django.utils import timezone

from connectors import channels as outgoing
from connectors.models import Delivery
from ledger.models import Effect, Event, Run
from recovery import corrections
from recovery.cases.lifecycle import OutOfDate
from recovery.corrections import CannotPublish, approvers, facts, publishing, sentences
from recovery.models import CaseState, Correction, Report, Step
from tests.locks import waits
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand
from tests.worlds import kept
from workspaces import locks
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove


@pytest.fixture
@kept(in_turn=True)
def restored(raised, ada):
    """The case of the raised ticket, compensated and closed."""
    case = raised.case()
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)
    case.refresh_from_db()
    return case


@pytest.fixture
@kept(in_turn=True)
def drafted(restored):
    assert publishing.draft_due() == 1
    return Correction.objects.get()


def published(correction, ada, **more):
    found = corrections.publish(correction, by=ada, seen=correction.revision, **more)
    return found, corrections.link_of(found).removeprefix("http://localhost")


def test_the_title_of_a_correction_about_several_things_tells_of_several():
    ticket = {"outcome": "restored", "target": {"type": "ticket", "id": "T-1"}}
    other = {"outcome": "restored", "target": {"type": "ticket", "id": "T-2"}}
    told = sentences.title({"items": [ticket, other]})
    assert told == "We changed 2 of your tickets by mistake, and put them back"
    told = sentences.title({"items": [ticket, ticket]})
    assert told == "We changed your ticket by mistake, and put it back"


def test_a_recovered_case_drafts_what_the_person_is_told(drafted):
    (item,) = drafted.facts["items"]

    assert (drafted.person_id, drafted.contact) == ("eve", "eve@example.com")
    assert drafted.title == "We changed your ticket by mistake, and put it back"
    assert item["what"] == "The priority of ticket T-182 was changed from “normal” to “high”."
    assert item["did"] == "It was put back to “normal”."
    assert item["word"] == "Put back"
    by = {"automatic": False, "roles": ["operators"]}
    assert (item["agent"], item["undone_by"]) == ("ticket-desk", by)
    assert drafted.facts["why"] == "A check found that this is not what was asked for."
    assert publishing.draft_due() == 0


def of_two(begin_run):
    """The case of a call that changed a ticket of Eve's and one of Gil's, and of its failed run."""
    run = begin_run()
    action = run.plans("tickets.update", ("ticket", "main/T-182"), ("ticket", "main/T-204"))
    both = [
        {
            "target": {"type": "ticket", "id": f"main/{name}"},
            "before": {"priority": "normal"},
            "after": {"priority": "high"},
            "affects": who,
        }
        for name, who in (("T-182", {"id": "eve"}), ("T-204", {"id": "gil", "name": "Gil"}))
    ]
    run.send("action.succeeded", action, attempt="1", effects=both)
    run.ends("failed")
    return run.case()


def test_each_affected_person_hears_only_of_what_is_theirs(begin_run, ticket):
    case = of_two(begin_run)

    eve, gil = sorted(corrections.draft(case), key=lambda one: one.person_id)

    assert [one["target"]["id"] for one in eve.facts["items"]] == ["main/T-182"]
    assert [one["target"]["id"] for one in gil.facts["items"]] == ["main/T-204"]
    assert "T-182" not in str(gil.facts)


def test_what_succeeded_untold_is_not_said_to_be_untouched(begin_run, shop, ticket):
    """Neither because its agent told no effect, nor because it calls a change a reading."""
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    untold = run.plans("tickets.update", ("ticket", "main/T-301"))
    run.send("action.succeeded", untold, attempt="1")
    called = run.plans("tickets.update", ("ticket", "main/T-302"), **{"class": "read_only"})
    run.send("action.succeeded", called, attempt="1")
    read = {"targets": [{"type": "ticket", "id": "main/T-302"}], "class": "read_only"}
    run.does("tickets.read", planned=read)
    run.fails("tickets.update", outcome="no_effect")
    run.ends("failed")

    [correction] = corrections.draft(run.case())

    said = [one["what"] for one in correction.facts["unchanged"]]
    assert not [words for words in said if "301" in words or "302" in words]


def test_what_was_only_read_is_said_to_be_untouched(begin_run, shop, ticket):
    run = begin_run()
    run.does("tickets.read", planned={"targets": [{"type": "ticket", "id": "main/T-204"}],
                                      "class": "read_only"})  # fmt: skip
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.ends("failed")

    (correction,) = corrections.draft(run.case())

    assert [one["what"] for one in correction.facts["unchanged"]] == [
        "Ticket T-204 was not touched."
    ]


def test_what_was_looked_at_for_one_is_not_told_to_another(begin_run, shop, ticket):
    run = begin_run()
    run.does("tickets.read", planned={"targets": [{"type": "ticket", "id": "main/T-204"}],
                                      "class": "read_only"})  # fmt: skip
    action = run.plans("tickets.update", ("ticket", "main/T-182"))
    effect = {
        "target": {"type": "ticket", "id": "main/T-182"},
        "before": ticket,
        "after": ticket | {"priority": "high"},
        "affects": {"id": "gil", "name": "Gil"},
    }
    run.send("action.succeeded", action, attempt="1", effects=[effect])
    run.ends("failed")

    (gils,) = corrections.draft(run.case())

    assert (gils.person_id, gils.facts["unchanged"]) == ("gil", [])


@pytest.mark.parametrize(
    ("state", "reversibility", "lasting", "outcome"),
    [
        ("verified", "exact", False, "restored"),
        ("reported", "exact", False, "compensated"),
        ("verified", "compensable", False, "compensated"),
        ("verified", "exact", True, "compensated"),
    ],
)
def test_only_what_is_exact_and_was_read_back_is_called_restored(
    state, reversibility, lasting, outcome
):
    step = Step(state=state, reversibility=reversibility)

    assert facts.outcome_of(Effect(compensated="compensated"), step, lasting=lasting) == outcome


@pytest.mark.parametrize(
    ("reversibility", "lasting", "outcome"),
    [
        ("exact", False, "left"),
        ("exact", True, "not_undone"),
        ("irreversible", False, "not_undone"),
    ],
)
def test_what_cannot_be_undone_is_not_said_to_have_been_left(reversibility, lasting, outcome):
    effect = Effect(compensated="none", reversibility=reversibility)

    assert facts.outcome_of(effect, None, lasting=lasting) == outcome


def test_what_was_published_is_said_in_no_other_words(drafted, ada):
    correction, _ = published(drafted, ada)

    with pytest.raises(CannotMove, match="published already"):
        corrections.edit(
            correction, by=ada, seen=correction.revision, title="No", lead="No", words={}
        )
    correction.refresh_from_db()
    assert correction.title == "We changed your ticket by mistake, and put it back"


def test_that_it_was_read_back_is_said_where_every_step_was(begin_run, shop, ticket, ada):
    other = ticket | {"id": "T-204"}
    shop.execute("INSERT INTO tickets SELECT world, 'T-204', 'high', assignee FROM tickets")
    shop.execute("UPDATE tickets SET priority = 'high'")
    run = begin_run()
    changed = [
        ("ticket", f"main/{one['id']}", one, one | {"priority": "high"}) for one in (ticket, other)
    ]
    run.does("tickets.update", *changed)
    run.ends("failed")
    case = run.case()
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)
    case.refresh_from_db()
    assert approvers.of_recovery(case)["read_back"]

    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE recovery_step SET state = 'reported' WHERE position = 1")
        cursor.execute("SET LOCAL session_replication_role = origin")

    assert not approvers.of_recovery(case)["read_back"]


def test_nothing_is_published_while_its_recovery_runs(raised, ada):
    case = raised.case()
    submitted(case, ada)
    case.refresh_from_db()
    (correction,) = corrections.draft(case)

    with pytest.raises(CannotPublish, match="has not ended"):
        published(correction, ada)


def test_a_correction_goes_to_webhooks_of_its_own_workspace_alone(drafted, ada, acme, globex, dev):
    secret = {"url": "https://hooks.example/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    subjects = ["correction.*"]
    outgoing.create(globex, "theirs", "webhook", by=dev, secret=secret, subjects=subjects)
    with pytest.raises(CannotPublish, match="No signed webhook"):
        published(drafted, ada, ways=["webhook"])
    ours = outgoing.create(acme, "ours", "webhook", by=ada, secret=secret, subjects=subjects)

    published(drafted, ada, ways=["webhook"])

    assert Delivery.objects.get(subject="correction.published").channel == ours


def test_the_words_can_be_edited_and_the_facts_cannot(drafted, ada):
    (item,) = drafted.facts["items"]
    words = {item["id"]: "It is “normal” again.", "act_9.9": "We paid you a million."}

    edited = corrections.edit(
        drafted, by=ada, seen=drafted.revision, title="Sorry, Eve", lead="It is back.", words=words
    )

    assert edited.wording == {item["id"]: "It is “normal” again."}
    assert edited.facts == drafted.facts
    with pytest.raises(OutOfDate):
        corrections.edit(drafted, by=ada, seen=drafted.revision, title="x", lead="y", words={})
    corrections.draft(edited.case)
    edited.refresh_from_db()
    assert edited.title == "Sorry, Eve"


def test_the_published_page_needs_no_account_and_no_script(drafted, ada, client):
    correction, path = published(drafted, ada)

    answer = client.get(path)

    text = answer.content.decode()
    assert answer.status_code == 200
    assert "We changed your ticket by mistake, and put it back" in text
    assert "A member of staff looked at it" in text
    assert text.count("<script") == 1, "the reader's own time, which is named without it"
    assert answer["X-Robots-Tag"] == "noindex, nofollow"
    assert "no-store" in answer["Cache-Control"]
    correction.refresh_from_db()
    assert correction.read_count == 1
    told = Event.objects.get(type="correction.published").data
    assert told["facts_digest"] == publishing.facts_digest(
        bytes(correction.facts_salt), correction.facts
    )
    assert path.split("/")[2] not in str(told)


def test_wrong_expired_and_revoked_look_the_same(drafted, ada, client):
    correction, path = published(drafted, ada)
    wrong = client.get("/c/no-such-token/")

    Correction.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    expired = client.get(path)
    Correction.objects.update(expires_at=timezone.now() + timedelta(days=1))
    assert client.get(path).status_code == 200
    corrections.revoke(correction, by=ada, seen=correction.revision, reason="Wrong")
    revoked = client.get(path)

    assert {one.status_code for one in (wrong, expired, revoked)} == {404}
    assert wrong.content == expired.content == revoked.content
    assert client.get(f"{path}record.json").status_code == 404


def test_something_is_still_wrong_brings_the_case_back(drafted, ada, client):
    correction, path = published(drafted, ada)

    assert client.get(f"{path}report/").status_code == 200
    assert correction.case.state == CaseState.CLOSED
    said = {"ground": "not_restored", "text": "The assignee is wrong, too"}
    answer = client.post(f"{path}report/", said)

    assert answer.status_code == 302
    correction.case.refresh_from_db()
    assert correction.case.state == CaseState.OPEN
    assert correction.case.reasons == ["reported"]
    assert "Thank you, we have it" in client.get(answer["Location"]).content.decode()
    assert "answer that first" in correction.case.suggestion_reason
    client.force_login(ada)
    case_page = client.get(f"/w/acme/cases/{correction.case.pk}/").content.decode()
    assert "The affected person reports" in case_page
    assert "The assignee is wrong, too" in case_page
    assert client.post(f"{path}report/", {"text": "  "}).status_code == 422
    for number in range(4):
        client.post(f"{path}report/", {"text": f"Still {number}"})
    assert client.post(f"{path}report/", {"text": "Still"}).status_code == 429


@pytest.mark.django_db(transaction=True)
def test_whoever_reports_waits_for_the_run_with_the_correction_free(drafted, ada, client):
    """Who edits a correction has its run and its case, and takes it next: the other way round the
    two would wait for each other.
    """
    correction, path = published(drafted, ada)
    answers = []

    def report():
        answers.append(client.post(f"{path}report/", {"text": "The assignee is wrong, too"}))
        connections.close_all()

    reporting = threading.Thread(target=report)
    with transaction.atomic():
        locks.locked(Run.objects.all()).get(pk=correction.case.run_id)
        reporting.start()
        waits(1)
        Correction.objects.select_for_update(nowait=True).get(pk=correction.pk)
    reporting.join(60)

    assert [one.status_code for one in answers] == [302]


def test_what_she_writes_is_kept_whole_as_her_browser_counts_it_or_refused_with_nothing_lost(
    drafted, ada, client
):
    _, path = published(drafted, ada)
    longest = "\n".join(["wrong"] * 666) + "\n1234"  # 4,000, and 4,666 as a browser sends it
    sent = longest.replace("\n", "\r\n")

    refused = client.post(f"{path}report/", {"text": f"{sent}5"})

    assert (refused.status_code, "required autofocus aria-inv" in refused.text) == (422, True)
    assert "it has 4,001 characters, of which 4,000 can be kept." in refused.text
    assert "wrong\r\n12345" in refused.text
    assert not Report.objects.exists()
    assert client.post(f"{path}report/", {"text": sent}).status_code == 302
    assert Report.objects.get().text == longest


def test_the_words_of_a_correction_are_kept_whole_or_come_back(drafted, ada, client):
    client.force_login(ada)
    there = f"/w/acme/corrections/{drafted.pk}/"
    field = f"word-{drafted.facts['items'][0]['id']}"
    said = {"revision": drafted.revision, "title": "t" * 201, "lead": "Why so", field: "My own"}

    refused = client.post(f"{there}save/", said)

    assert refused.status_code == 422
    assert "it has 201 characters, of which 200 can be kept" in refused.text
    for typed in ("t" * 201, "Why so", "My own"):
        assert typed in refused.text
    for too_long in ({"lead": "l" * 2_001}, {field: "w" * 501}):
        assert client.post(f"{there}save/", said | {"title": "Ours"} | too_long).status_code == 422
    in_lines = {"title": "\r\nOurs", field: "My\r\nown\r\n"}  # where a line of a field ends
    assert client.post(f"{there}save/", said | in_lines).status_code == 302
    stale = client.post(f"{there}publish/", said | {"title": "Theirs"})
    assert (stale.status_code, "You wrote: Theirs · Why so · My own" in stale.text) == (409, True)
    drafted.refresh_from_db()
    assert (drafted.title, drafted.state) == ("Ours", "draft")
    assert list(drafted.wording.values()) == ["My own"], "one line, however it was typed"
    with pytest.raises(InvalidInput):
        corrections.revoke(drafted, by=ada, seen=drafted.revision, reason="r" * 2_001)


def test_the_mail_goes_out_and_its_delivery_is_on_the_record(drafted, ada):
    correction, path = published(drafted, ada, ways=["mail"])

    outgoing.send_due()
    assert publishing.follow() == 1

    (sent,) = mail.outbox
    assert sent.to == ["eve@example.com"]
    assert path in sent.body
    assert correction.deliveries.get().state == "sent"
    assert Event.objects.filter(type="correction.delivered").count() == 1


def test_nobody_can_be_mailed_without_an_address(drafted, ada, subtests):
    for contact in ("", "@", "eve@x.example, eva@x.example", "e@x.example\r\nBcc:"):
        Correction.objects.update(contact=contact)
        drafted.refresh_from_db()

        with subtests.test(contact=contact), pytest.raises(CannotPublish, match="No mail address"):
            published(drafted, ada, ways=["mail"])


def test_the_record_carries_its_proof(drafted, ada, client, acme):
    from ledger import sealer

    _, path = published(drafted, ada)
    assert client.get(f"{path}record.json").json()["proof"] is None

    sealer.seal(acme)
    found = client.get(f"{path}record.json").json()

    assert found["proof"].startswith("c2sp.org/tlog-proof@v1")
    assert found["event"]["data"]["facts_digest"] == publishing.facts_digest(
        bytes.fromhex(found["facts_salt"]), found["facts"]
    )


def test_the_person_sees_the_record_checked_and_a_forged_one_found_out(drafted, ada, client, acme):
    from ledger import logkeys, sealer

    correction, path = published(drafted, ada)
    before = client.get(f"{path}verify/").text
    assert ("Being sealed" in before, "holds these lines" in before) == (True, False)
    sealer.seal(acme)

    assert f'href="{path}verify/"' in client.get(path).text
    checked = client.get(f"{path}verify/")
    assert "As it was recorded" in checked.text
    assert logkeys.published(acme)[0] in checked.text
    assert "<script" not in checked.text
    Correction.objects.filter(pk=correction.pk).update(title="Nothing happened")
    assert "Something was changed" in client.get(f"{path}verify/").text
    assert client.get("/c/wrong/verify/").status_code == 404


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE ledger_event SET digest = sha256('x') WHERE event_id = %s",
        "DELETE FROM ledger_event WHERE event_id = %s",
    ],
)
def test_a_trail_whose_entry_was_changed_or_is_gone_says_so_and_stays_readable(
    drafted, ada, client, acme, attack
):
    from ledger import sealer

    correction, path = published(drafted, ada)
    sealer.seal(acme)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(attack, [correction.event_id])

    assert "no longer the one that was sealed" in client.get(path).text
    assert "Something was changed" in client.get(f"{path}verify/").text
    record = client.get(f"{path}record.json").json()
    assert record["proof"] is None
    assert "no proof any more" in record["note"]


def test_operators_read_edit_publish_and_revoke_in_the_browser(drafted, ada, client, dev):
    client.force_login(ada)
    home = f"/w/acme/corrections/{drafted.pk}/"

    assert "We changed your ticket" in client.get("/w/acme/corrections/").content.decode()
    assert client.get(home).status_code == 200
    assert client.get(f"{home}preview/").status_code == 200
    given = {"revision": drafted.revision, "title": "Sorry, Eve", "lead": "It is back."}
    assert client.post(f"{home}publish/", given | {"delivery": "link"}).status_code == 302
    drafted.refresh_from_db()
    assert (drafted.state, drafted.title) == ("published", "Sorry, Eve")
    assert corrections.link_of(drafted) in client.get(home).content.decode()
    assert client.post(f"{home}publish/", given).status_code == 409
    assert client.post(f"{home}revoke/", given | {"reason": "Wrong"}).status_code == 409
    given = {"revision": drafted.revision, "reason": "Wrong"}
    assert client.post(f"{home}revoke/", given).status_code == 302
    client.force_login(dev)
    assert client.get(home).status_code == 404


def test_a_case_that_came_back_drafts_anew_where_facts_have_changed(
    drafted, ada, client, begin_run, shop, ticket
):
    from recovery.casework import closing

    correction, path = published(drafted, ada)
    client.post(f"{path}report/", {"text": "The assignee is wrong, too"})
    case = correction.case
    case.refresh_from_db()
    closing.close(case, outcome="corrected", reason="Nora has it back", by=ada, seen=case.revision)

    assert publishing.draft_due() == 1

    again = case.corrections.exclude(pk=correction.pk).get()
    assert again.state == "draft"
    assert again.facts["why"] == "Somebody told us that this was wrong."
