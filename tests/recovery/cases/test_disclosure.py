"""Vic may view, and no more; Ada recovers and administers, without `view_sensitive`. Whatever page
or endpoint they ask for, none shows them a card, an account, a token or a value of a payload.

The walk goes over the URL configuration itself: an address that is not in `PLACES` fails it.
"""

import json
import re
from datetime import timedelta

import pytest
from django.urls import URLResolver, get_resolver
from django.utils import timezone

from config.api import api
from connectors.models import CallLog, CallOutcome
from ledger import disclosure
from ledger.models import EventKey
from recovery.corrections import draft as draft_corrections
from recovery.corrections import publish
from recovery.models import Case, Correction, Plan, Residue
from recovery.triage import triage
from tests.approvals.cast import asker, refund
from tests.people import person, team
from tests.recovery.cases.cast import stands, submitted
from tests.recovery.cases.conftest import POLICY
from tests.worlds import kept
from workspaces import client_packages, keys, teams
from workspaces.models import Act

CARD, IBAN = "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00"
TOKEN = "tok_live_8fQ2mZ7xK1pV4sJ9"
SPOKEN = f"pay {IBAN} with {TOKEN}"
SAID_OUTSIDE = f"card {CARD}, account {IBAN}, {TOKEN}"
# A value that no rule recognises: what hides it is that it is a payload.
PLAIN, WRITTEN = "zebra-canary-93", "heron-canary-71"
SECRETS = (CARD, CARD.replace(" ", ""), IBAN, IBAN.replace(" ", ""), TOKEN, PLAIN, WRITTEN)

PROBED = POLICY.replace(
    '"tickets.*":       {connection: shop, operation: restore_row, args: {to: before}}',
    '"tickets.*": {connection: shop, operation: restore_row, args: {to: before},'
    " probe: {connection: shop, operation: restore_row, args: {to: args.to}}}",
)

W = "w/<slug:workspace>/"
CASE, RUN = f"{W}cases/<int:pk>/", f"{W}runs/<path:run>/"
LINK, APPROVAL = f"{W}connectors/<slug:name>/", f"{W}approvals/<int:pk>/"
CORRECTION, V1 = f"{W}corrections/<int:pk>/", "api/v1/"
# Each address with where it leads and, of those that take one, a question.
PLACES: dict[str, tuple[dict[str, str], ...]] = {
    **dict.fromkeys(
        (
            "", "address/", "demo/enter/", "demo/guide/", "demo/hide/",
            "api/docs", f"{V1}", f"{V1}openapi.json", f"{V1}docs", f"{V1}<path:rest>",
            "setup/<str:token>/",
            "join/<str:token>/", "ask/<str:token>/", "summary/stop/<str:token>/",
            "c/<str:token>/", "c/<str:token>/record.json",
            "c/<str:token>/verify/", "c/<str:token>/report/",
            "c/<str:token>/contested/<str:receipt>/", "verifier.html",
            f"client/{client_packages.wheel.name}", f"client/{client_packages.tarball.name}",
        ),
        ({"token": "nothing", "receipt": "nothing"},),
    ),
    **dict.fromkeys((W, f"{W}settings/", f"{W}settings/members/", f"{W}settings/members/invite/",
        f"{W}settings/directory/", f"{W}settings/directory/tokens/",
        f"{W}settings/log-in/", f"{W}settings/log-in/try/", f"{W}settings/log-in/save/",
        f"{W}settings/log-in/end/", f"{W}settings/directory/teams/",
        f"{W}settings/directory/people/let-back-in/",
        f"{W}settings/delegations/", f"{W}settings/teams/",
        f"{W}settings/keys/", f"{W}settings/keys/new/",
        f"{W}settings/agents/", f"{W}settings/tokens/", f"{W}settings/kept/",
        f"{W}settings/kept/progress/", f"{W}audit/", f"{W}runs/", f"{W}ledger/",
        f"{W}ledger/verify/", f"{W}connectors/", f"{W}connectors/new/", f"{W}channels/",
        f"{W}channels/new/", f"{W}approvals/", f"{W}approvals/fresh/", f"{W}approvals/history/",
        f"{W}approvals/health/",
        f"{W}settings/signing-keys/", f"{W}settings/summary/", f"{W}approvals/health/proposal/",
        f"{W}approvals/grants/", f"{W}policies/", f"{W}policies/new/", f"{W}policies/pauses/",
        f"{W}tools/", f"{W}queue/claim/", f"{W}queue/fresh/", f"{W}views/", f"{W}views/new/",
        f"{W}causes/", f"{W}bulk/", f"{W}insights/", f"{W}corrections/",
        f"{W}corrections/settings/", f"{V1}ledger/key",
        f"{V1}ledger/head", f"{V1}ledger/entries", f"{V1}cases", f"{V1}agent/cases"), ({},)),
    **dict.fromkeys((f"{W}residue/", f"{W}policies/reported/", f"{V1}residues"), ({},)),
    **dict.fromkeys((f"{W}policies/lists/", f"{V1}lists", f"{V1}grants", f"{V1}policies",
        f"{V1}policies/in-force", f"{V1}policies/check", f"{V1}policies/starters", f"{V1}pauses",
        f"{V1}approval-health", f"{V1}proposals"), ({},)),
    f"{V1}proposals/<path:key>": ({"key": "looser:tickets.update"},),
    f"{W}teach/": ({"?": "tool=tickets.update"},),
    **dict.fromkeys((f"{W}settings/teams/<int:pk>/", f"{W}settings/teams/<int:pk>/people/",
        f"{W}settings/teams/<int:pk>/leave/"),
        ({"pk": "{spare}"},)),  # nobody's: what is posted takes all its rights away
    **dict.fromkeys((f"{W}policies/lists/<slug:name>/", f"{W}policies/lists/<slug:name>/change/",
        f"{V1}lists/<name>", f"{V1}lists/<name>/history", f"{V1}lists/<name>/replace"),
        ({"name": "payees"},)),
    **dict.fromkeys(
        (f"{W}residue/<int:pk>/", f"{V1}residues/<int:pk>/done"), ({"pk": "{residue}"},)
    ),
    f"{W}ledger/snapshots/<str:sha256>/": ({"sha256": "a" * 64},),
    **dict.fromkeys((f"{APPROVAL}outcome/", f"{APPROVAL}alike/"), ({"pk": "{approval}"},)),
    f"{V1}ledger/snapshots/<sha256>": ({"sha256": "0" * 64},),
    f"{V1}ledger/consistency": ({"?": "old=1&new=1"},),
    f"{W}queue/": ({}, {"?": "q=is:open"}, {"?": "peek={case}"}),
    f"{W}find/": ({"?": "q=pa"}, {"?": "q=4111"}),
    f"{W}queue/suggest/": ({"?": "q=customer:&cursor=9"}, {"?": "q=tool:&cursor=5"}),
    f"{W}bulk/new/": ({"?": "ids={case}"},),
    f"{W}x/<path:query>": ({"query": "run_1"},),
    "scim/v2/<slug:workspace>/<path:rest>": ({"rest": "Users"}, {"rest": "Groups/1"}),
    **dict.fromkeys((f"{W}settings/members/invitations/<int:pk>/withdraw/",
        f"{W}settings/directory/tokens/<int:pk>/revoke/",
        f"{W}settings/directory/people/<int:pk>/let-back-in/",
        f"{W}settings/delegations/<int:pk>/revoke/",
        f"{W}settings/keys/<int:pk>/revoke/", f"{W}settings/keys/<int:pk>/first/",
        f"{W}settings/tokens/<int:pk>/revoke/",
        f"{W}channels/<int:pk>/switch/", f"{W}channels/<int:pk>/test/",
        f"{W}policies/pauses/<int:pk>/lift/", f"{V1}pauses/<pk>/lift", f"{W}bulk/<int:pk>/",
        f"{W}bulk/<int:pk>/progress/",
        f"{W}bulk/<int:pk>/stop/"), ({"pk": "1"},)),
    **dict.fromkeys((f"{W}policies/<int:number>/", f"{W}policies/<int:number>/activate/",
        f"{W}policies/<int:number>/shadow/", *(f"{V1}policies/<int:number>{act}"
        for act in ("", "/dry-run", "/activate", "/shadow"))), ({"number": "1"},)),
    **dict.fromkeys((f"{W}views/<slug:slug>/", f"{W}views/<slug:slug>/remove/"),
        ({"slug": "mine"},)),
    f"{W}causes/<str:fingerprint>/": ({"fingerprint": "{cause}"},),
    RUN: ({"run": "run_1"}, *({"run": "run_1", "?": f"step={step}"} for step in range(1, 9))),
    **dict.fromkeys((f"{W}reveal/<path:run>/", f"{W}report/<path:run>/"), ({"run": "run_1"},)),
    **dict.fromkeys((f"{W}ledger/{one}<path:event>/"
        for one in ("", "event/", "proof/", "download/", "reveal/")), ({"event": "{event}"},)),
    f"{LINK}try/": ({"name": "shop"},),  # before it is switched off
    **dict.fromkeys((LINK, f"{LINK}settings/", f"{LINK}switch/", f"{LINK}rehearse/"),
        ({"name": "shop"},)),
    r"^w/(?P<workspace>[-\w]+)/connectors/(?P<name>[-\w]+)/credentials/"
    r"(?P<purpose>observe|compensate)/$": (
        {"path": "w/acme/connectors/shop/credentials/observe/"},
    ),
    APPROVAL: ({"pk": "{approval}"},),
    f"{W}settings/signing-keys/<int:pk>/": ({"pk": "1"},),
    f"{APPROVAL}signed/<int:decision>/": ({"pk": "{approval}", "decision": "1"},),
    f"{V1}approvals/<int:pk>/documents": ({"pk": "{approval}"},),
    **dict.fromkeys((f"{V1}approvals/<int:pk>/documents/<name>", f"{APPROVAL}<slug:name>.json"),
        tuple({"pk": "{approval}", "name": name} for name in ("requested", "decided", "resolved"))),
    **dict.fromkeys((f"{APPROVAL}decide/", f"{APPROVAL}withdraw/", f"{APPROVAL}change/",
        f"{APPROVAL}alike/decide/", f"{APPROVAL}more/", f"{APPROVAL}later/", f"{APPROVAL}revoke/",
        f"{APPROVAL}ask/", f"{APPROVAL}break-glass/", f"{APPROVAL}break-glass/review/",
        f"{V1}grants/<pk>", f"{V1}grants/<pk>/revoke"),
        ({"pk": "{approval}"},)),
    f"{APPROVAL}answer/<int:enquiry>/": ({"pk": "{approval}", "enquiry": "1"},),
    CASE: tuple({"pk": "{case}", "?": f"tab={tab}"}
        for tab in ("evidence", "related", "activity", "correction")),
    **dict.fromkeys((f"{CASE}outlook/", f"{CASE}progress/", f"{CASE}claim/", f"{CASE}comment/",
        f"{CASE}stop/", f"{CASE}reopen/", f"{CASE}resume/", f"{CASE}confirm/", f"{CASE}pause/",
        f"{CASE}close/", f"{CASE}corrections/", f"{CASE}hand-over/",
        f"{CASE}snooze/"), ({"pk": "{case}"}, {"pk": "{planned}"})),
    f"{CASE}compensate/": ({"pk": "{case}"}, {"pk": "{other}"}),
    f"{CASE}settle/": ({"pk": "{case}"}, {"pk": "{other}"}, {"pk": "{planned}"}),
    f"{CORRECTION}contests/<int:contest>/": ({"pk": "{correction}", "contest": "1"},),
    **dict.fromkeys((CORRECTION, f"{CORRECTION}save/", f"{CORRECTION}publish/",
        f"{CORRECTION}revoke/", f"{CORRECTION}handed-on/", f"{CORRECTION}preview/",
        f"{V1}corrections/<int:pk>", f"{V1}corrections/<int:pk>/publish"),
        ({"pk": "{correction}"},)),
    f"{V1}runs/<path:run>": ({"run": "run_1"}, {"run": "run_2"}),
    f"{V1}runs/<path:run>/report": ({"run": "run_1"},),
    f"{V1}runs/<path:run>/actions/<path:action>": ({"run": "run_1", "action": "act_1"},),
    f"{V1}ledger/proof/<path:event>": ({"event": "{event}"},),
    f"{V1}agent/cases/<int:pk>": ({"pk": "{case}"},),
    f"{V1}cases/<int:pk>": ({"pk": "{case}"}, {"pk": "{other}"}, {"pk": "{planned}"}),
    f"{V1}cases/<int:pk>/preview": tuple({"pk": pk, "?": f"verb={verb}"}
        for pk in ("{case}", "{other}", "{planned}")
        for verb in ("compensate", "resume", "close", "nothing")),
    **dict.fromkeys((f"{V1}cases/<int:pk>/{verb}" for verb in ("compensate", "resume", "close",
        "claim", "release", "corrections", "settle", "reopen")), ({"pk": "{planned}"},)),
    **dict.fromkeys((f"{V1}bulk", f"{V1}bulk/preview"), ({},)),
    **dict.fromkeys((f"{V1}bulk/<int:pk>", f"{V1}bulk/<int:pk>/stop"), ({"pk": "1"},)),
    f"{V1}plans/<int:pk>": ({"pk": "{plan}"},),
}  # fmt: skip
# In front of Django: served to agents' keys alone, who read what they wrote themselves.
OF_AGENTS = {
    "/api/v1/events", "/api/v1/blobs/{}", "/api/v1/actions/begin", "/api/v1/approvals/{}",
    "/api/v1/approvals/{}/answers", "/api/v1/runs/{}/directive", "/api/v1/policy",
    "/api/v1/cloudevents", "/v1/traces",
}  # fmt: skip
BODIES = {
    f"{LINK}try/": {"operation": "restore_row", "target_type": "ticket",
                    "target_id": "main/T-182"},
    f"{CASE}settle/": {"outcome": "applied", "evidence": ""},
    f"{V1}bulk/preview": {"q": "is:open"},
}  # fmt: skip


def routes(patterns=None, before=""):
    """Every address of the URL configuration but those of logging in, which know no workspace."""
    for one in get_resolver().url_patterns if patterns is None else patterns:
        route = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from routes(one.url_patterns, route) if route != "accounts/" else ()
        else:
            yield route


@pytest.fixture
@kept(in_turn=True)
def known(acme, ada, agent, policy, begin_run, ticket, shop, shop_connection, finance):
    """A workspace in which everything that others wrote holds what may not be seen."""
    from approvals import versions

    versions.activate(versions.save(acme, PROBED, by=None), by=None)
    teams.add(team(acme, "keepers", "view", "administer"), ada, by=None)
    case = wronged(begin_run, shop, ticket)
    other = doubtful(begin_run, ticket)
    planned = drifted(begin_run, shop, ticket, ada)
    draft_corrections(case)
    CallLog.objects.create(
        connection=shop_connection, method="observe", operation="restore_row", milliseconds=3,
        target=f"ticket/{IBAN}", outcome=CallOutcome.APPLIED,
        detail=f"the server said {SAID_OUTSIDE}",
    )  # fmt: skip
    residue = Residue.objects.create(
        case=case, owner=ada, text=f"Ask for {SPOKEN}",
        due_at=timezone.now() + timedelta(days=1),
    )  # fmt: skip
    call = refund()
    call.args.update(note=PLAIN, to=IBAN)
    approval = asker(acme, None)(calls=[call], by=None)
    type(approval).objects.filter(pk=approval.pk).update(
        agent_text={"reason": SAID_OUTSIDE}, headline=f"Refund to {IBAN}", action_id=None
    )
    return {
        "workspace": "acme", "case": case.pk, "other": other.pk, "planned": planned.pk,
        "plan": Plan.objects.get().pk, "correction": Correction.objects.first().pk,
        "approval": approval.pk, "cause": case.cause.fingerprint,
        "residue": residue.pk, "spare": team(acme, "spare", "view").pk,
        "event": EventKey.objects.filter(workspace=acme).order_by("place")[2].event_id,
    }  # fmt: skip


@pytest.fixture
@kept
def finance(acme):
    return team(acme, "finance", "view", "approve")


def wronged(begin_run, shop, ticket):
    """Something else stands where the agent wrote; what it wrote, read and was told is not ours."""
    run = begin_run(
        "run_1",
    )
    run.send("run.checkpoint", name="before", summary=SPOKEN, state={"note": PLAIN})
    written = ticket | {"priority": WRITTEN}
    action = run.does(
        "tickets.update", ("ticket", "main/T-182", ticket, written),
        planned={"args": {"note": PLAIN, "to": IBAN}, "intent": {"goal": SPOKEN}},
        result={"said": PLAIN},
    )  # fmt: skip
    check = {"name": "note", "expected": PLAIN, "actual": SPOKEN, "ok": False}
    run.send("action.verified", action, ok=False, checks=[check])
    run.fails("mail.send", message=SPOKEN, args={"text": PLAIN})
    run.ends("failed", error={"type": "Failed", "message": SPOKEN})
    shop.execute("UPDATE tickets SET priority = %s, assignee = %s", [PLAIN, SAID_OUTSIDE])
    triage.look()
    case = Case.objects.get(run__run="run_1")
    Case.objects.filter(pk=case.pk).update(request=SPOKEN, customer_name=f"Eve {IBAN}")
    return case


def doubtful(begin_run, ticket):
    """A call of which nobody knows what became of it."""
    run = begin_run("run_2")
    run.plans("tickets.update", ("ticket", "main/T-182"), args={"to": {"note": PLAIN}},
              before=[ticket])  # fmt: skip
    run.ends("failed", error={"type": "Lost", "message": SPOKEN})
    triage.look()
    return Case.objects.get(run__run="run_2")


def drifted(begin_run, shop, ticket, ada):
    """A plan whose step found the target changed."""
    from tests.recovery.engine import by_hand

    row = ticket | {"id": "T-7"}
    high = row | {"priority": "high"}
    stands(shop, high)
    run = begin_run("run_3")
    run.does("tickets.update", ("ticket", "main/T-7", row, high))
    run.ends("failed")
    triage.look()
    case = Case.objects.get(run__run="run_3")
    plan = submitted(case, ada)
    shop.execute("UPDATE tickets SET assignee = %s WHERE id = 'T-7'", [SAID_OUTSIDE + PLAIN])
    by_hand.advance(plan.pk)
    triage.look([case.run_id])
    return case


@pytest.fixture
@kept
def vic(acme):
    return person("vic", team(acme, "guests", "view"))


def test_every_address_is_walked():
    found = set(routes())

    assert found - set(PLACES) == set(), "say in PLACES where these lead"
    assert set(PLACES) - found == set()
    told = set(api.get_openapi_schema(path_prefix="/api/v1/")["paths"])
    served = {re.sub(r"\{\w+\}", "{}", path) for path in told}
    in_django = {"/" + re.sub("<.*?>", "{}", route) for route in found if route.startswith(V1)}
    of_protocols = {one for one in served if one.startswith(("/aap/v1/", "/aais/v1/"))}
    assert of_protocols, "what agents of other protocols read is their own (tests/sdk)"
    assert served - in_django - of_protocols == OF_AGENTS


@pytest.mark.django_db
@pytest.mark.parametrize("who", ["vic", "ada"])
def test_no_page_and_no_endpoint_shows_what_may_not_be_seen(client, known, acme, vic, ada, who):
    reader = {"vic": vic, "ada": ada}[who]
    client.force_login(reader)
    script = {"Authorization": f"Bearer {keys.create_token(acme, by=reader, name='script')[1]}"}
    seen, wrong = set(), {}
    # The API first: one of the pages takes the token back.
    places_in_order = sorted(PLACES.items(), key=lambda one: not one[0].startswith(V1))
    for post in (False, True):
        for route, places in places_in_order:
            # Whoever recovers is shown the calls that an approval is about, and what they publish.
            if who == "ada" and route.startswith((APPROVAL, CORRECTION, f"{V1}corrections/")):
                continue
            for place in places:
                answer = asked(client, route, place, known, script, post=post)
                seen.add((route, answer.status_code))
                text = answer.content.decode(errors="replace")  # one is a file
                assert answer.status_code < 500, text
                if shown := [one for one in SECRETS if one in text.replace("<wbr>", "")]:
                    wrong[f"{answer.request['PATH_INFO']} {answer.status_code}"] = shown

    assert wrong == {}
    answered = {route for route, status in seen if status == 200}
    assert {CASE, RUN, f"{W}ledger/event/<path:event>/", f"{W}queue/",
            f"{V1}cases/<int:pk>/preview", f"{V1}plans/<int:pk>",
            f"{V1}runs/<path:run>"} <= answered  # fmt: skip
    if who == "vic":
        assert {CORRECTION, f"{V1}corrections/<int:pk>"} <= answered
    if who == "ada":
        assert {
            f"{CASE}settle/",
            f"{CASE}compensate/",
            f"{LINK}try/",
            f"{CASE}outlook/",
            f"{V1}bulk/preview",
        } <= answered


def asked(client, route, place, known, script, *, post, body=None):
    path = place.get("path", route)
    for name, value in (known | place).items():
        for kind in ("int", "slug", "path", "str"):
            path = path.replace(f"<{kind}:{name}>", str(value))
        path = path.replace(f"<{name}>", str(value))
    path = f"/{path}?{place.get('?', '')}".replace("{", "%(").replace("}", ")s") % known
    headers = script if route.startswith(V1) else {}
    if not post:
        return client.get(path, headers=headers)
    if route.startswith(V1):
        said = json.dumps(body or BODIES.get(route, {}))
        return client.post(path, said, "application/json", headers=headers)
    return client.post(path, body or BODIES.get(route, {}))


@pytest.mark.django_db
def test_the_persons_link_and_page_are_for_whoever_recovers(client, known, acme, vic, ada):
    """Who holds the link reads every value, and may report in the person's name."""
    row = Correction.objects.get(pk=known["correction"])
    row = publish(row, by=ada, seen=row.revision, ways=["link"])

    for reader, is_shown in ((vic, False), (ada, True)):
        client.force_login(reader)
        token = keys.create_token(acme, by=reader, name="script")[1]
        script = {"Authorization": f"Bearer {token}"}
        one = client.get(f"/api/v1/corrections/{row.pk}", headers=script).json()
        of_case = client.get(f"/api/v1/cases/{row.case_id}", headers=script).json()
        preview = client.get(f"/w/acme/corrections/{row.pk}/preview/")
        assert [bool(one["link"]), WRITTEN in str(one["facts"])] == [is_shown, is_shown]
        assert bool(of_case["corrections"][0]["link"]) is is_shown
        assert preview.status_code == (200 if is_shown else 403)
        page = client.get(f"/w/acme/corrections/{row.pk}/").content.decode()
        assert "Ticket T-182" in page or "ticket T-182" in page
        assert (disclosure.HIDDEN in page) is not is_shown


@pytest.mark.django_db
def test_who_may_see_payloads_sees_them_masked_as_the_ledger_masks(client, known, acme):
    sue = person("sue", team(acme, "seniors", "view", "view_sensitive"))
    token = keys.create_token(acme, by=sue, name="script")[1]
    Act.objects.all().delete()

    answer = client.get(
        f"/api/v1/cases/{known['case']}/preview", headers={"Authorization": f"Bearer {token}"}
    )

    rows = {row["field"]: row for row in answer.json()["steps"][0]["drift"]}
    assert rows["priority"]["now"] == PLAIN
    client.force_login(sue)
    assert f"instead of {PLAIN}" in client.get(f"/w/acme/cases/{known['case']}/").text
    assert IBAN in rows["assignee"]["now"]  # an account in a text is no secret of the ledger's
    assert CARD not in answer.content.decode()
    [written] = answer.json()["steps"][0]["diff"]
    assert (written["field"], written["now"]) == ("priority", PLAIN)
    told = Act.objects.get(type="payload.revealed")
    assert (told.person, told.data["run"]) == (sue, "run_1")


def test_what_only_looks_like_a_secret_stays():
    texts = ("run_8fQ2mZ7xK1pV4sJ9aaaa", "4111 1111 1111 1112", "GB00 WEST 1234 5698 7654 32",
             "0192f7a0-4111-7111-8111-111111111111", "sha256:" + "a1" * 32,
             "1732356000000")  # fmt: skip

    assert [one for one in texts if disclosure.without_secrets(one) != one] == []


def test_a_secret_is_found_behind_words_and_numbers_that_run_into_it():
    for before in ("ab12 then ", "id 41 ", "to", "x-", "no 7 of "):
        for one in (IBAN, CARD, TOKEN):
            text = f"{before} {one} and {TOKEN}, {CARD}"
            assert not [hit for hit in SECRETS if hit in disclosure.without_secrets(text)], text


def test_numbers_and_names_are_looked_at_like_texts():
    found = disclosure.without_secrets(
        {CARD: [4111111111111111, True, 7], "a": {"b": IBAN + " now"}}
    )

    assert json.dumps(found).count("hidden: needs view_sensitive") == 3
    assert found["a"]["b"].endswith(" now")
