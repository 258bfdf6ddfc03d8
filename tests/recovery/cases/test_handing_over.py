"""A case in other hands: handed over with a note, put off until later, what is left moved on."""

from datetime import timedelta

import pytest
from django.core import mail
from django.utils import timezone
from django.utils.html import strip_tags

from connectors import channels as outgoing
from ledger.models import Event
from recovery import search
from recovery.casework import cases, closing
from recovery.models import Case, Residue
from recovery.triage import triage
from workspaces.moves import CannotMove


def listed(acme, q, by, order="risk"):
    return [one.pk for one in search.find(acme, q, by=by, order=order).cases]


def test_a_case_is_handed_over_with_a_note_and_the_other_hears_of_it(case, client, ada, nils, acme):
    client.force_login(ada)
    there = f"/w/acme/cases/{case.pk}/"
    said = {"to": nils.pk, "note": "The customer calls at four", "revision": case.revision}
    assert client.post(f"{there}hand-over/", said | {"to": ""}).status_code == 422
    kept = client.post(f"{there}hand-over/", said | {"revision": 99})
    assert (kept.status_code, "The customer calls at four" in kept.text) == (409, True)

    assert client.post(f"{there}hand-over/", said).status_code == 302
    assert client.post(f"{there}hand-over/", said).status_code == 302, "by a second click"
    assert client.post(f"{there}hand-over/", said | {"note": "At five"}).status_code == 409

    assert listed(acme, "is:mine", nils) == [case.pk]
    for_a_day = Case.objects.get().claimed_until
    cases.touch(case, by=nils)
    case.refresh_from_db()
    cases.claim(case, by=nils, seen=case.revision)
    assert Case.objects.get().claimed_until == for_a_day, "whoever opens it keeps it no shorter"
    assert listed(acme, "is:mine", ada) == []
    assert "The customer calls at four" in client.get(f"{there}?tab=activity").text
    told = Event.objects.get(type="case.handed_over").data
    assert (told["to"], told["text"]) == (nils.pk, "The customer calls at four")
    outgoing.send_due()
    (sent,) = mail.outbox
    assert sent.to == [nils.email]
    assert "The customer calls at four" not in sent.body, "what people write leaves by no mail"
    with pytest.raises(CannotMove, match="has claimed it"):
        cases.hand_over(case, to=ada, note="Back", by=ada, seen=case.revision)


def test_it_goes_to_nobody_who_may_not_work_on_it(case, ada, dev):
    with pytest.raises(CannotMove, match="may not recover here"):
        cases.hand_over(case, to=dev, note="Yours", by=ada, seen=case.revision)


def test_what_is_put_off_leaves_the_list_and_comes_back_by_itself(case, client, ada, acme):
    Case.objects.update(due_at=timezone.now() + timedelta(hours=30))
    client.force_login(ada)
    there = f"/w/acme/cases/{case.pk}/snooze/"
    said = {"hours": "24", "note": "They call back tomorrow", "revision": case.revision}

    assert client.post(there, said).status_code == 302

    assert listed(acme, "", ada) == []
    assert listed(acme, "is:snoozed", ada) == [case.pk]
    assert listed(acme, "run:run_1", ada) == [case.pk], "who looks for it finds it"
    assert client.post(there, said | {"hours": "0"}).status_code == 302
    activity = client.get(f"/w/acme/cases/{case.pk}/?tab=activity").context["activity"]
    assert [one["words"] for one in activity][:2] == ["brought the case back", "put the case off"]
    assert client.post(there, said).status_code == 302
    queue = client.get("/w/acme/queue/")
    assert not queue.context["nav"]["queue"], "the badge is the list"
    Case.objects.update(snoozed_until=timezone.now() - timedelta(seconds=1))
    assert listed(acme, "", ada) == [case.pk]
    assert (
        Event.objects.filter(type="case.snoozed").latest("place").data["text"]
        == "They call back tomorrow"
    )


def test_nothing_sleeps_past_the_moment_when_it_is_due(case, ada):
    Case.objects.update(due_at=timezone.now() + timedelta(hours=3))

    with pytest.raises(CannotMove, match="due before that"):
        cases.snooze(case, hours=4, note="Later", by=ada, seen=case.revision)


def test_the_first_undo_window_that_closes_stands_first(begin_run, ada, acme, client):
    now, runs = timezone.now(), {}
    for number, hours in ((1, 50), (2, 47.5), (3, None)):
        run = begin_run(f"run_{number}")
        action = run.plans("tickets.update", ("ticket", f"T-{number}"))
        effect = {
            "target": {"type": "ticket", "id": f"T-{number}"},
            "before": {},
            "after": {"a": 1},
        }
        if hours:
            effect["undo_until"] = (now + timedelta(hours=hours)).isoformat()
        run.send("action.succeeded", action, attempt="1", effects=[effect])
        run.ends("failed")
        runs[number] = run.case().pk

    assert listed(acme, "", ada, "window") == [runs[2], runs[1], runs[3]]
    client.force_login(ada)
    shown = strip_tags(client.get("/w/acme/queue/?sort=window").text)
    assert "undo closes in 1 d 23 h" in shown
    second = search.find(acme, "", by=ada, order="window", limit=1)
    third = search.find(acme, "", by=ada, order="window", limit=1, after=second.after)
    assert [one.pk for one in third.cases] == [runs[1]], "a place that a page gave out is one"
    beside = client.get(f"/w/acme/cases/{runs[1]}/?sort=window").context["neighbours"]
    assert [f"/cases/{runs[one]}/?sort=window" in beside[side] for side, one in (
        ("previous", 2), ("next", 3)
    )] == [True, True]  # fmt: skip


def test_what_is_left_gets_another_owner_who_is_reminded_once(case, client, ada, nils):
    left = Residue.objects.create(
        case=case, owner=ada, text="Call them", due_at=timezone.now() + timedelta(days=9)
    )
    client.force_login(ada)
    day = f"{timezone.localdate() + timedelta(days=1)}"
    said = {"act": "move", "owner": nils.pk, "due": day}
    assert client.post(f"/w/acme/residue/{left.pk}/", said | {"due": ""}).status_code == 422
    assert closing.remind() == 0

    said["seen"] = closing.residue_seen(left)
    for _ in range(2):  # once more, as no answer came: nobody else has moved it
        assert client.post(f"/w/acme/residue/{left.pk}/", said).status_code == 302

    left.refresh_from_db()
    assert left.owner == nils
    assert Event.objects.get(type="case.residue_moved").data["owner"] == nils.pk
    Residue.objects.update(due_at=timezone.now() + timedelta(hours=20))
    assert (closing.remind(), closing.remind()) == (1, 0)
    outgoing.send_due()
    assert [sent.to for sent in mail.outbox] == [[nils.email]]


def put_off(case, ada):
    case.refresh_from_db()
    return cases.snooze(case, hours=60, note="Later", by=ada, seen=case.revision)


@pytest.mark.parametrize("how", ["reported", "worse", "handed over", "reopened"])
def test_what_is_put_off_comes_back_as_soon_as_more_is_known_than_who_put_it_off_knew(
    how, raised, acme, ada, nils
):
    case = raised.case()
    put_off(case, ada)
    assert listed(acme, "", ada) == []
    case.refresh_from_db()

    if how == "reported":
        cases.report(case.run, text="It is still wrong", by=None, source="end_user")
    elif how == "worse":
        raised.does("repos.delete", ("repo", "r1", {"x": 1}, None))
        triage.look([case.run_id])
    elif how == "handed over":
        cases.hand_over(case, to=nils, note="Yours", by=ada, seen=case.revision)
    else:
        closed = closing.close(case, outcome="expected", reason="x", by=ada, seen=case.revision)
        cases.reopen(closed, by=ada, seen=closed.revision, reason="Not so")

    assert listed(acme, "", nils) == [case.pk]


def test_a_case_that_somebody_put_off_stays_so_while_nothing_new_is_known(raised, acme, ada):
    case = raised.case()
    put_off(case, ada)
    raised.does("tickets.read")
    triage.look([case.run_id])
    assert listed(acme, "", ada) == []


def test_whoever_left_holds_up_nobody(case, acme, ada, nils, operators):
    cases.hand_over(case, to=nils, note="Yours", by=ada, seen=case.revision)
    case.refresh_from_db()
    with pytest.raises(CannotMove):
        cases.claim(case, by=ada, seen=case.revision)

    nils.groups.clear()

    assert cases.claim(case, by=ada, seen=case.revision).claimed_by == ada
    Case.objects.update(claimed_by=nils)
    assert cases.let_idle_claims_go() == 1
    Case.objects.update(claimed_by=ada, claimed_until=timezone.now() + timedelta(hours=1))
    assert cases.let_idle_claims_go() == 0
