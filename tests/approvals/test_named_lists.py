"""Named lists: thousands of values that conditions ask about, each change a version of its own."""

import json

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import named_lists
from approvals.models import Approval, ListChange, ListEntry, NamedList
from approvals.policy import Invalid, load, load_new
from approvals.policy.named_lists import WantedValue, normal
from config import sealed
from ledger import logkeys
from ledger.models import Event
from tests.approvals import cast
from tests.approvals.cast import put_in_force, told
from tests.people import person, team
from tests.worlds import kept
from workspaces import keys
from workspaces.free_text import InvalidInput
from workspaces.models import opened_masking_key

pytestmark = pytest.mark.django_db(transaction=True)
trip = cast.trip

IBAN, OTHER = "DE89 3704 0044 0532 0130 00", "GB82 WEST 1234 5698 7654 32"
LISTS = {
    "payees": {"kind": "iban", "words": "Whom we pay"},
    "partners": {"kind": "domain", "entries": ["example.org", "*.example.net"]},
    "blocked": {"kind": "mail"},
    "words": ["Rent", "Wages"],
}


@pytest.fixture
@kept
def keeper(acme):
    return person("kim", team(acme, "keepers", "view", "edit_lists"))


@pytest.fixture
def obey(acme, ada):
    def say(**rules):
        always = {"pay.*": [{"approval": "MANUAL", **rules}]}
        put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "AUTO"}}, "always": always,
                                 "lists": LISTS})  # fmt: skip

    return say


@pytest.fixture
def payees(acme, keeper):
    kept = named_lists.create(acme, "payees", "iban")
    put(kept, keeper, IBAN)
    return kept


def put(kept, by, *texts, **more):
    add = [named_lists.NewEntry(one) for one in texts]
    return named_lists.change(kept, by=by, add=add, **more)


def pay(trip, key, **args):
    asked = {"tool": "pay.send", "args": args, "key": key, "action": key, "attempt": f"try-{key}"}
    return trip.begin(**asked).json()


def test_who_stands_on_the_list_is_paid_and_a_card_says_which_version_of_it_was_looked_at(
    trip, obey, acme, payees, keeper
):
    obey(when="!(args.iban in lists.payees)", words="Nobody that we pay")
    assert pay(trip, "k1", iban="de89370400440532013000")["answer"] == "proceed", "in any spelling"
    assert pay(trip, "k2", iban=OTHER)["answer"] == "wait"
    assert pay(trip, "k3", amount=1)["answer"] == "wait", (
        "an account that is not told is asked about"
    )

    [card] = Approval.objects.filter(action__action="k2")
    payees.refresh_from_db()
    fact = f"args.iban is not on the list payees, version 1 ({payees.digest[:12]})"
    assert card.rules[0]["facts"] == [fact], "and the approval's digest binds it"

    put(payees, keeper, OTHER)
    assert pay(trip, "k4", iban=OTHER)["answer"] == "proceed", "at once, without a restart"
    [entry] = ListEntry.objects.filter(since=1)
    named_lists.change(payees, by=keeper, remove=[entry.key], note="left us")
    assert pay(trip, "k5", iban=IBAN)["answer"] == "wait"
    assert [one["version"] for one in told(acme, "list.changed")] == [1, 2, 3]
    assert "DE89" not in json.dumps(told(acme, "list.changed")), "the ledger names no entry"


def test_where_the_masking_key_was_lost_nothing_is_missing_until_entries_are_put_on_anew(
    trip, obey, acme, payees, keeper, client, settings
):
    """Who was blocked was paid."""
    obey(when="args.iban in lists.payees", approval="DENY")
    assert pay(trip, "k1", iban=IBAN)["answer"] == "denied"
    assert pay(trip, "k2", iban=OTHER)["answer"] == "proceed"
    settings.AMENDS_SECRET_KEYS = [Fernet.generate_key().decode()]
    forget()

    assert sealed.replace_lost(acme) == [sealed.MASKING]

    assert pay(trip, "k3", iban=IBAN)["answer"] == "denied"
    assert pay(trip, "k4", iban=OTHER)["answer"] == "denied"
    client.force_login(keeper)
    page = "/w/acme/policies/lists/payees/"
    assert "is lost" in client.get(page).text
    [entry] = ListEntry.objects.filter(until=None)
    named_lists.change(payees, by=keeper, remove=[entry.key])
    put(payees, keeper, IBAN)
    assert pay(trip, "k5", iban=IBAN)["answer"] == "denied"
    assert pay(trip, "k6", iban=OTHER)["answer"] == "proceed"
    assert "is lost" not in client.get(page).text
    forget()


def forget():
    for opened in (logkeys._private, opened_masking_key):
        opened.cache_clear()


def test_addresses_stand_for_their_domains_and_each_of_several_has_to_be_there(trip, obey):
    obey(when="!(args.to in lists.partners)")
    assert pay(trip, "k1", to="Eve <EVE@Example.ORG>")["answer"] == "proceed"
    assert pay(trip, "k2", to=["a@example.org", "b@mail.example.net"])["answer"] == "proceed"
    assert pay(trip, "k4", to="Eve (Sales) <eve@example.org>")["answer"] == "proceed"
    assert pay(trip, "k3", to="https://example.org/x?y=@evil.test")["answer"] == "proceed"
    for number, to in enumerate(
        ["eve@example.org.evil.test", "a@example.net", "a@example.org, b@evil.test",
         "https://example.org@evil.test/", "example.оrg", ["a@example.org", 7], "",
         "evil.test/@example.org", "evil.test?x=a@example.org", "evil.test#@example.org",
         "https://evil.test\\@example.org/", "https://example.org/ https://evil.test/",
         "https://example.org／.evil.test/", "example.org/ evil.test",
         "javascript://example.org/%0aalert(1)", "data://example.org/x",
         "(" * 5_000 + "a@example.org", "a@example.org(b@evil.test", "(b@evil.test)a@example.org"]
    ):  # fmt: skip
        assert pay(trip, f"no-{number}", to=to)["answer"] == "wait", to


def test_names_that_newer_rules_for_hosts_tell_apart_are_not_taken_for_one_another():
    assert normal("domain", "fass.example") == "fass.example"
    assert normal("domain", "faß.example") == normal("mail", "eve@faß.example") == ""
    assert normal("domain", "BÜCHER.example.") == "xn--bcher-kva.example"


def test_what_the_policy_masks_in_its_own_way_is_found_by_its_mark_and_never_said_to_be_missing(
    trip, acme, ada, keeper
):
    blocked = named_lists.create(acme, "blocked", "mail")
    put(blocked, keeper, "eve@example.com")
    put_in_force(acme, ada, {
        "lists": LISTS, "audit": {"mask": ["args.to"]},
        "policies": {"pay.*": [{"approval": "AUTO"},
                               {"when": "args.to in lists.blocked", "approval": "DENY"}]},
    })  # fmt: skip
    assert pay(trip, "k1", to="eve@example.com")["code"] == "rule"
    assert pay(trip, "k2", to="EVE@example.com")["code"] == "rule", (
        "it may be she, spelled otherwise"
    )


def test_a_list_that_is_not_there_is_refused_with_its_place():
    says = {
        "args.iban in lists.payes": "there is no list “payes”; did you mean payees?",
        "lists.payees.size() > 1": "a list is asked about as in",
        "[args.iban] in lists.payees": "a list is asked about as in",
        "args.all(a, a.iban in lists.payees)": "a list in a loop",
        "mentioned(args.x in lists.payees)": "lists",
    }
    for when, words in says.items():
        document = {"policies": {"*": {"when": when, "approval": "MANUAL"}}, "lists": LISTS}
        with pytest.raises(Invalid, match=words) as found:
            load_new(document)
        assert 'policies."*".when' in str(found.value)


def test_a_list_is_declared_as_it_can_be_kept():
    says: dict[str, dict[str, object]] = {
        "one of text, mail, domain, iban, card": {"payees": {"kind": "ibans"}},
        "on the page of the list": {"payees": {"kind": "iban", "entries": [IBAN]}},
        "small letters": {"Payees": []},
        "cannot be read as mail": {"mails": {"kind": "mail", "entries": ["eve"]}},
        "did you mean kind": {"mails": {"kinds": "mail"}},
    }
    for words, lists in says.items():
        with pytest.raises(Invalid, match=words):
            load_new({"policies": {}, "lists": lists})


def test_many_are_pasted_at_once_each_is_kept_once_and_a_call_reads_none_but_its_own(
    trip, obey, acme, keeper, client
):
    obey(when="!(args.for in lists.words)")
    client.force_login(keeper)
    lines = "\n".join(f"purpose {number}; label {number}" for number in range(4_000))
    url = "/w/acme/policies/lists/words/"
    assert client.post(f"{url}change/", {"entries": f"{lines}\nPurpose 7"}).status_code == 302
    kept = NamedList.objects.get(name="words")
    assert (kept.count, kept.version) == (4_000, 1)

    page = client.get(f"{url}?q=PURPOSE 3999").content.decode()
    assert "purpose 3999" in page
    assert "label 3999" in page
    assert page.count('name="remove"') == 1
    assert pay(trip, "k1", **{"for": "Purpose  17"})["answer"] == "proceed"
    assert pay(trip, "k2", **{"for": "rent"})["answer"] == "proceed", "of the document itself"
    assert pay(trip, "k3", **{"for": "purpose"})["answer"] == "wait"

    policy = load({"policies": {"*": {"when": "args.for in lists.words"}}, "lists": LISTS})
    assert not policy.named_lists["words"].entries & {str(one.key) for one in kept.entries.all()}
    sql, values = named_lists.look(acme.pk, "words", [WantedValue(["x" * 32])])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE approvals_listentry")
        cursor.execute("EXPLAIN " + sql.replace("%b", "%s"), values)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan on approvals_listentry" not in plan


def test_it_has_its_own_permission_and_its_own_history(
    acme, ada, ben, keeper, payees, client, obey
):
    obey()
    url = "/w/acme/policies/lists/payees/"
    client.force_login(ben)
    assert client.post(f"{url}change/", {"entries": OTHER}).status_code == 403
    assert client.post("/w/acme/policies/lists/", {"name": "x", "kind": "text"}).status_code == 403

    client.force_login(keeper)
    assert client.post(f"{url}change/", {"entries": f"{OTHER}; Acme Ltd", "note": "new supplier"})
    page = client.get(url).content.decode()
    assert "Version 2: 1 on" in page
    assert "new supplier" in page
    assert "Kim" in page
    assert "Acme Ltd" in page
    assert "WEST" not in page, "an account is kept by its mark alone"
    assert "Acme Ltd" in client.get(f"{url}?q={OTHER.lower()}").content.decode()
    wrong = client.post(f"{url}change/", {"entries": f"{OTHER}\nDE89 3704 0044 0532 0130 01"})
    assert wrong.status_code == 422
    assert "line 2" in wrong.content.decode()

    chosen = ListEntry.objects.get(since=2)
    none = client.post(f"{url}change/", {"act": "remove", "version": "2"})
    assert none.status_code == 422
    assert "Choose in the list what is to be taken off" in none.content.decode()
    stale = client.post(f"{url}change/", {"remove": chosen.key, "version": "1"})
    assert stale.status_code == 422
    assert "meanwhile" in stale.content.decode()
    off = client.post(f"{url}change/", {"remove": chosen.key, "version": "2"}, follow=True)
    assert "Version 3: 1 off. Rules go by it from now on." in off.text
    assert not ListEntry.objects.filter(list=payees, until=None, since=2).exists()
    changes = ListChange.objects.order_by("pk").values_list("added", "removed")
    assert list(changes) == [(1, 0), (1, 0), (0, 1)]
    index = client.get("/w/acme/policies/lists/").content.decode()
    assert "Whom we pay" in index
    assert "partners" in index


def test_a_long_history_is_shown_with_as_many_looks_as_a_short_one(acme, keeper, payees, client):
    words = named_lists.create(acme, "words", "text")
    client.force_login(keeper)

    def looks(url):
        client.get(url)
        with CaptureQueriesContext(connection) as asked:
            client.get(url)
        return len(asked)

    put(words, keeper, "one", "two")
    short = looks("/w/acme/policies/lists/words/"), looks("/w/acme/policies/lists/")
    for number in range(20):
        put(words, keeper, *[f"{number} {one}" for one in range(60)])
        gone = ListEntry.objects.filter(list=words, until=None).latest("pk")
        named_lists.change(words, by=keeper, remove=[gone.key])
    assert short == (looks("/w/acme/policies/lists/words/"), looks("/w/acme/policies/lists/"))
    page = client.get("/w/acme/policies/lists/words/").content.decode()
    assert "+ <code>19 49</code>" in page
    assert "− <code>19 59</code>" in page
    assert "And more." in page


def test_a_token_of_a_person_reads_and_changes_it_as_the_page_does(
    acme, keeper, ben, payees, client
):
    def ask(who, method, body=None, path="/api/v1/lists/payees"):
        _, token = keys.create_token(acme, by=who, name="script")
        headers = {"authorization": f"Bearer {token}"}
        data = {"data": json.dumps(body), "content_type": "application/json"} if body else {}
        return getattr(client, method)(path, headers=headers, **data)

    assert ask(ben, "get", path="/api/v1/lists").json()["lists"][0]["entries"] == 1
    assert ask(ben, "get").status_code == 403
    made = ask(keeper, "post", {"add": [{"value": OTHER, "label": "Acme"}], "remove": [IBAN]})
    assert (made.json()["version"], made.json()["entries"]) == (2, 1)
    assert ask(keeper, "post", {"add": [{"value": IBAN}], "version": 1}).status_code == 409
    assert ask(keeper, "post", {"add": [{"value": "x"}]}).status_code == 422
    [entry] = ask(keeper, "get").json()["items"]
    assert (entry["label"], entry["value"].startswith("⟦masked:iban:v1:")) == ("Acme", True)


def test_a_grant_may_be_for_what_stands_on_a_list_and_is_never_wider_than_when_it_was_given(
    trip, obey, payees, keeper, cleo
):
    from approvals.gate import bounded_grants

    put(payees, keeper, OTHER)
    late = "FR14 2004 1010 0505 0001 3M02 606"
    obey(bounded={"uses": 5, "for": "1d", "listed": "args.iban in lists.payees"})
    assert pay(trip, "k1", iban=IBAN)["answer"] == "wait"
    [card] = Approval.objects.all()
    terms = {"uses": "5", "hours": "2", "target": "list"}
    grant = bounded_grants.approve_with_more(
        card, by=cleo, seen=card.digest, typed=terms, reason="payday"
    )
    assert ["On", "what stood on the list payees in version 2, and still does"] in (
        grant.previews[0]["rows"]
    )
    assert pay(trip, "k2", iban=OTHER)["answer"] == "proceed"
    put(payees, keeper, late)
    assert pay(trip, "k3", iban=late)["answer"] == "wait", "it was put on the list since"
    [gone] = ListEntry.objects.filter(since=2)
    named_lists.change(payees, by=keeper, remove=[gone.key])
    assert pay(trip, "k4", iban=OTHER)["answer"] == "wait", "it was taken off since"
    put(payees, keeper, OTHER)
    assert pay(trip, "k5", iban=OTHER)["answer"] == "wait", "and put back by somebody else's word"
    assert Event.objects.filter(type="approval.drawn").count() == 1


def test_a_value_is_compared_in_the_form_of_its_kind():
    for kind, text, form in (
        ("iban", "de89-3704 0044 0532 0130 00", "DE89370400440532013000"),
        ("iban", "DE89 3704 0044 0532 0130 01", ""),
        ("card", "4242 4242 4242 4242", "4242424242424242"),
        ("card", "4242 4242 4242 4243", ""),
        ("mail", "Eve <Eve@BÜCHER.example>", "eve@xn--bcher-kva.example"),
        ("mail", "Eve (at home) <eve@example.org>", "eve@example.org"),
        ("mail", "<eve@example.org> (evil@evil.test", ""),
        ("mail", "<eve@example.org> (\\)evil@evil.test)", ""),
        ("mail", "Eve <eve@Example.org.>", "eve@example.org"),
        ("mail", '"eve"@example.org', ""),
        ("mail", "e\\ve@example.org", ""),
        ("mail", "eve\u200b@example.org", ""),
        ("domain", "https://user@Example.org:8443/a", "example.org"),
        ("domain", "*.Example.org.", "*.example.org"),
        ("text", "  Ｒent\t of May ", "rent of may"),
    ):
        assert normal(kind, text) == form


def test_no_card_number_is_kept_on_a_list_of_another_kind(acme, keeper):
    kept = named_lists.create(acme, "things", "text")
    with pytest.raises(InvalidInput, match="kind card alone"):
        put(kept, keeper, "4242 4242 4242 4242")
    with pytest.raises(InvalidInput):
        named_lists.change(kept, by=keeper, add=[named_lists.NewEntry("x", "4242424242424242")])
