"""What could not be undone ends by name, in words, and once; then nothing holds its run back."""

from datetime import timedelta
from itertools import chain

import pytest
from django.db.models import F
from django.utils import timezone

from connectors.models import Delivery
from ledger import retention
from ledger.models import Event, Run
from recovery.cases.lifecycle import OutOfDate
from recovery.casework import cases, closing
from recovery.models import Residue
from tests import people
from tests.ledger.test_retention import SOON
from tests.worlds import kept
from workspaces.access import NotAllowed
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove


@pytest.fixture
def browser(client):
    def enter(who):
        client.force_login(who)
        return client

    return enter


@pytest.fixture
@kept
def viewers(acme):
    return people.team(acme, "viewers", "view")


@pytest.fixture
@kept
def vera(viewers):
    return people.person("vera", viewers)


@pytest.fixture
@kept(in_turn=True)
def left(raised, ada, vera):
    """Closed in part: Vera, who may view and no more, looks after what is left of it."""
    case = raised.case()
    closing.close(
        case,
        outcome="partly",
        reason="The parcel is gone",
        by=ada,
        seen=case.revision,
        left=[closing.Remainder("The parcel was sent", vera, timezone.now() + timedelta(days=3))],
    )
    return Residue.objects.get()


def test_what_an_earlier_ending_left_keeps_no_later_one_from_being_sent_once_more(left, ada, vera):
    case = cases.reopen(left.case, by=ada, seen=left.case.revision, reason="It came back")
    said = {"reason": "Fine now", "by": ada, "seen": case.revision}

    ended = closing.close(case, outcome="expected", **said)

    assert closing.close(case, outcome="expected", **said) == ended
    lasts = closing.Remainder(left.text, vera, left.due_at)
    with pytest.raises(OutOfDate):
        closing.close(case, outcome="expected", left=[lasts], **said)


def test_whoever_recovers_says_what_was_done_and_it_stands_in_the_ledger_and_the_audit(
    left, ada, browser
):
    here = browser(ada)
    address = f"/w/acme/residue/{left.pk}/"
    assert address in here.get("/w/acme/residue/").content.decode()
    assert here.get(address).context["may_end"]

    here.post(address, {"note": "We sent a second parcel"})

    left.refresh_from_db()
    assert (left.done_by, left.done_note) == (ada, "We sent a second parcel")
    assert left.done_at is not None
    told = Event.objects.get(type="case.residue_done")
    assert (told.actor_kind, told.actor, told.run) == ("person", str(ada.pk), "run_1")
    assert (told.data["residue"], told.data["note"]) == (left.pk, "We sent a second parcel")
    assert "We sent a second parcel" in here.get("/w/acme/audit/").content.decode()
    assert address not in here.get("/w/acme/residue/").content.decode()
    assert address in here.get("/w/acme/residue/?view=done").content.decode()
    assert "We sent a second parcel" in here.get(f"/w/acme/cases/{left.case_id}/").content.decode()
    assert here.get("/w/acme/insights/").context["residues"] == []


def test_no_day_is_so_far_away_that_pages_could_not_show_it(left, ada, browser):
    there = f"/w/acme/residue/{left.pk}/"
    said = {"act": "move", "owner": ada.pk, "due": "9999-12-31"}
    refused = browser(ada).post(there, said)
    assert (refused.status_code, "at most 100 years ahead" in refused.text) == (422, True)

    left.refresh_from_db()
    assert left.due_at < timezone.now() + timedelta(days=4)
    assert browser(ada).get("/w/acme/residue/").status_code == 200


def test_what_is_no_person_or_no_day_is_refused_in_words(raised, left, ada, browser, subtests):
    soon = f"{timezone.now() + timedelta(days=2):%Y-%m-%d}"
    wrong = [("abc", soon), ("9" * 40, soon), ("", soon), (ada.pk, "2027-13-45"), (ada.pk, "soon")]
    here, before, case = browser(ada), left.due_at, left.case

    for owner, due in wrong:
        moved = {"act": "move", "owner": owner, "due": due}
        with subtests.test(owner=owner, due=due):
            refused = here.post(f"/w/acme/residue/{left.pk}/", moved)
            assert refused.status_code == 422
            assert "Choose who looks after it, and until which day." in refused.text
            left.refresh_from_db()
            assert left.due_at == before

    cases.reopen(case, by=ada, seen=case.revision, reason="There is more")
    case.refresh_from_db()
    said = {"act": "commit", "revision": case.revision, "ending": "partly", "why": "Gone"}
    for owner, due in wrong:
        with subtests.test(owner=owner, due=due, closing=True):
            again = here.post(
                f"/w/acme/cases/{case.pk}/close/", said | {"owner": owner, "due": due}
            )
            assert again.status_code == 409
            assert "Say what is left, who looks after it, and until when." in again.text


def test_it_ends_once_and_nothing_typed_is_lost(left, ada, browser):
    here = browser(ada)
    address = f"/w/acme/residue/{left.pk}/"
    empty = here.post(address, {"note": "  "})
    assert (empty.status_code, Event.objects.filter(type="case.residue_done").count()) == (422, 0)
    closing.residue_done(left, note="first", by=ada)

    late = here.post(address, {"note": "second, with much detail"})

    assert late.status_code == 409
    assert "Ada has said so already" in late.content.decode()
    assert "second, with much detail" in late.content.decode()
    assert Event.objects.filter(type="case.residue_done").count() == 1
    with pytest.raises(CannotMove):
        closing.residue_done(left, note="third", by=ada)
    assert here.post(address, {"note": "first "}).status_code == 302, "no answer came"
    assert Event.objects.filter(type="case.residue_done").count() == 1
    with pytest.raises(InvalidInput):
        closing.residue_done(left, note="", by=ada)


def test_its_owner_may_say_so_and_no_other_viewer(left, vera, viewers, dev, browser):
    gina = people.person("gina", viewers)
    address = f"/w/acme/residue/{left.pk}/"
    assert not browser(gina).get(address).context["may_end"]
    assert browser(gina).post(address, {"note": "x"}).status_code == 403
    assert browser(dev).post(address, {"note": "x"}).status_code == 404
    with pytest.raises(NotAllowed):
        closing.residue_done(left, note="x", by=gina)
    left.refresh_from_db()
    assert left.done_at is None

    browser(vera).post(address, {"note": "seen to"})

    left.refresh_from_db()
    assert (left.done_by, left.done_note) == (vera, "seen to")


def test_only_an_open_residue_holds_its_run_back_from_retention(left, acme, ada):
    run = left.case.run
    Run.objects.update(lease_until=None)
    assert run.pk not in chain(*retention.over(acme, SOON))

    closing.residue_done(left, note="seen to", by=ada)

    assert run.pk in chain(*retention.over(acme, SOON))


def test_a_list_is_paged_by_its_due_dates_and_stays_in_its_workspace(
    left, acme, globex, vera, browser, monkeypatch
):
    monkeypatch.setattr(closing, "RESIDUES_A_PAGE", 2)
    due = left.due_at
    more = [
        Residue.objects.create(case=left.case, text=f"thing {n}", owner=vera, due_at=due)
        for n in range(4)
    ]

    seen, after = [], ""
    while True:
        rows, after = closing.residues_after(closing.residues_of(acme), "open", after)
        seen += [one.pk for one in rows]
        if not after:
            break

    assert seen == [left.pk, *(one.pk for one in more)]
    assert closing.residues_after(closing.residues_of(globex), "open", "") == ([], "")
    for strange in ("²", "x_1", "2026-01-01_1", f"{due.isoformat()}_{2**70}"):
        assert browser(vera).get("/w/acme/residue/", {"after": strange}).status_code == 200


@pytest.mark.parametrize(("who", "told"), [("", "vera"), ("vera", "ada"), ("both", "alma")])
def test_what_is_due_is_told_to_who_can_see_to_it_also_where_its_owner_has_left(
    left, acme, ada, vera, who, told
):
    alma = people.person("alma", people.team(acme, "keepers", "view", "administer"))
    Residue.objects.update(due_at=timezone.now() + timedelta(hours=3))
    for one in {"": [], "vera": [vera], "both": [vera, ada]}[who]:
        one.groups.clear()

    assert closing.remind() == 1
    assert closing.remind() == 0

    sent = Delivery.objects.filter(key__startswith="residue/")
    assert [one.recipient for one in sent] == [{"vera": vera, "ada": ada, "alma": alma}[told].email]
    assert ("no longer here" in sent.get().message["text"]) is bool(who)


def test_where_its_owner_has_left_each_page_says_that_nobody_looks_after_it(
    left, ada, vera, browser
):
    page = browser(ada)
    places = ("/w/acme/residue/", f"/w/acme/residue/{left.pk}/", f"/w/acme/cases/{left.case_id}/")
    gone = "nobody: Vera is no longer here"
    assert not any(gone in page.get(one).text for one in places)
    vera.groups.clear()

    assert all(gone in page.get(one).text for one in places)
    shown = page.get(places[1]).text
    assert "Nobody looks after this." in shown
    assert '<option value="">Choose…</option>' in shown, "nobody is chosen by the way"

    page.post(places[1], {"act": "move", "owner": ada.pk, "due": f"{left.due_at:%Y-%m-%d}"})

    assert not any("no longer here" in page.get(one).text for one in places)


def test_what_is_too_much_for_lines_of_its_own_has_an_owner_too(
    raises, ada, vera, browser, monkeypatch
):
    monkeypatch.setattr(closing, "RESIDUES_MAX", 2)
    run = raises(1)
    for number in (2, 3):
        row = {"id": f"T-{number}"}
        run.does("tickets.update", ("ticket", f"main/T-{number}", row, row | {"priority": "high"}))
    run.ends("failed")
    case = run.case()
    day = f"{timezone.localdate() + timedelta(days=3)}"
    said = {"ending": "partly", "owner": vera.pk, "due": day, "why": "It is too late",
            "revision": case.revision}  # fmt: skip

    answer = browser(ada).post(f"/w/acme/cases/{case.pk}/close/", said)

    assert answer.status_code == 302, answer.text
    left = Residue.objects.order_by("pk")
    assert {one.owner for one in left} == {vera}
    assert left.last().text == "2 more, which the page of the run lists"
    assert left.count() == 2


def test_who_looks_after_it_from_now_on_is_reminded_though_the_day_stayed_the_same(
    left, ada, vera, browser
):
    day = f"{timezone.localdate() + timedelta(days=1)}"
    said = {"act": "move", "due": day}
    page, address = browser(ada), f"/w/acme/residue/{left.pk}/"
    page.post(address, said | {"owner": vera.pk})
    Residue.objects.update(due_at=F("due_at") - timedelta(days=1))
    assert closing.remind() == 1

    page.post(address, said | {"owner": ada.pk})
    Residue.objects.update(due_at=F("due_at") - timedelta(days=1))

    assert closing.remind() == 1
    sent = Delivery.objects.filter(key__startswith="residue/").order_by("pk")
    assert [one.recipient for one in sent] == [vera.email, ada.email]
