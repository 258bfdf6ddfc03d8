"""The policy, lists and pauses over HTTP: what the pages do, by a token that decides nothing."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from approvals import api, named_lists, pauses, versions
from approvals.gate import policy_since
from approvals.models import Approval, ApprovalState, ListEntry, NamedList, Pause, PolicyVersion
from approvals.policy import ToolCall, active, judge, load_new
from tests.approvals import cast, test_named_lists, test_policy_pages, test_proposals
from tests.approvals.cast import put_in_force, told
from tests.approvals.test_policy_pages import DENIES
from tests.locks import waits
from tests.people import logged_in, person, team
from workspaces import keys

pytestmark = pytest.mark.django_db(transaction=True)
ben, trip = cast.ben, cast.trip
history = test_policy_pages.history
MISTAKEN = "policies:\n  crm.*: {aproval: DENY}\n"
ASKS = {"policies": {"pay.*": {"approval": "MANUAL"}}}
LETS = {"policies": {"pay.*": {"approval": "AUTO"}}}


@pytest.fixture
def call(client, acme):
    """Ask the API as a person, by a token of theirs; the answer."""

    def ask(who, method, path, body=None):
        _, token = keys.create_token(acme, by=who, name="ci")
        more = {} if body is None else {"data": body, "content_type": "application/json"}
        headers = {"authorization": f"Bearer {token}"}
        return getattr(client, method)(f"/api/v1/{path}", headers=headers, **more)

    return ask


def closing(act, *given):
    """In a thread, with a connection of its own that it closes."""
    try:
        return act(*given)
    finally:
        connection.close()


def save(call, who, document):
    return call(who, "post", "policies", {"source": json.dumps(document)}).json()["number"]


def in_force(call, who):
    return call(who, "get", "policies").json()["in_force"]


def test_a_document_is_checked_saved_and_put_in_force_and_nothing_is_done_twice(
    call, ada, acme, history
):
    checked = call(ada, "post", "policies/check", {"source": DENIES}).json()
    assert (checked["in_force"], checked["number"], checked["newest"]) == ("", None, 0)
    assert checked["dry_run"]["would"] == {"DENY": 3}
    assert "asked 0 times and denied 3" in checked["dry_run"]["words"]
    assert [one["becomes"] for one in checked["dry_run"]["changes"]] == ["DENY"] * 3
    assert any("nobody touches the CRM" in line for line in checked["diff"])
    assert PolicyVersion.objects.count() == 0
    assert call(ada, "get", "policies/in-force").json()["number"] is None

    said = {"source": DENIES, "note": "after the leak", "after": 0}
    saved, again = (call(ada, "post", "policies", said).json() for _ in range(2))
    assert saved == again
    assert (saved["number"], saved["in_force"], saved["by"]) == (1, False, "Ada")
    assert call(ada, "get", "policies/1/dry-run").json()["dry_run"] == checked["dry_run"]
    first, second = (call(ada, "post", "policies/1/activate", {"seen": ""}) for _ in range(2))
    assert first.json()["in_force"]
    assert first.json() == second.json()
    assert len(told(acme, "policy.activated")) == 1
    assert judge(active(acme), ToolCall(tool="crm.update")).approval == "DENY"

    now = call(ada, "get", "policies/in-force").json()
    assert (now["source"], now["note"]) == (DENIES, "after the leak")
    listed = call(ada, "get", "policies").json()
    assert (listed["in_force"], listed["number"]) == (now["digest"], 1)
    assert [one["number"] for one in listed["policies"]] == [1]


def test_who_wrote_past_others_is_told(call, ada, acme):
    put_in_force(acme, ada, ASKS)
    stale = call(ada, "post", "policies", {"source": DENIES, "after": 0})
    assert (stale.status_code, stale.json()["newest"]) == (409, 1)

    second = save(call, ada, LETS)
    passed = call(ada, "post", f"policies/{second}/activate", {"seen": "0" * 64})
    assert (passed.status_code, passed.json()["title"]) == (409, "Out of date")
    assert PolicyVersion.objects.get(active=True).number == 1


@pytest.mark.parametrize("path", ["policies/check", "policies"])
def test_each_mistake_is_told_with_its_place_and_nothing_is_saved(call, ada, path):
    refused = call(ada, "post", path, {"source": MISTAKEN})

    assert refused.status_code == 422
    [problem] = refused.json()["problems"]
    assert (problem["line"], problem["column"]) == (2, 11)
    assert "did you mean approval?" in problem["message"]
    assert PolicyVersion.objects.count() == 0
    too_long = call(ada, "post", path, {"source": "#" * 300_000})
    assert too_long.status_code == 422


def test_a_viewer_reads_and_changes_nothing(call, ben, ada, acme):
    put_in_force(acme, ada, ASKS)
    number = save(call, ada, LETS)
    for path in ("policies", "policies/in-force", f"policies/{number}/dry-run", "pauses",
                 "approval-health?days=7"):  # fmt: skip
        assert call(ben, "get", path).status_code == 200, path
    refused = {
        "policies/check": {"source": DENIES},
        "policies": {"source": DENIES},
        f"policies/{number}/activate": {"seen": in_force(call, ben)},
        f"policies/{number}/shadow": {},
        "pauses": {"kind": "workspace", "reason": "x"},
        "pauses/1/lift": {},
        "lists": {"name": "payees"},
    }
    for path, body in refused.items():
        assert call(ben, "post", path, body).status_code == 403, path
    assert call(ben, "get", "proposals").status_code == 403
    assert PolicyVersion.objects.count() == 2
    assert not Pause.objects.exists()


def test_a_number_that_its_author_is_not_shown_is_not_lost_from_the_policy(call, ada, acme):
    account = "DE89370400440532013000"
    put_in_force(acme, ada, {"lists": {"payees": [account]}})
    shown = call(ada, "get", "policies/in-force").json()["source"]
    assert account not in shown

    refused = call(ada, "post", "policies", {"source": shown})

    assert (refused.status_code, "view_sensitive" in refused.json()["detail"]) == (422, True)
    page = logged_in(ada).post(test_policy_pages.NEW, {"source": shown, "act": "save"})
    assert (page.status_code, PolicyVersion.objects.count()) == (422, 1)


def test_a_starter_is_a_document_to_begin_with(call, ben, ada):
    found = call(ben, "get", "policies/starters").json()["starters"]
    assert [one["name"] for one in found] == list(versions.STARTERS)
    assert load_new(found[0]["source"]).asks_of_unknown


def test_a_version_runs_in_the_shadow_until_that_is_ended(call, ada, acme):
    put_in_force(acme, ada, ASKS)
    number = save(call, ada, LETS)

    assert call(ada, "post", f"policies/{number}/shadow", {}).json()["shadow_since"]
    assert "in shadow" in call(ada, "get", f"policies/{number}/dry-run").json()["dry_run"]["words"]
    assert not call(ada, "post", f"policies/{number}/shadow", {"end": True}).json()["shadow_since"]
    assert call(ada, "post", "policies/1/shadow", {}).status_code == 409, "it is in force"


@pytest.mark.parametrize(
    "rules", [{"approval": "AUTO"}, [{"when": 'sum(args.amount, over: "24h") > 150'} |
    {"approval": "MANUAL"}, {"approval": "AUTO"}]],
)  # fmt: skip
def test_no_token_puts_in_force_what_would_answer_a_question_that_waits(
    call, trip, ada, ben, acme, rules
):
    put_in_force(acme, ada, ASKS)
    assert cast.ask(trip).json()["answer"] == "wait"
    question = cast.waiting()
    number, seen = save(call, ada, {"policies": {"pay.*": rules}}), in_force(call, ada)

    refused = call(ada, "post", f"policies/{number}/activate", {"seen": seen})

    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:amends:problem:answers-questions"
    assert refused.json()["approvals"] == [question.pk]
    assert in_force(call, ada) == seen
    assert len(told(acme, "policy.activated")) == 1
    assert cast.ask(trip).json()["answer"] == "wait"
    cast.agree(ben)
    again = call(ada, "post", f"policies/{number}/activate", {"seen": seen})
    assert again.status_code == 200, "people have answered"


def test_of_a_plan_neither_and_what_asks_more_or_denies_is_put_in_force(call, ask, ada, acme, ben):
    put_in_force(acme, ada, {"policies": {"payments.*": {"approval": "MANUAL"}}})
    plan = ask()
    lets, denies = (
        save(call, ada, {"policies": {"payments.*": {"approval": one}}}) for one in ("AUTO", "DENY")
    )

    refused = call(ada, "post", f"policies/{lets}/activate", {"seen": in_force(call, ada)})
    assert refused.json()["approvals"] == [plan.pk]
    put = call(ada, "post", f"policies/{denies}/activate", {"seen": in_force(call, ada)})
    assert put.status_code == 200
    page = f"/w/acme/policies/{lets}/activate/"
    assert logged_in(ada).post(page, {"seen": in_force(call, ada)}).status_code == 302
    assert PolicyVersion.objects.get(active=True).number == lets, "on the page a person does it"
    later = save(call, ada, {"policies": {"payments.*": {"approval": "AUTO", "words": "ours"}}})
    put = call(ada, "post", f"policies/{later}/activate", {"seen": in_force(call, ada)})
    assert put.status_code == 200, "it would have gone on already"


def test_where_too_many_questions_wait_to_look_at_each_it_is_done_on_the_page(
    call, trip, ada, acme, monkeypatch
):
    put_in_force(acme, ada, ASKS)
    cast.ask(trip)
    monkeypatch.setattr(policy_since, "QUESTIONS_MAX", 0)

    refused = call(ada, "post", f"policies/{save(call, ada, ASKS | {'order': 'ASK'})}/activate",
                   {"seen": in_force(call, ada)})  # fmt: skip

    assert (refused.status_code, "do it on the page" in refused.json()["detail"]) == (422, True)


def test_what_is_asked_for_again_changes_nothing(call, ada, acme):
    put_in_force(acme, ada, ASKS)
    number = save(call, ada, LETS)
    first, again = (call(ada, "post", f"policies/{number}/shadow", {}).json() for _ in range(2))
    assert first == again
    ended = [call(ada, "post", f"policies/{number}/shadow", {"end": True}) for _ in range(2)]
    assert ended[0].json() == ended[1].json()
    assert len(told(acme, "policy.shadowed")) == len(told(acme, "policy.shadow_ended")) == 1
    place = {"kind": "agent", "name": "desk\n", "reason": "wrong recipients"}
    assert call(ada, "post", "pauses", place).json()["name"] == "desk", "else it would stop none"


def while_it_waits(first, then, *given):
    """What the second is answered that comes while the first is under way."""
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            first()
            other = pool.submit(closing, then, *given)
            waits(1, unless=other.done)
        return other.result()


def test_a_document_that_two_ask_to_save_at_once_is_one_version(call, ada, acme):
    source = json.dumps(LETS)
    found = while_it_waits(lambda: versions.save(acme, source, by=ada), save, call, ada, LETS)
    assert (found, PolicyVersion.objects.count()) == (1, 1)


def test_a_version_that_two_ask_for_at_once_is_put_in_force_and_in_the_shadow_once(call, ada, acme):
    """The second was told that another version had been put in force."""
    save(call, ada, ASKS)
    version, path = PolicyVersion.objects.get(), "policies/1/"
    for act, said in (("shadow", {}), ("activate", {"seen": ""})):
        do = partial(getattr(versions, act), version, by=ada)
        answer = while_it_waits(do, call, ada, "post", f"{path}{act}", said)
        assert answer.status_code == 200, answer.json()
    assert [len(told(acme, f"policy.{one}")) for one in ("shadowed", "activated")] == [1, 1]


def test_a_page_of_versions_reads_no_document(call, ada, acme):
    put_in_force(acme, ada, ASKS)
    with CaptureQueriesContext(connection) as asked:
        assert call(ada, "get", "policies?limit=1000").json()["policies"][0]["number"] == 1
    [page] = [one["sql"] for one in asked if "LIMIT 1001" in one["sql"]]
    assert '."source"' not in page


# Lists.

IBAN, OTHER = test_named_lists.IBAN, test_named_lists.OTHER
keeper = test_named_lists.keeper


@pytest.fixture
def payees(acme, ada):
    rule = {"when": "!(args.iban in lists.payees)", "approval": "MANUAL"}
    put_in_force(
        acme, ada, LETS | {"always": {"pay.*": rule}, "lists": {"payees": {"kind": "iban"}}}
    )


def test_a_list_that_another_system_keeps_is_replaced_whole_and_tells_its_history(
    call, keeper, ben, ada, acme, payees, monkeypatch
):
    asked = {"entries": [{"value": IBAN, "label": "Acme"}, {"value": OTHER}], "note": "nightly"}
    assert call(keeper, "post", "lists/nobody/replace", asked).status_code == 404
    made = call(keeper, "post", "lists/payees/replace", asked).json()
    assert (made["version"], made["entries"]) == (1, 2), "the policy names it, so it is made"
    assert call(keeper, "post", "lists/payees/replace", asked).json()["version"] == 1
    less = {"entries": [{"value": OTHER}], "version": 1}
    assert call(keeper, "post", "lists/payees/replace", less).json()["entries"] == 1
    assert call(keeper, "post", "lists/payees/replace", less).status_code == 409
    assert ListEntry.objects.get(until=None).since == 1, "what stood there already stays"
    wrong = {"entries": [{"value": "x"}]}
    assert call(keeper, "post", "lists/payees/replace", wrong).status_code == 422

    newest, first = call(keeper, "get", "lists/payees/history").json()["changes"]
    assert (first["by"], first["note"], first["added"]) == ("Kim", "nightly", 2)
    assert [one["label"] for one in newest["went"]] == ["Acme"]
    assert "went" not in call(ada, "get", "lists/payees/history").json()["changes"][0]
    seer = person("sue", team(acme, "seers", "view", "view_sensitive"))
    assert call(seer, "get", "lists/payees").json()["entries"] == 1, "as on the page"
    assert call(ben, "get", "lists/payees").status_code == 403
    monkeypatch.setattr(api, "CHANGES_TOLD_MAX", 1)
    page = call(keeper, "get", "lists/payees/history?limit=1000").json()
    assert [one["version"] for one in page["changes"]] == [2], "each with a hundred values"
    assert page["after"]


def test_a_list_is_made_once_and_of_one_kind(call, keeper):
    asked = {"name": "words", "kind": "text"}
    assert (
        call(keeper, "post", "lists", asked).json() == call(keeper, "post", "lists", asked).json()
    )
    assert call(keeper, "post", "lists", asked | {"kind": "iban"}).status_code == 422
    assert call(keeper, "post", "lists", {"name": "Not so"}).status_code == 422
    assert NamedList.objects.count() == 1


def test_a_list_is_made_as_the_policy_says(call, keeper, payees):
    assert call(keeper, "post", "lists", {"name": "payees"}).json()["kind"] == "iban"
    for kind in ({}, {"kind": "mail"}, {}):
        name = {"name": "others" if kind else "texts"}
        made = call(keeper, "post", "lists", name | kind).json()
        assert made == call(keeper, "post", "lists", name).json()
    assert [one.kind for one in NamedList.objects.order_by("name")] == ["mail", "iban", "text"]


@pytest.mark.parametrize("act", ["", "/replace"])
def test_no_token_puts_on_a_list_whom_people_are_asked_about(call, keeper, trip, payees, acme, act):
    asked = {"tool": "pay.send", "args": {"iban": OTHER}, "key": "k1"}
    assert trip.begin(**asked).json()["answer"] == "wait"
    add = {"entries" if act else "add": [{"value": OTHER}]}

    refused = call(keeper, "post", f"lists/payees{act}", add)

    assert (refused.status_code, refused.json()["approvals"]) == (409, [Approval.objects.get().pk])
    assert not ListEntry.objects.exists()
    other = {"entries" if act else "add": [{"value": IBAN}]}
    assert call(keeper, "post", f"lists/payees{act}", other).status_code == 200
    kept = NamedList.objects.get()
    added = named_lists.change(kept, by=keeper, add=[named_lists.NewEntry(OTHER)])
    assert added, "on the page a person does it"


def test_what_cannot_be_read_is_refused_in_words_and_an_account_is_taken_off_as_it_is_shown(
    call, keeper, payees
):
    put = {"add": [{"value": IBAN}, {"value": OTHER}]}
    assert call(keeper, "post", "lists/payees", put).json()["entries"] == 2
    shown = call(keeper, "get", "lists/payees").json()["items"][0]["value"]
    assert shown.startswith("⟦masked:iban")

    for wrong in ("DE89 3704", "a\0b", ""):
        refused = call(keeper, "post", "lists/payees", {"remove": [OTHER, wrong]})
        assert (refused.status_code, "cannot be read as iban" in refused.json()["detail"]) == (
            422, True,
        )  # fmt: skip
        assert "view_sensitive" not in refused.json()["detail"], "an example is no account"
    assert call(keeper, "post", "lists/payees", {"remove": [shown]}).json()["entries"] == 1

    call(keeper, "post", "lists", {"name": "words"})
    for act in ({"add": [{"value": "a\0b"}]}, {"add": [{"value": "a", "label": "\0"}]},
                {"remove": ["\ud800"]}, {"add": [{"value": "a"}], "remove": ["A"]}):  # fmt: skip
        assert call(keeper, "post", "lists/words", act).status_code == 422, act
    assert NamedList.objects.get(name="words").version == 0
    secret = {"remove": ["4111 1111 1111 1111", "Eve"]}
    assert call(keeper, "post", "lists/words", secret).json()["version"] == 0, "it stands on none"
    call(keeper, "post", "lists/words", {"add": [{"value": "Eve"}]})
    mark = ListEntry.objects.get(shown="Eve").mark
    masked = {"remove": [f"⟦masked:policy:v1:{mark}⟧"]}
    assert call(keeper, "post", "lists/words", masked).json()["entries"] == 0


def test_a_list_of_which_too_much_would_go_at_once_says_so(call, keeper, payees, monkeypatch):
    call(keeper, "post", "lists/payees", {"add": [{"value": IBAN}, {"value": OTHER}]})
    monkeypatch.setattr(named_lists, "AT_ONCE_MAX", 1)
    refused = call(keeper, "post", "lists/payees/replace", {"entries": []})
    assert (refused.status_code, "would be taken off" in refused.json()["detail"]) == (422, True)


def test_what_somebody_else_asks_about_meanwhile_is_answered_by_no_token(
    call, keeper, trip, payees, acme, ada
):
    """While it waits for its turn, the list is no longer as it saw it: its question is one then."""
    asked = {"tool": "pay.send", "args": {"iban": OTHER}, "key": "k1"}
    assert trip.begin(**asked).json()["answer"] == "wait"
    kept = named_lists.create(acme, "payees", "iban")
    named_lists.change(kept, by=keeper, add=[named_lists.NewEntry(OTHER)])

    entry, put = ListEntry.objects.get().key, {"add": [{"value": OTHER}]}
    taken_off = partial(named_lists.change, kept, by=ada, remove=[entry])
    found = while_it_waits(taken_off, call, keeper, "post", "lists/payees", put)
    assert found.status_code == 409
    assert not ListEntry.objects.filter(until=None).exists()


# Pauses.


def test_a_pause_is_placed_listed_and_lifted(call, ada, ben, acme):
    place = {"kind": "tool", "name": "mail.*", "reason": "wrong recipients"}
    made = call(ada, "post", "pauses", place).json()
    assert pauses.standing(acme.pk, tool="mail.send")
    assert made["warning"].startswith("No tool here is called “mail.*” yet"), "it may be misspelled"
    put_in_force(acme, ada, {"policies": {"mail.*": {"approval": "MANUAL"}, "pay.x": {}}})
    for name, is_known in (("mail.send", False), ("p?y.*", True), ("mail.*", True)):
        found = pauses.unknown(Pause(workspace=acme, kind="tool", name=name))
        assert (found == "") is is_known, name
    assert call(ada, "post", "pauses", place).status_code == 409
    for wrong in (
        {"kind": "tool"},
        {"kind": "tool", "name": "*" * 30},
        {"kind": "nothing"},
        {"kind": "workspace", "reason": " "},
    ):
        assert call(ada, "post", "pauses", {"reason": "x"} | wrong).status_code == 422, wrong
    [shown] = call(ben, "get", "pauses").json()["pauses"]
    assert (shown["id"], shown["by"], shown["holds_runs"]) == (made["id"], "Ada", 0)

    assert call(ada, "post", f"pauses/{made['id']}/lift", {}).json()["lifted"]
    assert call(ada, "post", f"pauses/{made['id']}/lift", {}).status_code == 409
    assert call(ben, "get", "pauses").json()["pauses"] == []


def test_what_the_desk_itself_has_stopped_no_token_lets_go_on(call, ada, acme):
    pauses.hold_for(acme, "The ledger went back.", {}, part="sealer", name=pauses.LOST)

    refused = call(ada, "post", f"pauses/{Pause.objects.get().pk}/lift", {})

    assert (refused.status_code, "on the page" in refused.json()["detail"]) == (409, True)
    assert Pause.objects.standing().exists()


# Health and proposals.


def test_what_is_proposed_is_read_with_its_dry_run_and_saved_as_any_document(
    call, ada, ben, acme, agent
):
    admin = person("una", team(acme, "admins", "view", "approve", "administer"))
    put_in_force(acme, ada, test_proposals.DOCUMENT)
    for number in range(10):
        test_proposals.approved(acme, agent, number)
    asked = call(ben, "get", "approval-health?days=500").json()
    assert (asked["days"], asked["asked"], asked["ends"]) == (90, 10, {"granted": 10})

    [listed] = call(admin, "get", "proposals").json()["proposals"]
    one = call(admin, "get", f"proposals/{listed['key']}").json()
    assert (one["kind"], one["tool"]) == ("looser", "pay.refund")
    assert "known(target)" in one["source"]
    assert one["dry_run"]["judged"] == 10
    assert call(admin, "get", "proposals/looser:nothing").status_code == 404
    said = {"source": one["source"], "note": one["words"], "after": one["newest"]}
    saved = call(admin, "post", "policies", said).json()
    assert (saved["number"], saved["in_force"]) == (2, False), "nothing loosens by itself"


def test_a_question_that_waits_is_none_of_the_health_of_answers(call, trip, ada, ben, acme):
    put_in_force(acme, ada, ASKS)
    cast.ask(trip)
    found = call(ada, "get", "approval-health").json()
    assert (found["ends"], found["rules"]) == ({"waiting": 1}, [])
    cast.agree(ben)
    assert Approval.objects.get().state == ApprovalState.GRANTED
    [rule] = call(ada, "get", "approval-health").json()["rules"]
    assert (rule["tools"], rule["granted"], rule["false_alarms"]) == ("pay.*", 1, 0)
    assert versions.in_force(acme)


def test_what_the_framework_refuses_is_a_problem_too_and_shows_no_value(client, call, ada, keeper):
    def of(answer):
        assert answer["Content-Type"] == "application/problem+json", answer.content
        told = answer.json()
        assert told["status"] == answer.status_code
        return told["status"], told["type"].removeprefix("urn:amends:problem:"), told["detail"]

    assert of(call(ada, "get", "policies/7")) == (404, "not-found", "")
    assert of(call(ada, "get", "nothing/here"))[:2] == (404, "not-found")
    assert of(client.get("/v1/metrics"))[:2] == (404, "not-found")
    nobody = (404, "not-found", "There is no list nobody.")
    assert of(call(keeper, "post", "lists/nobody", {"add": []})) == nobody
    assert of(call(ada, "delete", "pauses")) == (405, "method", "This path takes GET, POST.")
    assert of(call(ada, "get", "runs/a%0Ab/directive"))[:2] == (404, "not-found")
    assert of(client.get("/api/v1/pauses"))[:2] == (401, "key")
    assert of(call(ada, "post", "policies", "{"))[:2] == (400, "schema")
    wrong = of(call(ada, "post", "pauses", {"kind": "s3cret"}))
    assert (wrong[:2], "reason: Field required" in wrong[2]) == ((422, "schema"), True)
    assert "s3cret" not in wrong[2]
    assert of(call(ada, "get", "policies?limit=many"))[2].startswith("limit: ")
