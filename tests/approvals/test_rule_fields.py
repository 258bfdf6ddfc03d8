"""Whatever a document can say stands in a field, and back: nothing is lost between the two."""

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from approvals import rules
from approvals.policy import Invalid, editing, load, load_new, loading
from approvals.policy.decisions import COMPENSATIONS, VERIFIES
from approvals.policy.form import Form
from approvals.policy.reading import read
from approvals.views import settings_form
from approvals.views.catalogue_form import ToolForm, TwinForm

GROUPS = st.sampled_from(["finance", "leads", "ärzte: süd", "*", "2"])
TIMES = st.sampled_from(["30m", "1d", "90s", " 2h "])
SAID = st.sampled_from(["No: “never”", "two\nlines", "- dash", "yes", " # none ", "12", "null"])


def some(needed=None, **optional):
    return st.fixed_dictionaries(needed or {}, optional=optional)


NEEDS = st.lists(some(group=GROUPS, count=st.integers(2, 10)), min_size=1, max_size=24)
BOUNDED = some(
    {"uses": st.integers(1, 1000), "for": TIMES},
    amount=st.just("args.amount"), each=st.integers(1, 10**15), sum=st.integers(1, 10**15),
    same=st.lists(st.sampled_from(["args.a", "args.b.c"]), min_size=1, max_size=3),
    listed=st.just("args.iban in lists.payees"),
)  # fmt: skip
RULES = some(
    when=st.sampled_from(["args.amount > 100", "working_hours", 'tool == "a # b" ', "a\n&& b"]),
    risk=st.sampled_from(["LOW", "HIGH", "CRITICAL"]),
    approval=st.sampled_from(["AUTO", "MANUAL", "DENY"]),
    requires=NEEDS, expires=TIMES, words=SAID, bounded=BOUNDED,
    compensation=st.sampled_from(COMPENSATIONS), verify=st.sampled_from(VERIFIES),
    selfApproval=st.booleans(), escalate=some({"after": TIMES, "group": GROUPS}),
    askAffected=st.one_of(st.sampled_from([True, {"must": True}]),
                          some({"words": SAID}, must=st.sampled_from([True]))),
)  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5),
    st.lists(st.one_of(st.integers(), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.sampled_from(["must", "group", "uses", "x"]), st.integers(), max_size=2),
)  # fmt: skip
MISTAKEN = st.dictionaries(st.sampled_from([*loading.RULE_FIELDS, "aproval"]), ODD, max_size=6)


def typed(fields):
    """As a form gives it back: each text by itself, the ends of its lines as browsers say."""
    return {name: value.strip().replace("\n", "\r\n") for name, value in fields.items()}


def tidy(value):
    """What may differ after a way through a form: what stood around a text."""
    if isinstance(value, dict):
        return {name: tidy(one) for name, one in value.items()}
    if isinstance(value, list):
        return [tidy(one) for one in value]
    return value.strip() if isinstance(value, str) else value


def lists_of(document):
    """Each with its entries under their name, in no order."""
    given = tidy(document.get("lists") or {})
    return {name: {"entries": one} if isinstance(one, list) else one for name, one in given.items()}


@settings(max_examples=50, deadline=None)
@given(rule=st.one_of(RULES, MISTAKEN))
def test_a_rule_that_is_opened_and_put_back_is_the_rule_even_with_its_mistakes(rule):
    assert rules.entry_of(rule, typed(rules.fields_of(rule))) == rule


@settings(max_examples=50, deadline=None)
@given(old=RULES, new=RULES)
def test_from_any_rule_the_fields_lead_to_any_other(old, new):
    beyond = old.get("requires", [])[rules.PLACES_MAX :]
    wanted = {**new, "requires": [*new.get("requires", [])[: rules.PLACES_MAX], *beyond]}
    found = rules.entry_of(old, typed(rules.fields_of(new)))
    assert tidy(found | {"requires": found.get("requires", [])}) == tidy(wanted)


def test_every_name_that_a_document_knows_has_a_field(monkeypatch):
    inside: set[str] = set()
    read_mapping = Form.mapping

    def mapping(form, value, path, known=None):
        inside.update(f"{path[-1]}.{name}" for name in known or () if len(path) in (1, 3))
        return read_mapping(form, value, path, known)

    monkeypatch.setattr(Form, "mapping", mapping)
    rule: dict[str, Any] = {name: {} for name in ("bounded", "escalate", "askAffected")}
    with pytest.raises(Invalid):
        load({"policies": {"*": rule}, **{name: {} for name in loading.SECTIONS[3:]}})
    members = {path.partition(".")[0] for path in rules.FIELDS.values()} | {"requires"}
    assert members == set(loading.RULE_FIELDS)
    sections = {path.partition(".")[0] for path in settings_form.PATHS.values()} | {"lists"}
    tables = {*editing.SECTIONS, *editing.CATALOGUES}
    assert sections | tables == set(loading.SECTIONS)
    fields = {*rules.FIELDS.values(), *settings_form.PATHS.values()}
    assert inside - fields == {"autoCompensation.enabled", "unwind.strategy"}


DAYS = st.lists(st.sampled_from(["mon", "Tue", "sun"]), min_size=1, max_size=3)
RISKS = st.sampled_from(["LOW", "MEDIUM", "HIGH", "CRITICAL"])
ALL = some(
    unknownTools=st.sampled_from(["ASK", "ALLOW"]), selfApproval=st.booleans(),
    verify=st.just("PERSON"),
    signedFrom=RISKS, order=st.sampled_from(["WARN", "ASK", "DENY"]), probation=TIMES,
    stuckAfter=TIMES, expires=some({"action": TIMES}, plan=TIMES),
    due=some({"low": TIMES}, high=TIMES),
    hours=some({"from": st.just("08:00"), "to": st.just("17:30")}, zone=st.just("Europe/Berlin"),
               days=DAYS, closed=st.just(["2026-12-25", "2026-12-26"])),
    breakGlass=some(group=GROUPS, after=TIMES, upTo=RISKS),
    unwind=some({"strategy": st.just("LIFO")}, timeout=TIMES,
                onCompensationFailure=st.just("HALT")),
    audit=some({"retention": TIMES}, captureIntent=st.booleans(), captureSnapshot=st.booleans(),
               mask=st.just(["args.card.*", "result.x"]), showLast4=st.booleans()),
    autoCompensation=st.one_of(
        st.booleans(),
        some({"enabled": st.booleans(), "tools": st.just(["crm.*"])}, publish=st.booleans())),
    lists=st.dictionaries(
        st.sampled_from(["payees", "domains", "x_1"]),
        st.one_of(st.lists(st.sampled_from(["a.b", "c, d"]), min_size=1, max_size=2),
                  some({"kind": st.sampled_from(["mail", "iban"])}, words=SAID,
                       entries=st.just(["a@b.c", "d@e.f"]))),
        min_size=1, max_size=3),
)  # fmt: skip
OTHERS = some(
    policies=st.just({"pay.*": {"approval": "MANUAL"}}), tools=st.just({"a": {"risk": "LOW"}})
)
STYLES = [
    json.dumps,
    lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    lambda value: "# ours\n" + yaml.safe_dump(value, sort_keys=False) + "# end\n",
    lambda value: "---\n" + yaml.safe_dump(value, default_flow_style=None, width=60),
    lambda value: yaml.safe_dump({"agentSafety": value}, allow_unicode=True, indent=4),
]


@settings(max_examples=15, deadline=None)
@given(value=st.tuples(ALL, OTHERS), style=st.sampled_from(STYLES), data=st.data())
def test_what_holds_for_all_rules_goes_into_fields_and_back_into_the_text(value, style, data):
    said, rest = value
    source = style(json.loads(json.dumps({**said, **rest, "stuckAfter": "10m"})))
    own = editing.document_of(source)
    assert settings_form.changes(own, typed(settings_form.fields_of(own))) == {}

    new = data.draw(ALL)
    changed = settings_form.changes(own, typed(settings_form.fields_of(new)))
    edited = editing.with_settings(source, changed)

    found = editing.document_of(edited.source)
    assert {name: found.get(name) for name in rest} == rest
    again, wanted = (typed(settings_form.fields_of(one)) for one in (found, new))
    assert {name: again[name] for name in settings_form.SETTINGS} == {
        name: wanted[name] for name in settings_form.SETTINGS
    }
    assert lists_of(found) == lists_of(new)
    if source.startswith("# ours") and found:
        assert edited.lost == ()


def test_a_setting_is_changed_where_it_stands_and_every_comment_stays():
    source = (
        '# ours\nhours:   # when we are there\n  from: "08:00"   # early\n  to: "17:00"\n'
        "breakGlass: {}  # two administrators\npolicies: {}\n"
    )  # fmt: skip
    said = settings_form.fields_of(editing.document_of(source))
    changed = settings_form.changes(
        editing.document_of(source),
        said | {"hours_to": "18:00", "glass_after": "5m", "verify": "PERSON"},
    )
    edited = editing.with_settings(source, changed)
    assert edited.lost == ()
    expected = source.replace('"17:00"', "'18:00'").replace("{}  # two", "{after: 5m}  # two")
    assert edited.source == expected + "verify: PERSON\n"
    back = settings_form.changes(editing.document_of(edited.source), said)
    assert (
        editing.document_of(editing.with_settings(edited.source, back).source) == read(source).value
    )


def test_the_last_section_and_the_document_can_both_have_one_more_member():
    """One came to stand within the other, so the document was written anew without its comments."""
    source = "# ours\npolicies: {}\naudit:\n  retention: 30d\n# end\n"
    said = settings_form.fields_of(editing.document_of(source))
    changed = settings_form.changes(
        editing.document_of(source), said | {"capture_intent": "no", "verify": "PERSON"}
    )
    edited = editing.with_settings(source, changed)
    more = "  captureIntent: false\nverify: PERSON\n"
    assert edited.source == source.replace("# end", f"{more}# end")


LEVELS = st.sampled_from(["public", "internal", "restricted"])
CEL = st.sampled_from(["args.a", '"To: " + args.to', "args.x ? 1 : 2"])
TOOLS = some(
    risk=st.sampled_from(["low", "HIGH"]), target=SAID, title=SAID, reads_untrusted=st.booleans(),
    sensitivity=st.one_of(LEVELS, some({"ssn": LEVELS}, tool=LEVELS, card=LEVELS)),
    preview=some({"kind": st.just("money")}, title=CEL, amount=CEL, currency=CEL, recipients=CEL,
                 rows=st.dictionaries(st.sampled_from(["Subject", "To"]), CEL, min_size=1)),
    **{"class": st.sampled_from(["read_only", "external_irreversible"])},
)  # fmt: skip
ODD_TOOLS = st.dictionaries(
    st.sampled_from([*loading.TOOL_FIELDS, "clas"]),
    st.one_of(ODD, st.just({"rows": {"a: b": "args.x", "c": 3}})), max_size=5
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(old=st.one_of(TOOLS, ODD_TOOLS), new=TOOLS)
def test_a_tool_comes_back_as_it_was_and_the_fields_lead_to_any_other(old, new):
    assert ToolForm.entry_of(old, typed(ToolForm.fields_of(old))) == old
    members = {path.partition(".")[0] for path in ToolForm.paths.values()}
    assert members == set(loading.TOOL_FIELDS)
    found = ToolForm.entry_of(new, typed(ToolForm.fields_of(new)))
    found = ToolForm.entry_of({}, typed(ToolForm.fields_of(found)))
    assert tidy(found) == tidy(new)


CALLS = {
    "connection": st.just("crm"), "operation": st.sampled_from(["restore", "refund"]),
    "args": st.dictionaries(st.sampled_from(["id", "to"]), CEL, min_size=1),
}  # fmt: skip
TWINS = some(
    CALLS, target=SAID, words=SAID, reversibility=st.sampled_from(["exact", "irreversible"]),
    probe=some(CALLS),
)  # fmt: skip
ODD_TWINS = st.dictionaries(
    st.sampled_from(["connection", "operation", "args", "target", "probe", "conection"]),
    st.one_of(ODD, st.just({"args": {"a": [1], "b": {"c": "args.c"}}})), max_size=5,
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(old=st.one_of(TWINS, ODD_TWINS), new=TWINS)
def test_a_twin_comes_back_as_it_was_and_the_fields_lead_to_any_other(old, new):
    assert TwinForm.entry_of(old, typed(TwinForm.fields_of(old))) == old
    found = TwinForm.entry_of({}, typed(TwinForm.fields_of(new)))
    assert tidy(found) == tidy(new)


def test_an_argument_that_is_no_text_stays_where_the_others_change():
    twin = {"args": {"row": {"a": "before.a"}, "n": 3, "id": "target.id"}}
    said = TwinForm.fields_of(twin)
    assert said["args"] == "id: target.id"
    assert TwinForm.entry_of(twin, said | {"args": "key: args.key"}) == {
        "args": {"row": {"a": "before.a"}, "n": 3, "key": "args.key"}
    }


def test_what_fits_in_no_line_stays_where_the_others_change():
    tool = {"preview": {"rows": {"a: b": "args.x", "c": "args.c"}}}
    said = ToolForm.fields_of(tool)
    assert said["preview_rows"] == "c: args.c"
    found = ToolForm.entry_of(tool, said | {"preview_rows": "d: args.d"})
    assert found == {"preview": {"rows": {"a: b": "args.x", "d": "args.d"}}}


MISTAKES = [
    ("a", {"requires": [{"group": "x"}, {"group": "y", "count": 99}]}, "count_1"),
    ("a", {"requires": [{"group": 3}]}, "who_0"),
    ("a", {"escalate": {"after": "soon", "group": "x"}}, "escalate_after"),
    ("a", {"escalate": {"after": "30m"}}, "escalate_group"),
    ("a", {"bounded": {"uses": 3}}, "bounded_for"),
    ("a", {"bounded": {"uses": 3, "for": "1d", "sum": 4}}, "bounded_amount"),
    ("a", {"bounded": {"uses": 3, "for": "1d", "same": ["args.a", "b"]}}, "bounded_same"),
    ("a", {"bounded": {"uses": 3, "for": "1d", "listed": "x in lists.y"}}, "bounded_listed"),
    ("a", {"approval": "AUTO", "askAffected": True}, "affected"),
    ("a", {"approval": "DENY", "escalate": {"after": "30m", "group": "x"}}, "escalate_after"),
    ("a", {"when": "args.x ==="}, "when"),
    ("a", {"expires": "soon"}, "expires"),
    ("a", {"compensation": "MAGIC"}, "compensation"),
    ("a", {"selfApproval": "perhaps"}, "self_approval"),
]


@pytest.mark.parametrize(("glob", "rule", "field"), MISTAKES)
def test_a_mistake_is_told_at_its_own_field(glob, rule, field):
    known = [*rules.FIELDS, *(f"{one}_{n}" for one in ("who", "count") for n in range(2))]
    with pytest.raises(Invalid) as wrong:
        load_new({"policies": {glob: rule}})
    found = [
        rules.field_at(one.path.removeprefix(f"policies.{glob}").lstrip("."), one.message, known)
        for one in wrong.value.problems
    ]
    assert field in found
    assert None not in found
    assert re.match(r"policies\.a", wrong.value.problems[0].path)
    assert load({}).rules == ()
