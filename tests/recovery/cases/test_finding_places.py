"""Getting about: neighbours in a list, ids that lead to their page, views that were kept."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ledger.models import Event
from recovery import search
from recovery.models import Case, SavedView
from recovery.triage import triage
from recovery.views import saved_views
from tests.people import person, team
from tests.worlds import kept
from workspaces.erasure_registry import ERASED
from workspaces.models import Workspace

TICKET = ("ticket", "main/T-182", {"priority": "normal"}, {"priority": "high"})


@pytest.fixture
@kept(in_turn=True)
def three(begin_run):
    """Three cases, the third of a tool of its own."""
    for number, tool in enumerate(("tickets.update", "tickets.update", "users.rename"), 1):
        run = begin_run(f"run_{number}")
        action = run.does(tool, TICKET)
        run.is_verified(action, ok=False)
        run.ends()
    triage.look()
    return [Case.objects.get(run__run=f"run_{number}") for number in (1, 2, 3)]


def test_neighbours_are_those_of_the_list_in_its_order(three, acme, ada):
    for order in ("risk", "newest", "due"):
        listed = [one.pk for one in search.find(acme, "", by=ada, order=order).cases]

        for at, pk in enumerate(listed):
            around = search.neighbours(acme, Case.objects.get(pk=pk), "", by=ada, order=order)
            found = [one.pk if one else None for one in around]
            wanted = [listed[at - 1] if at else None, listed[at + 1] if at + 1 < 3 else None]
            assert found == wanted, order


def test_the_page_of_a_case_reads_its_own_row_and_of_its_neighbours_the_number(three, ada, client):
    client.force_login(ada)
    with CaptureQueriesContext(connection) as asked:
        client.get(f"/w/acme/cases/{three[1].pk}/")

    told = [one["sql"] for one in asked]
    of_cases = [sql for sql in told if 'FROM "recovery_case"' in sql]
    assert sum('"recovery_case"."search"' in sql for sql in of_cases) == 1
    [left] = [sql for sql in told if 'FROM "recovery_residue"' in sql]
    assert '"recovery_case"."search"' not in left


def test_a_due_time_that_is_missing_stands_last_among_neighbours_too(three, acme, ada):
    Case.objects.filter(pk__in=[three[0].pk, three[1].pk]).update(due_at=None)
    listed = [one.pk for one in search.find(acme, "", by=ada, order="due").cases]

    last = Case.objects.get(pk=listed[-1])
    middle = Case.objects.get(pk=listed[1])

    assert search.neighbours(acme, last, "", by=ada, order="due")[0] == middle
    assert search.neighbours(acme, middle, "", by=ada, order="due")[0].pk == listed[0]


def test_a_case_opened_from_a_search_stays_among_what_it_found(desk, three):
    page = desk.get("/w/acme/queue/?q=tool:tickets.*&sort=newest")
    second, first = page.context["cases"]

    case = desk.get(first["url"])

    assert case.context["neighbours"] == {"previous": second["url"]}
    assert case.context["queue_url"].endswith("?q=tool%3Atickets.%2A&sort=newest")
    assert "q=tool" in case.context["tabs"][1]["url"]


def test_a_list_of_all_time_stays_so_in_its_cases_its_orders_and_its_bulk_acts(desk, three):
    Case.objects.update(failed_at=timezone.now() - timedelta(days=100))
    cut = desk.get("/w/acme/queue/?q=state:open")
    page = desk.get("/w/acme/queue/" + cut.context["pager"]["all_url"])
    assert (len(cut.context["cases"]), len(page.context["cases"])) == (0, 3)

    middle = desk.get(page.context["cases"][1]["url"])
    assert middle.context["neighbours"] == {
        "previous": page.context["cases"][0]["url"],
        "next": page.context["cases"][2]["url"],
    }
    sorted_by = "/w/acme/queue/" + page.context["sorts"]["since"]["url"]
    for leads_back in (middle.context["queue_url"], sorted_by):
        assert len(desk.get(leads_back).context["cases"]) == 3
    tried = desk.get(page.context["bulk_all_url"])
    another = desk.get(tried.context["others"][0]["url"])
    for one in (tried, another):
        assert len(one.context["eligible"]) + len(one.context["not_eligible"]) == 3
        assert len(desk.get(one.context["queue_url"]).context["cases"]) == 3
    claimed = {"q": "state:open", "all": "1", "case": [three[0].pk]}
    answer = desk.post("/w/acme/queue/claim/", claimed, follow=True)
    assert len(answer.context["cases"]) == 3


def test_any_id_leads_to_its_page(desk, three):
    case = three[0]
    event = Event.objects.filter(run="run_1").order_by("place").first()
    leads = {
        "run_1": f"/w/acme/cases/{case.pk}/",
        str(case.pk): f"/w/acme/cases/{case.pk}/",
        f"%23{case.pk}": f"/w/acme/cases/{case.pk}/",
        event.event_id: f"/w/acme/ledger/event/{event.event_id}/",
        case.cause.fingerprint[:12]: f"/w/acme/causes/{case.cause.fingerprint}/",
    }

    for said, place in leads.items():
        answer = desk.get(f"/w/acme/x/{said}")
        assert (answer.status_code, answer.get("location")) == (302, place), said


def test_an_id_of_nothing_says_so(desk, three, subtests):
    for said in ("nothing-like-it", "999999999", "9" * 400, "%00", "a/b/c"):
        with subtests.test(said=said):
            assert desk.get(f"/w/acme/x/{said}").status_code == 404


def test_no_id_leads_into_another_workspace(client, dev, three):
    client.force_login(dev)

    assert client.get("/w/acme/x/run_1").status_code == 404
    for said in ("run_1", str(three[0].pk), three[0].cause.fingerprint):
        assert client.get(f"/w/globex/x/{said}").status_code == 404


def test_an_id_pasted_into_the_search_jumps_and_a_word_does_not(desk, three):
    fingerprint = three[0].cause.fingerprint
    event = Event.objects.filter(run="run_1").first().event_id

    assert desk.get("/w/acme/queue/", {"q": event})["location"].endswith(f"/{event}/")
    assert desk.get("/w/acme/queue/", {"q": fingerprint}).status_code == 302
    assert desk.get("/w/acme/queue/", {"q": "priority"}).status_code == 200


def test_a_view_is_kept_and_listed_among_the_filters(desk, three, acme, ada):
    said = {"name": "My tickets", "q": "tool:tickets.*"}

    answer = desk.post("/w/acme/views/new/", said, follow=True)

    assert len(answer.context["cases"]) == 2
    chip = next(one for one in answer.context["views"] if one["name"] == "My tickets")
    assert (chip["count"], chip["current"]) == ("2", True)
    assert desk.get("/w/acme/views/my-tickets/")["location"].endswith("tool%3Atickets.%2A")
    desk.post("/w/acme/views/my-tickets/remove/")
    assert not SavedView.objects.exists()


def test_a_private_view_is_its_owners_and_a_shared_one_everybodys(client, acme, ada, finn):
    saved_views.save_view(acme, by=ada, name="Mine", query="is:mine", shared=False)
    saved_views.save_view(acme, by=ada, name="Ours", query="risk:high", shared=True)
    elsewhere = Workspace.objects.create(slug="elsewhere", name="Elsewhere")
    client.force_login(finn)

    page = client.get("/w/acme/views/")

    assert [one["name"] for one in page.context["views"]] == ["Ours"]
    assert saved_views.beside(elsewhere, ada) == []
    saved_views.save_view(acme, by=finn, name="Theirs", query="is:open", shared=False)
    assert saved_views.beside(acme, ada) == [("Mine", "is:mine"), ("Ours", "risk:high")]
    assert saved_views.beside(acme, finn) == [("Theirs", "is:open"), ("Ours", "risk:high")]
    client.post("/w/acme/views/theirs/remove/")
    assert client.get("/w/acme/views/mine/").status_code == 404
    assert client.post("/w/acme/views/ours/remove/").status_code == 403
    assert SavedView.objects.count() == 2


def test_what_cannot_be_kept_is_said_and_what_was_typed_stays(desk):
    for name, q, says in (
        ("", "is:open", "needs a name"),
        ("Bad", "is:nonsense", "is none of"),
        (" ", "", "needs a name"),
        ("n" * 81, "is:open", "it has 81 characters, of which 80 can be kept"),
    ):
        page = desk.post("/w/acme/views/new/", {"name": name, "q": q})

        assert page.status_code == 422, name
        assert says in page.text
        assert (page.context["form"]["name"], page.context["form"]["query"]) == (name, q)
        assert not SavedView.objects.exists(), name


def test_a_viewer_keeps_views_for_themselves_and_shares_none(client, acme):
    client.force_login(person("vik", team(acme, "viewers", "view")))

    said = {"name": "Mine", "q": "risk:high"}
    assert client.post("/w/acme/views/new/", said).status_code == 302
    assert client.post("/w/acme/views/new/", said | {"shared": "on"}).status_code == 422
    assert SavedView.objects.get().shared is False


def test_two_views_of_one_name_have_an_address_each(acme, ada, finn):
    slugs = [
        saved_views.save_view(acme, by=one, name="High", query="risk:high", shared=True).slug
        for one in (ada, finn)
    ]

    assert slugs == ["high", "high-2"]
    again = saved_views.save_view(acme, by=ada, name="High", query="risk:critical", shared=True)
    assert (again.slug, SavedView.objects.count()) == ("high", 2)


def test_suggestions_come_for_the_place_of_the_cursor(desk, three):
    page = desk.get("/w/acme/queue/suggest/", {"q": "ri tool:x", "cursor": "2"})

    assert [one.text for one in page.context["suggestions"]] == ["risk:"]
    assert 'data-start="0"' in page.text
    values = desk.get("/w/acme/queue/suggest/", {"q": "risk:h"})
    assert [one.text for one in values.context["suggestions"]] == ["high"]
    assert desk.get("/w/acme/queue/suggest/", {"cursor": "x"}).status_code == 200


def test_what_two_cases_have_in_common_is_said_only_where_they_have_it(desk, begin_run):
    """A failure that did nothing has no cause, and who is forgotten is nobody's neighbour."""
    for name in ("run_1", "run_2"):
        run = begin_run(name)
        run.ends("failed", failed_action=run.fails("mail.send"))
        case = run.case()
    assert (case.cause, case.customer) == (None, "eve")
    there = f"/w/acme/cases/{case.pk}/?tab=related"

    page = desk.get(there)
    assert [one["same"] for one in page.context["related"]] == ["customer"]
    assert "run_1 · Eve Adams · same customer" in page.text
    Case.objects.update(customer=ERASED, customer_name=ERASED)
    assert desk.get(there).context["related"] == []
