"""A form that comes back with a refusal is as it was sent: what was chosen as well as what was
typed, for another choice is another act.
"""

import re
from datetime import timedelta

from django.utils import timezone

from ledger.models import Checkpoint
from recovery.casework import closing
from recovery.models import Case, Correction, CorrectionSettings, Residue
from tests.recovery.cases import test_correction_pages, test_corrections
from workspaces.free_text import NOTE_CHARACTERS_MAX

restored, drafted = test_corrections.restored, test_corrections.drafted
choice = test_correction_pages.choice
CASE = "/w/acme/cases/{}/"


def field(page, name):
    """The form's part from a field's name on, up to the next label."""
    return page.text.partition(f'name="{name}"')[2].partition("</label>")[0]


def chosen(page, name):
    """What is selected in a list or ticked among radios of this name."""
    listed = re.search(rf'<select [^>]*name="{name}".*?</select>', page.text, re.DOTALL)
    if listed:
        return re.findall(r'value="([^"]*)" selected', listed[0])
    return re.findall(rf'name="{name}"\s+value="([^"]*)"[^>]*? checked', page.text)


def test_a_letter_that_somebody_hands_on_is_not_mailed_after_a_refusal(drafted, desk):
    there = f"/w/acme/corrections/{drafted.pk}/"
    assert choice(desk.get(there), "mail") == (True, True), "what is chosen by itself"
    said = {"revision": drafted.revision, "title": "x" * 5_000, "lead": drafted.lead}
    said |= {"delivery": "link", "valid_days": "365"}

    refused = desk.post(f"{there}publish/", said)

    assert refused.status_code == 422
    assert choice(refused, "link") == (True, True)
    assert choice(refused, "mail") == (False, True)
    assert chosen(refused, "valid_days") == ["365"]
    saved = desk.post(f"{there}save/", said | {"title": "Put right"}, follow=True)
    assert Correction.objects.get().title == "Put right"
    assert choice(saved, "link") == (True, True), "nor once the words are saved"
    assert chosen(saved, "valid_days") == ["365"]


def test_how_corrections_are_set_is_kept_whole_where_one_part_is_refused(drafted, client, alma):
    client.force_login(alma)
    there = "/w/acme/corrections/settings/"
    usual = client.get(there)
    said = {"language": "en", "closing": "Sorry.", "internal": "session\n" + "x" * 500}
    said |= {"valid_days": "365", "answer_days": "9", "fields": "seat = seat"}
    assert chosen(usual, "valid_days") != ["365"]

    refused = client.post(there, said)

    assert refused.status_code == 422
    assert "x" * 500 in refused.text, "what has to be shortened is still there"
    assert chosen(refused, "valid_days") == ["365"]
    assert 'value="9"' in field(refused, "answer_days")


def test_what_was_to_be_stopped_is_still_chosen_where_the_reason_is_refused(desk, case):
    there = CASE.format(case.pk)
    said = {"kind": "tool", "why": "x" * (NOTE_CHARACTERS_MAX + 1)}

    refused = desk.post(f"{there}pause/", said)

    assert refused.status_code == 422
    assert chosen(refused, "kind") == ["tool"]
    assert len(chosen(desk.get(there), "kind")) == 1, "the narrowest, before anybody has chosen"


def test_who_takes_a_case_over_and_for_how_long_it_sleeps_stays_chosen(desk, case, nils):
    Case.objects.update(due_at=None)
    there = CASE.format(case.pk)

    handed = desk.post(
        f"{there}hand-over/", {"to": nils.pk, "note": " ", "revision": case.revision}
    )
    slept = desk.post(f"{there}snooze/", {"hours": "24", "note": " ", "revision": case.revision})

    assert (handed.status_code, slept.status_code) == (422, 422)
    assert chosen(handed, "to") == [str(nils.pk)]
    assert chosen(slept, "hours") == ["24"]


def test_a_note_is_not_lost_with_the_form_that_it_was_typed_into(desk, case, ada, nils):
    there = CASE.format(case.pk)
    seen = case.revision
    Case.objects.update(due_at=timezone.now() + timedelta(minutes=5))
    note = "They call back tomorrow"

    slept = desk.post(f"{there}snooze/", {"hours": "24", "note": note, "revision": seen})

    assert slept.status_code == 409, "it is due before that, and cannot sleep at all"
    assert f"You wrote: {note}" in slept.text
    case.refresh_from_db()
    closing.close(case, outcome="duplicate", reason="x", by=ada, seen=case.revision, left=[])
    handed = desk.post(f"{there}hand-over/", {"to": nils.pk, "note": note, "revision": seen})
    assert handed.status_code == 409
    assert f"You wrote: {note}" in handed.text


def test_who_owns_what_is_left_is_shown_however_many_could(desk, case, ada, nils, monkeypatch):
    monkeypatch.setattr("recovery.views.close.PEOPLE_MAX", 1)  # of whom Ada is the first
    left = closing.Remainder("The mail was read", nils, timezone.now() + timedelta(days=2), None)
    closing.close(case, outcome="partly", reason="x", by=ada, seen=case.revision, left=[left])
    there = f"/w/acme/residue/{Residue.objects.get().pk}/"

    page = desk.get(there)

    assert chosen(page, "owner") == [str(nils.pk)], "a browser would choose the first of others"


def test_whoever_claims_a_case_goes_on_with_the_list_that_it_was_opened_from(desk, case):
    there = CASE.format(case.pk)
    page = desk.get(f"{there}?q=is%3Aunclaimed&sort=due")
    action = page.context["claim"]["url"]

    answer = desk.post(action, {"act": "claim", "revision": case.revision})

    assert answer["Location"] == f"{there}?q=is%3Aunclaimed&sort=due"
    assert Case.objects.get().claimed_by is not None


def test_whoever_claims_several_has_the_list_in_its_order(desk, case):
    said = {"case": case.pk, "q": "is:open", "sort": "due"}
    assert (
        '<input type="hidden" name="sort" value="due">' in desk.get("/w/acme/queue/?sort=due").text
    )

    answer = desk.post("/w/acme/queue/claim/", said)

    assert answer["Location"] == "/w/acme/queue/?q=is%3Aopen&sort=due"


def test_words_of_an_old_page_take_the_place_of_no_newer_ones(drafted, client, alma):
    client.force_login(alma)
    there = "/w/acme/corrections/settings/"
    said = {"language": "en", "valid_days": "365", "answer_days": "9", "seen": seen(client, there)}
    assert client.post(there, said | {"closing": "Sorry."}).status_code == 302
    german = said | {"language": "de", "seen": seen(client, f"{there}?language=de")}
    assert client.post(there, german | {"closing": "Pardon."}).status_code == 302

    wrong = client.post(there, said | {"answer_days": "none"})
    assert (wrong.status_code, said["seen"] in wrong.text) == (422, True), "it is still an old page"
    second = client.post(there, said | {"closing": "Bye."})

    assert second.status_code == 409
    assert "Bye." in second.text
    own = CorrectionSettings.objects.get().sentences
    assert [own[one]["closing"] for one in ("en", "de")] == ["Sorry.", "Pardon."]


def test_what_is_left_goes_to_whom_it_was_given_last_on_a_page_that_knew(desk, case, ada, nils):
    due = timezone.now() + timedelta(days=9)
    left = Residue.objects.create(case=case, owner=ada, text="Call them", due_at=due)
    there = f"/w/acme/residue/{left.pk}/"
    old = seen(desk, there)
    said = {"act": "move", "seen": old, "due": f"{timezone.localdate() + timedelta(days=2)}"}
    assert desk.post(there, said | {"owner": nils.pk}).status_code == 302

    later = f"{timezone.localdate() + timedelta(days=5)}"
    wrong = desk.post(there, said | {"owner": "", "due": later})
    assert (wrong.status_code, old in wrong.text) == (422, True), "it is still an old page"
    second = desk.post(there, said | {"owner": ada.pk, "due": later})

    left.refresh_from_db()
    assert (second.status_code, left.owner) == (409, nils)
    assert "since you saw it" in second.text
    assert chosen(second, "owner") == [str(ada.pk)], "what was chosen stays, to be looked at"
    assert f'value="{later}"' in second.text
    assert seen(desk, there) != old


def seen(client, there):
    return re.search(r'name="seen" value="([^"]+)"', client.get(there).text)[1]


def test_a_reason_is_kept_where_another_plan_is_shown_first(desk, begin_run, ticket):
    """By *Show that plan*, of one that goes back to a checkpoint and no further."""
    run = begin_run()
    there = ("ticket", "main/T-182")
    run.does("tickets.update", (*there, ticket, ticket | {"a": 1}))
    run.n += 1
    run.send("run.checkpoint", name="raised", state={}, recovery_mode="ask_first", pending=["x"])
    run.does("tickets.update", (*there, ticket | {"a": 1}, ticket | {"a": 2}))
    run.ends("failed")
    address = f"{CASE.format(run.case().pk)}compensate/"
    back = str(Checkpoint.objects.get().pk)

    shown = desk.post(address, {"act": "preview", "reach": "", "back": back, "why": "too far"})

    assert 'value="too far"' in shown.text
    assert f'name="reach" value="{back}"' in shown.text
    assert len(desk.get(address).context["steps"]) == 2
    assert len(shown.context["steps"]) == 1
    again = desk.post(address, {"act": "commit", "reach": back, "back": "", "why": "too far",
                                "digest": "0" * 64, "revision": "1"})  # fmt: skip
    assert f'name="reach" value="{back}"' in again.text, "the plan that was shown is the one meant"
