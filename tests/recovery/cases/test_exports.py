"""A list as a file holds what the list shows to its reader, by the same query, and no more."""

import csv
import io
import itertools
import json
from datetime import timedelta
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from django.utils import timezone

from approvals import named_lists, pauses
from approvals.models import Approval, SubjectKind
from connectors import channels
from connectors.models import CallLog, Connection, Delivery
from ledger import desk_events
from ledger.models import Run
from recovery.models import BulkJob, Case
from recovery.views.saved_views import save_view
from tests.approvals.cast import asker
from tests.people import person, team
from workspaces import entrance, exporting, keys, teams
from workspaces.models import Act, APIKey, Delegation, DirectoryPerson

EMPTY = {
    "residue/",
    "approvals/history/",
    "corrections/",
    "policies/reported/",
    "approvals/health/",
    "settings/signing-keys/?table=signing-keys",
    *(f"approvals/health/?table={one}" for one in ("rules-that-ask", "rules-under-review", "days")),
    *(f"settings/kept/?table={one}" for one in ("erasures", "let-go-by-time")),
}


def rows_of(answer, kind):
    text = b"".join(answer.streaming_content).decode()
    return json.loads(text) if kind == "json" else list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def case(raised, acme, ada):
    case = raised.case()
    Case.objects.filter(pk=case.pk).update(headline_in_full="T-182 is high instead of normal")
    asker(acme, ada)()
    return case


@pytest.fixture
def everything(case, acme, ada):
    """Something in the lists that a failed run alone does not fill; returns a bulk job."""
    Approval.objects.update(subject_kind=SubjectKind.GRANT, plan_id=None)
    asker(acme, ada)()
    payees = named_lists.create(acme, "payees", "text")
    named_lists.change(payees, by=ada, add=named_lists.read_lines("Paper Ltd"), remove=[])
    Delivery.objects.create(workspace=acme, subject="case.critical", message={"title": "Look"})
    keys.create_key(acme.agents.first(), by=ada, name="first", scopes=["ingest"])
    heads = team(acme, "heads", "view", "view_sensitive", "administer")
    teams.add(heads, ada, by=None)
    keys.create_token(acme, by=ada, name="mine")
    keys.create_directory_token(acme, by=ada, name="company")
    DirectoryPerson.objects.create(workspace=acme, user_name="gil@acme.example")
    entrance.invite(acme, "hal@acme.example", [heads], by=ada)
    now, away = timezone.now(), {"delegator": ada, "delegate": person("ida")}
    until = now + timedelta(days=1)
    Delegation.objects.create(workspace=acme, starts_at=now, until=until, **away)
    channels.create(acme, "desk", "mail", by=ada, settings={"to": ["a@acme.example"]})
    CallLog.objects.create(
        connection=Connection.objects.get(), method="observe", operation="x", milliseconds=9,
        outcome="ok",
    )  # fmt: skip
    pauses.pause(acme, "tool", "mail.*", by=ada, reason="The mails are wrong")
    save_view(acme, by=ada, name="Mails", query="tool:mail.*", shared=False)
    job = BulkJob.objects.create(workspace=acme, verb="close", started_by=ada)
    job.items.create(case=case, revision=case.revision)
    return job


FILES = [
    ("queue/", "headline"), ("approvals/?view=all", "title"), ("runs/", "run"),
    ("audit/", "did"), ("residue/", "what"), ("approvals/history/", "title"),
    ("causes/", "title"), ("corrections/", "title"), ("ledger/", "what"), ("tools/", "answer"),
    ("bulk/", "started_by"), ("bulk/{job}/", "case_state"), ("approvals/grants/", "over_because"),
    ("policies/lists/", "kind"), ("policies/lists/payees/", "value"),
    ("policies/reported/", "why"), ("connectors/", "health"), ("channels/", "subject"),
    ("connectors/shop/?table=last-calls", "milliseconds"),
    ("settings/members/", "email"), ("settings/keys/", "prefix"),
    ("approvals/health/", "median_seconds_at_the_card"),
    ("approvals/health/?table=rules-that-ask", "asked"),
    ("approvals/health/?table=rules-under-review", "looked_at"),
    ("approvals/health/?table=days", "median_seconds_to_decide"),
    ("channels/?table=channels", "carries"), ("insights/?table=figures", "value"),
    ("insights/?table=by-agent", "agent"), ("insights/?table=by-tool", "put_right"),
    ("policies/?table=pauses", "reason"), ("policies/?table=policy-versions", "in_force_since"),
    ("settings/directory/?table=directory-tokens", "made_by"),
    ("settings/directory/?table=directory-people", "user_name"),
    ("settings/keys/?table=your-tokens", "prefix"),
    ("settings/keys/?table=limits", "requests_a_minute"),
    ("settings/kept/?table=erasures", "reason"), ("settings/kept/?table=let-go-by-time", "week"),
    ("settings/members/?table=teams", "may"), ("settings/members/?table=invitations", "address"),
    ("settings/members/?table=who-decides-for-whom", "decides_for"),
    ("settings/signing-keys/?table=signing-keys", "fingerprint"),
    ("views/?table=saved-views", "query"),
]  # fmt: skip
"""Each list, and a column that its file has."""


def test_every_list_is_had_as_a_file_by_who_may_see_it(client, everything, ada, dev, subtests):
    for (place, column), kind in itertools.product(FILES, ("csv", "json")):
        with subtests.test(place=place, kind=kind):
            path = f"/w/acme/{place.format(job=everything.pk)}"
            address = f"{path}{'&' if '?' in path else '?'}format={kind}"
            client.force_login(ada)
            answer = client.get(address)

            assert answer.status_code == 200
            assert f".{kind}" in answer["Content-Disposition"]
            rows = rows_of(answer, kind)
            assert all(column in row for row in rows)
            assert bool(rows) is (place not in EMPTY)
            if "table=" in place and rows:
                page = client.get(path.partition("?")[0]).content.decode()
                asked = urlencode(parse_qsl(urlsplit(address).query))
                assert f'href="?{asked}"'.replace("&", "&amp;") in page
            client.force_login(dev)
            assert client.get(address).status_code == 404


def test_a_page_gives_only_its_own_tables_and_to_whom_it_shows_them(client, everything, ada, acme):
    client.force_login(ada)
    assert client.get("/w/acme/policies/?format=csv&table=keys").status_code == 404
    [mine] = rows_of(client.get("/w/acme/settings/keys/?format=json&table=your-tokens"), "json")
    assert mine["token"] == "mine"
    vic = person("vic", team(acme, "watchers", "view"))
    client.force_login(vic)
    for place in ("settings/directory/", "settings/kept/"):
        assert client.get(f"/w/acme/{place}?format=csv").status_code == 403
    for place in ("settings/keys/?table=your-tokens", "views/?"):
        assert rows_of(client.get(f"/w/acme/{place}&format=json"), "json") == []


def test_the_file_has_the_query_of_the_list_and_hides_what_the_list_hides(client, case, ada, acme):
    asked = "=HYPERLINK(1);=cmd|A1;\n@x; =A2; -5; 5-3;\uff1dA1"
    Case.objects.filter(pk=case.pk).update(request=asked)
    client.force_login(ada)
    assert rows_of(client.get("/w/acme/queue/?format=json&q=risk:critical"), "json") == []
    [row] = rows_of(client.get("/w/acme/queue/?format=csv&q=tool:tickets.update"), "csv")
    told = "'=HYPERLINK(1);'=cmd|A1;\n'@x; '=A2; '-5; 5-3;'\uff1dA1"
    assert row["request"] == told, "no spreadsheet takes a part of it for a formula"
    Case.objects.filter(pk=case.pk).update(request="pay from DE89 3704 0044 0532 0130 00")
    vic = person("vic", team(acme, "watchers", "view"))
    client.force_login(vic)
    for kind in ("csv", "json"):
        [row] = rows_of(client.get(f"/w/acme/queue/?format={kind}"), kind)
        assert "instead of normal" not in row["headline"]
        assert "DE89" not in row["request"]
    assert client.get("/w/acme/queue/?format=csv&q=risk:purple").status_code == 422


def test_who_took_which_list_is_on_the_record_and_what_was_refused_is_not(client, case, ada, acme):
    client.force_login(person("vic", team(acme, "watchers", "view")))
    assert client.get("/w/acme/settings/kept/?format=csv").status_code == 403
    assert not Act.objects.filter(type="data.exported").exists()
    client.force_login(ada)

    assert client.get("/w/acme/queue/?format=csv&q=tool:tickets.update&after=").status_code == 200
    assert client.get("/w/acme/settings/members/?format=json&table=invitations").status_code == 200

    cases, members = Act.objects.filter(type="data.exported", person=ada).order_by("pk")
    asked = "q: tool:tickets.update"
    assert cases.data == {"list": "cases", "format": "CSV", "rows": 1, "filter": asked}
    assert members.data == {"list": "invitations", "format": "JSON", "rows": 0}
    desk_events.take_in()
    page = client.get("/w/acme/audit/?kind=kept").content.decode()
    assert "List downloaded as a file: cases" in page
    assert asked in page


def test_a_file_that_is_cut_says_so(client, case, ada, acme, monkeypatch):
    Run.objects.create(workspace=acme, run="run_2")
    client.force_login(ada)
    for most, is_cut in ((1, True), (2, False)):
        monkeypatch.setattr(exporting, "ROWS_MAX", most)
        for kind in ("csv", "json"):
            answer = client.get(f"/w/acme/runs/?format={kind}")
            rows = rows_of(answer, kind)
            assert (f"runs-first-{most}.{kind}" in answer["Content-Disposition"]) is is_cut
            assert ("Only the first 1 rows are in this file" in str(rows[-1])) is is_cut
            assert len([one for one in rows if one.get("state")]) == most


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_long_file_has_the_order_of_the_list_and_is_kept_by_nobody(
    client, acme, ada, monkeypatch, kind
):
    """It is read in batches, in each of which the database gives rows as it likes."""
    monkeypatch.setattr(exporting, "BATCH", 2)
    for n in (3, 1, 6, 2, 5, 4):
        at = timezone.now() - timedelta(hours=n)
        Run.objects.create(workspace=acme, run=f"run-{n}", started_at=at)
    client.force_login(ada)

    answer = client.get(f"/w/acme/runs/?format={kind}")

    assert answer["Cache-Control"] == "private, no-store"
    assert [row["run"] for row in rows_of(answer, kind)] == [f"run-{n}" for n in range(1, 7)]


@pytest.mark.parametrize(("kind", "who"), [("csv", "kim"), ("json", "kim"), ("csv", "ada")])
def test_a_secret_in_a_list_of_settings_is_in_no_file_of_who_does_not_see_it_on_the_page(
    client, everything, ada, acme, kind, who
):
    card = "4242 4242 4242 4242"
    Delegation.objects.update(reason=f"Away; my card is {card}")
    APIKey.objects.update(name=f"first {card}")
    DirectoryPerson.objects.update(user_name=card)
    kim = person("kim", team(acme, "keepers", "view", "administer"))
    client.force_login({"kim": kim, "ada": ada}[who])

    for page, table in (
        ("settings/members/", "who-decides-for-whom"),
        ("settings/keys/", "keys"),
        ("settings/directory/", "directory-people"),
    ):
        shown = client.get(f"/w/acme/{page}").text
        answer = client.get(f"/w/acme/{page}?format={kind}&table={table}")
        taken = str(rows_of(answer, kind))
        assert taken, page
        assert (card in taken) is (card in shown) is (who == "ada"), page
