"""The rules of a policy as a table, without JavaScript: what is posted is what it says."""

import html
import json
import re

import pytest
from django.test import Client

from approvals import rules, versions
from approvals.models import PolicyVersion
from approvals.policy import Invalid, load_new
from approvals.policy.condition_words import in_words
from approvals.policy.reading import read
from approvals.views.rule_form import split_agent
from ledger import drivers, intake
from ledger.parsed_events import Actor, ParsedEvent, new_id
from ledger.wire import read as parsed
from tests.approvals.cast import put_in_force
from tests.people import logged_in, person
from tests.worlds import kept
from workspaces import teams

NEW = "/w/acme/policies/new/"
DOCUMENT = """\
# ours
policies:
  pay.*:   # money
    - when: agent == "returns" && (args.amount > 9 || args.rush)
      approval: MANUAL
      requires: [{group: finance}, {group: leads, count: 2}, {}]
      bounded: {uses: 2, for: 1d}
      words: A refund moves money
    - {approval: AUTO}
review:
  "*": {when: unusual(args.amount), words: More than ever}
"""


@pytest.fixture
@kept
def many(finance, leads):
    """Enough people for what these rules ask."""
    person("ben", finance)
    for name in ("lena", "lou", "liz", "lars", "lee", "leo"):
        person(name, leads)


@pytest.fixture
def browser(ada):
    return logged_in(ada)


@pytest.fixture
def do(browser, many):
    """Press a button of the page, with what stands in the fields."""

    def press(act, source=DOCUMENT, **typed):
        said = {f"rule-{name}": value for name, value in typed.items()}
        page = browser.post(NEW, {"source": source, "act": act, "note": "", **said})
        text = re.search(
            r"<textarea[^>]*id=\"id_source\"[^>]*>\n(.*?)</textarea>", page.text, re.DOTALL
        )
        return page, html.unescape(text[1]) if text else ""

    return press


def fields(page):
    """What stands in the fields of the open rule."""
    found = dict(re.findall(r'<input[^>]*?name="rule-(\w+)"[^>]*?value="([^"]*)"', page))
    for name, inside in re.findall(r'<select name="rule-(\w+)".*?>(.*?)</select>', page, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected>', inside)
        found[name] = chosen[1] if chosen else ""
    found |= dict(
        re.findall(r'<textarea name="rule-(\w+)"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    )
    return {name: html.unescape(value) for name, value in found.items()}


def test_a_rule_opened_and_put_back_unchanged_leaves_the_text_as_it_was(do):
    for number in range(3):
        page, _ = do(f"open:{number}")
        typed = fields(page.text)
        _, text = do("put", **typed)
        assert text == DOCUMENT
        assert typed["at"] == str(number)


def test_a_change_keeps_what_the_form_has_no_field_for(do):
    typed = fields(do("open:0")[0].text)
    assert (typed["agent"], typed["when"]) == ("returns", "args.amount > 9 || args.rush")
    assert (typed["who_1"], typed["count_1"]) == ("team:leads", "2")

    _, text = do(
        "put", **{**typed, "who_0": "*", "count_0": "3", "words": "Much money", "agent": ""}
    )

    rule = read(text).value["policies"]["pay.*"][0]
    assert rule == {
        "when": "args.amount > 9 || args.rush",
        "approval": "MANUAL",
        "requires": [{"count": 3}, {"group": "leads", "count": 2}, {}],
        "bounded": {"uses": 2, "for": "1d"},
        "words": "Much money",
    }
    assert "# money" in text


def test_a_rule_goes_to_another_tool_moves_and_is_taken_out(do):
    typed = fields(do("open:1")[0].text)
    _, text = do("put", **{**typed, "glob": "mail.*", "section": "always", "approval": "DENY"})
    assert read(text).value["always"] == {"mail.*": {"approval": "DENY"}}
    assert len(read(text).value["policies"]["pay.*"]) == 1
    page, moved = do("down:0")
    assert [one.get("approval") for one in read(moved).value["policies"]["pay.*"]] == [
        "AUTO",
        "MANUAL",
    ]
    assert page.status_code == 200
    _, text = do("remove:2")
    assert read(text).value["review"] == {}
    assert do("remove:9")[1] == DOCUMENT


def test_a_rule_that_has_changed_meanwhile_is_told_and_nothing_typed_is_lost(do):
    typed = fields(do("open:1")[0].text) | {"words": "typed by Ada"}
    page, text = do("put", DOCUMENT.replace("{approval: AUTO}", "{approval: DENY}"), **typed)
    assert page.status_code == 422
    assert "has changed in the document since you opened it" in page.text
    assert "typed by Ada" in page.text
    assert "{approval: DENY}" in text
    page, text = do("put", DOCUMENT, **(typed | {"expires": "soon"}))
    assert (page.status_code, text) == (422, DOCUMENT)
    assert "a duration such as" in html.unescape(page.text)
    assert do("save", DOCUMENT, **typed)[0].status_code == 422
    assert not PolicyVersion.objects.exists()


def test_who_saves_past_somebody_else_is_told_once_and_keeps_what_they_wrote(browser, acme, ada):
    source = "policies: {crm.*: {approval: DENY}}\n"
    said = {"source": source, "act": "save", "note": "mine", "seen": "0"}
    versions.save(acme, "policies: {}", by=ada, note="theirs")

    told = browser.post(NEW, said)

    assert told.status_code == 409
    assert "ada saved version 1 since you began" in told.text.lower()
    assert source.strip() in told.text
    assert 'name="seen" value="1"' in told.text
    assert browser.post(NEW, said | {"seen": "1"}).status_code == 302
    assert PolicyVersion.objects.get(number=2).note == "mine"


def test_a_mistake_stands_in_its_row_and_all_others_beside_the_table():
    wrong = "policies:\n  a: [{approval: AUTO}, {approval: YES}]\nunwind: {strategy: NOW}\n"
    page = rules.of(wrong, _problems(wrong))
    (_, (good, bad)), = page.sections  # fmt: skip
    assert [one.message for one in good.problems] == []
    assert "one of AUTO, MANUAL, DENY" in bad.problems[0].message
    assert [one.path for one in page.elsewhere] == ["unwind.strategy"]
    assert rules.of("policies: [").unread


def _problems(source):
    with pytest.raises(Invalid) as found:
        load_new(source)
    return found.value.problems


def test_who_may_not_write_a_policy_reads_the_table_and_is_offered_nothing(acme, ada, leads, many):
    put_in_force(acme, ada, read(DOCUMENT).value)
    vera = logged_in(person("vera", leads))
    shown = vera.get("/w/acme/policies/").text
    assert "A refund moves money" in shown
    assert 'value="remove:0"' not in shown
    assert vera.post(NEW, {"source": DOCUMENT, "act": "remove:0"}).status_code == 403


def test_values_of_a_call_are_in_no_form_of_who_may_not_see_them(acme, ada, agent, history):
    olgas = teams.create(acme, "olgas", by=None, may=["view", "administer"])
    hidden = logged_in(person("olga", olgas))
    page = hidden.get(f"{NEW}?tool=crm.update").text
    assert "crm.update" in fields(page)["glob"]
    assert "target is new" in page
    assert "7421" not in page
    seeing = Client()
    sams = teams.create(acme, "sams", by=None, may=["view", "administer", "view_sensitive"])
    seeing.force_login(person("sam", sams))
    page = html.unescape(seeing.get(f"{NEW}?run=run_1&action=act_0").text)
    assert "“limit” is above 7421" in page
    link = "/w/acme/policies/new/?run=run_1&action=act_0"
    assert link in html.unescape(seeing.get("/w/acme/runs/run_1/").text)


@pytest.fixture
def history(acme, agent):
    """An update that an agent made."""
    actor = Actor(acme.pk, acme.slug, "agent", agent.name, agent.pk, "0123456789")
    about = {"targets": [{"type": "contact", "id": "c7"}], "args": {"limit": 7421}}
    data = {"tool": "crm.update", **about}
    event = {"id": new_id(), "type": "action.planned", "run": "run_1", "n": 0, "action": "act_0"}
    said = parsed(json.dumps({**event, "data": data}).encode(), actor)
    assert isinstance(said, ParsedEvent)
    intake.record(drivers.plain_connection(), actor, [said])


def test_a_condition_on_an_amount_says_what_it_is_in_money_where_the_preview_knows_it() -> None:
    table = rules.of(
        "tools:\n"
        "  pay.out: {preview: {kind: money, amount: args.amount, currency: args.currency}}\n"
        "policies:\n"
        "  pay.*: {when: args.amount > 1000000 && args.days < 20000, approval: MANUAL}\n"
        "  pay.out: {when: 'sum(args.amount, per: agent) >= 5', approval: MANUAL}\n"
        "  mail.send: {when: args.amount > 1000000, approval: MANUAL}\n"
    )

    (_, lines), *_ = table.sections
    assert [one.when_words.replace("\u202f", " ").replace("\xa0", " ") for one in lines] == [
        "“amount” is above 1 000 000 (10 000.00 in euros or dollars) and “days” is below 20 000",
        "the sum of “amount” per agent is at least 5 (0.05 in euros or dollars)",
        "“amount” is above 1 000 000",
    ]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("args.amount > 100 && !known(target)", "“amount” is above 100 and target is new"),
        ('a == "x" || b && c', 'a is "x" or (b and c)'),
        ("!(args.iban in lists.payees)", "not (“iban” is on the list payees)"),
        ('known(args.to, by: agent, for: "7d")', "“to” is known to this agent for 7d"),
        ("!looked_up(args.to, by: ['a.*', \"b\"])", "“to” was not looked up by a.*, b"),
        ('looked_up(args.to, by: "a.*")', "“to” was looked up by a.*"),
        ('!looked_up(args.to, by: "a", or: mentioned)', "“to” was not looked up by a or mentioned"),
        ('sum(args.n, per: person, over: "1d") > 5', "the sum of “n” per person in 1d is above 5"),
        ("!args.force", "not “force”"),
        ('!args.to.contains("x")', '“to” does not contain "x"'),
        *(
            (one, one)
            for one in ("a ? b : c", "args.x + 1 > 2", "!count(per: a) > 2", "(a", "f(1)")
        ),
        ('called("x") > 2', 'called("x") > 2'),
    ],
)
def test_a_condition_is_said_in_words_or_as_it_is_written(condition, words):
    assert in_words(condition) == words


@pytest.mark.parametrize(
    ("when", "parts"),
    [
        ('agent == "a" && x', ("a", "x")),
        ('agent == "a"', ("a", "")),
        ('agent == "a" && (x || y)', ("a", "x || y")),
        ('agent == "a" && x || y', ("", 'agent == "a" && x || y')),
        ('agent == "a" && (x) || (y)', ("", 'agent == "a" && (x) || (y)')),
    ],
)
def test_the_agent_is_taken_out_of_a_condition_only_where_that_changes_nothing(when, parts):
    assert split_agent(when) == parts


# What holds for all rules.


def all_fields(page, of="all"):
    """What stands in the fields for all rules, or in those of a tool."""
    found = dict(re.findall(rf'<input[^>]*?name="{of}-(\w+)"[^>]*?value="([^"]*)"', page))
    selects = re.findall(rf'<select name="{of}-(\w+)".*?>(.*?)</select>', page, re.DOTALL)
    for name, inside in selects:
        chosen = re.search(r'<option value="([^"]*)" selected>', inside)
        found[name] = chosen[1] if chosen else ""
    found |= dict(
        re.findall(rf'<textarea name="{of}-(\w+)"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    )
    return {name: html.unescape(value) for name, value in found.items()}


FULL = """\
unknownTools: ASK
hours: {zone: Europe/Berlin, from: "08:00", to: "18:00"}   # who is there
breakGlass: {}
lists:
  payees: {kind: iban, words: Whom we pay}
policies:
  pay.*:
    when: "!working_hours"
    risk: HIGH
    approval: MANUAL
    requires: [{group: finance}, {group: leads}, {count: 2}, {group: leads}]
    expires: 2h
    bounded: {uses: 9, for: 1d, amount: args.amount, each: 10, sum: 50, same: [args.currency],
      listed: args.iban in lists.payees}
    escalate: {after: 30m, group: leads}
    compensation: REFUND
    verify: PERSON
    selfApproval: false
"""


def test_whatever_a_rule_says_has_a_field_and_comes_back_as_it_was(do):
    page, _ = do("open:0", FULL)
    typed = fields(page.text)
    assert {name: typed[name] for name in ("bounded_each", "bounded_same", "who_2", "who_3")} == {
        "bounded_each": "10", "bounded_same": "args.currency", "who_2": "*", "who_3": "team:leads",
    }  # fmt: skip
    assert typed["who_4"] == ""
    assert do("put", FULL, **typed)[1] == FULL

    said = {"escalate_after": "1h", "bounded_uses": "3", "who_4": "team:leads", "verify": ""}
    text = do("put", FULL, **(typed | said))[1]

    rule = read(text).value["policies"]["pay.*"]
    assert rule["escalate"] == {"after": "1h", "group": "leads"}
    assert (rule["bounded"]["uses"], rule["bounded"]["sum"]) == (3, 50)
    assert rule["requires"][4] == {"group": "leads"}
    assert "verify" not in rule


def test_somebody_else_is_asked_too_and_what_was_typed_stays(do):
    typed = fields(do("add", FULL)[0].text) | {"glob": "x", "who_0": "team:leads", "words": "Why"}
    page, text = do("people", FULL, **typed)
    again = fields(page.text)
    assert (again["glob"], again["who_0"], again["words"]) == ("x", "team:leads", "Why")
    assert "who_2" in again
    assert "who_2" not in typed
    assert (text, page.status_code) == (FULL, 200)


MISTAKES = [
    ({"escalate_after": "soon", "escalate_group": "leads"}, "escalate_after"),
    ({"escalate_after": "1h"}, "escalate_group"),
    ({"bounded_uses": "3"}, "bounded_for"),
    ({"bounded_uses": "0", "bounded_for": "1d"}, "bounded_uses"),
    ({"approval": "AUTO", "escalate_after": "1h", "escalate_group": "leads"}, "escalate_after"),
    ({"section": "review", "bounded_uses": "3"}, "bounded_uses"),
    ({"section": "always", "approval": ""}, "approval"),
    ({"affected_words": "May we?"}, "affected"),
    ({"who_1": "", "count_1": "3"}, "who_1"),
]


def test_a_mistake_stands_at_its_field_and_the_document_as_it_was(do, subtests):
    begun = fields(do("add", FULL)[0].text)
    for said, field in MISTAKES:
        page, text = do("put", FULL, **begun | {"glob": "x", "when": "args.a > 1", **said})
        told = re.findall(
            r'<select[^>]*aria-invalid="true"[^>]*|<[it]\w+[^>]*aria-invalid="true"', page.text
        )
        with subtests.test(field=field, said=said):
            assert (page.status_code, text) == (422, FULL)
            assert any(f'name="rule-{field}"' in one for one in told), told


def test_what_holds_for_all_rules_is_set_beside_them(do, browser, ada):
    page, _ = do("settings", FULL)
    typed = all_fields(page.text)
    assert (typed["hours_zone"], typed["glass"], typed["list_name_0"]) == (
        "Europe/Berlin", "yes", "payees",
    )  # fmt: skip
    put = {f"all-{name}": value for name, value in typed.items()}
    form = {"source": FULL, "act": "settings_put", "note": ""}
    page = browser.post(NEW, form | put)
    assert html.escape(FULL) in page.text

    said = {"all-hours_to": "17:00", "all-glass_group": "leads", "all-probation": "1h",
            "all-list_name_1": "partners", "all-list_kind_1": "domain",
            "all-list_entries_1": "example.org\r\n*.example.net"}  # fmt: skip
    page = browser.post(NEW, form | put | said)
    text = html.unescape(page.text)
    assert "# who is there" in text
    assert "breakGlass: {group: leads}" in text
    assert "partners: {kind: domain, entries: [example.org, '*.example.net']}" in text
    assert "probation: 1h" in text

    page = browser.post(NEW, form | put | {"all-hours_zone": "Mars", "all-probation": "99d"})
    assert page.status_code == 422
    assert html.escape(FULL) in page.text
    assert "no time zone that is known here" in page.text
    assert browser.post(NEW, form | put | {"act": "save"}).status_code == 422
    assert not PolicyVersion.objects.exists()


TOOLS = """\
policies: {}
tools:
  # read by nobody else
  mail.read:
    {class: read_only, reads_untrusted: true, sensitivity: {tool: internal, ssn: restricted}}
  pay.refund: {class: external_irreversible, preview: {kind: money, amount: args.amount}}   # money
"""


def test_the_catalogue_stands_beside_the_rules_and_is_changed_there(do, browser):
    page, _ = do("check", TOOLS)
    assert "read only, reads what strangers wrote, internal" in page.text
    for at in range(2):
        typed = all_fields(do(f"tool_open:{at}", TOOLS)[0].text, of="tool")
        put = {f"tool-{name}": value for name, value in typed.items()}
        form = {"source": TOOLS, "act": "tool_put", "note": ""}
        assert html.escape(TOOLS) in browser.post(NEW, form | put).text
    assert (typed["class"], typed["preview_amount"]) == ("external_irreversible", "args.amount")

    changed = html.unescape(browser.post(NEW, form | put | {"tool-risk": "high"}).text)
    assert "preview: {kind: money, amount: args.amount}, risk: high}   # money" in changed
    renamed = html.unescape(browser.post(NEW, form | put | {"tool-glob": "pay.*"}).text)
    assert "pay.*: {class: external_irreversible" in renamed
    for wrong in ({"tool-glob": "mail.read"}, {"tool-preview_amount": "args..x"},
                  {"tool-sensitive": "ssn: much"}, {"tool-was": "another"}):  # fmt: skip
        refused = browser.post(NEW, form | put | wrong)
        assert refused.status_code == 422, wrong
        assert html.escape(TOOLS) in refused.text
        assert "This is no tool yet." in refused.text
    gone = html.unescape(do("tool_remove:0", TOOLS)[0].text)
    assert "pay.refund: {class" in gone
    assert "\n  mail.read" not in gone
    added = all_fields(do("tool_add", TOOLS)[0].text, of="tool") | {"glob": "x.*", "class": "draft"}
    put = {f"tool-{name}": value for name, value in added.items()}
    assert "x.*: {class: draft}" in html.unescape(browser.post(NEW, form | put).text)
    assert browser.post(NEW, form | put | {"act": "save"}).status_code == 422


TWINS = """\
policies: {}
twins:
  pay.refund: {connection: bank, operation: take_back, args: {id: target.id}}   # money
  crm.*:
    - {target: note, connection: crm, operation: delete, args: {id: target.id}}
    - {connection: crm, operation: restore, args: {row: before, kept: [1]}}
"""


def test_how_calls_are_undone_stands_there_too(do, browser):
    page, _ = do("check", TWINS)
    assert "of note: crm.delete" in page.text
    for at in range(3):
        typed = all_fields(do(f"twin_open:{at}", TWINS)[0].text, of="twin")
        put = {f"twin-{name}": value for name, value in typed.items()}
        form = {"source": TWINS, "act": "twin_put", "note": ""}
        assert html.escape(TWINS) in browser.post(NEW, form | put).text
    assert (typed["connection"], typed["args"]) == ("crm", "row: before")

    changed = browser.post(NEW, form | put | {"twin-args": "row: before.row", "twin-words": "Back"})
    text = html.unescape(changed.text)
    assert "operation: restore, args: {row: before.row, kept: [1]}, words: Back}" in text
    assert "# money" in text
    for name, wrong in {
        "args": "row: before..x", "probe_operation": "find", "target": "note", "was": "other",
    }.items():  # fmt: skip
        refused = browser.post(NEW, form | put | {f"twin-{name}": wrong})
        assert refused.status_code == 422, name
        assert html.escape(TWINS) in refused.text
        assert "This is no twin yet." in refused.text
    added = all_fields(do("twin_add", TWINS)[0].text, of="twin") | {
        "glob": "mail.send", "connection": "", "operation": "recall",
    }  # fmt: skip
    put = {f"twin-{name}": value for name, value in added.items()}
    assert browser.post(NEW, form | put).status_code == 422
    assert "mail.send" not in html.unescape(do("twin_remove:0", TWINS)[0].text)
    assert "take_back" not in html.unescape(do("twin_remove:0", TWINS)[0].text)
