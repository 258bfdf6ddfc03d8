"""The policy pages without JavaScript: write, check, rehearse, put in force; pause and lift."""

import json
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import inbox, pauses, team_coverage, versions
from approvals.models import Pause, PolicyVersion
from approvals.policy import ToolCall, active, active_policies, judge
from connectors import channels, connections
from connectors.models import Delivery
from ledger import drivers, intake
from ledger.canonical import digest
from ledger.models import Action, Run
from ledger.parsed_events import Actor, ParsedEvent, new_id
from ledger.wire import read
from tests.approvals.cast import put_in_force, told
from tests.people import logged_in, person
from workspaces import teams
from workspaces.free_text import InvalidInput
from workspaces.models import Workspace

POLICIES, NEW, TOOLS = "/w/acme/policies/", "/w/acme/policies/new/", "/w/acme/tools/"
DENIES = 'policies:\n  crm.*: {approval: DENY, words: "nobody touches the CRM"}\n'


@pytest.fixture
def ada_s(ada):
    return logged_in(ada)


@pytest.fixture
def viewer(acme, leads):
    return logged_in(person("vera", leads))


@pytest.fixture
def history(acme, agent):
    """Three updates that an agent made."""
    actor = Actor(acme.pk, acme.slug, "agent", agent.name, agent.pk, "0123456789")
    for number in range(3):
        data = {
            "tool": "crm.update",
            "targets": [{"type": "contact", "id": "c7"}],
            "args": {"name": "Eve"},
        }
        event = {
            "id": new_id(),
            "type": "action.planned",
            "run": "run_1",
            "n": number,
            "data": data,
        }
        said = read(json.dumps(event | {"action": f"act_{number}"}).encode(), actor)
        assert isinstance(said, ParsedEvent)
        intake.record(drivers.plain_connection(), actor, [said])


def test_where_no_policy_was_ever_in_force_its_page_says_what_goes_on(ada_s, acme):
    assert "No policy was ever put in force here" in ada_s.get(POLICIES).text
    versions.activate(versions.save(acme, DENIES, by=None), by=None)
    assert "No policy was ever put in force here" not in ada_s.get(POLICIES).text


def test_a_policy_is_written_rehearsed_saved_and_put_in_force(ada_s, acme, history):
    checked = ada_s.post(NEW, {"source": DENIES, "act": "check"}).content.decode()
    assert "asked 0 times and denied 3" in checked
    assert PolicyVersion.objects.count() == 0

    saved = ada_s.post(NEW, {"source": DENIES, "act": "save", "note": "after the leak"})
    assert saved.headers["Location"] == f"{POLICIES}1/"
    assert "nobody touches the CRM" in ada_s.get(f"{POLICIES}1/").content.decode()
    assert judge(active(acme), ToolCall(tool="crm.update")).approval == "AUTO"

    ada_s.post(f"{POLICIES}1/activate/", {"seen": ""})
    assert judge(active(acme), ToolCall(tool="crm.update")).approval == "DENY"
    shown = ada_s.get(POLICIES).content.decode()
    assert "after the leak" in shown


def test_a_mistake_is_shown_with_its_line_and_nothing_typed_is_lost(ada_s):
    wrong = "policies:\n  crm.*: {aproval: DENY}\n"
    answered = ada_s.post(NEW, {"source": wrong, "act": "save"})

    html = answered.content.decode()
    assert answered.status_code == 422
    assert "Line 2, column 11" in html
    assert "did you mean approval?" in html
    assert "aproval: DENY" in html
    assert PolicyVersion.objects.count() == 0


def test_two_people_cannot_put_versions_in_force_past_each_other(ada_s, acme, ada):
    first = versions.save(acme, "policies: {}", by=ada)
    second = versions.save(acme, DENIES, by=ada)
    versions.activate(first, by=ada)

    assert ada_s.post(f"{POLICIES}{second.number}/activate/", {"seen": ""}).status_code == 409
    assert PolicyVersion.objects.get(active=True) == first


def test_a_viewer_reads_and_changes_nothing(viewer, acme, ada):
    version = versions.save(acme, DENIES, by=ada)
    for path in (POLICIES, f"{POLICIES}{version.number}/", TOOLS):
        assert viewer.get(path).status_code == 200
    assert viewer.get(NEW).status_code == 403
    assert viewer.post(NEW, {"source": DENIES, "act": "save"}).status_code == 403
    assert viewer.post(f"{POLICIES}1/activate/", {"seen": ""}).status_code == 403
    assert (
        viewer.post(f"{POLICIES}pauses/", {"kind": "workspace", "reason": "x"}).status_code == 403
    )
    assert not PolicyVersion.objects.filter(active=True).exists()


def test_a_pause_is_placed_shown_and_lifted(ada_s, acme):
    place = {"kind": "tool", "name": "mail.*", "reason": "wrong recipients"}
    ada_s.post(f"{POLICIES}pauses/", place)
    assert pauses.standing(acme.pk, tool="mail.send")
    html = ada_s.get(POLICIES).content.decode()
    assert "wrong recipients" in html

    assert ada_s.post(f"{POLICIES}pauses/", place).status_code == 409
    assert ada_s.post(f"{POLICIES}pauses/", {"kind": "tool", "reason": "x"}).status_code == 422
    lift = f"{POLICIES}pauses/{Pause.objects.get().pk}/lift/"
    assert "Lifted. It goes on." in ada_s.post(lift, follow=True).text
    assert pauses.standing(acme.pk, tool="mail.send") is None
    ada_s.post(f"{POLICIES}pauses/", place)
    ada_s.post(f"{POLICIES}pauses/", {"kind": "workspace", "reason": "an incident"})
    lift = f"{POLICIES}pauses/{Pause.objects.get(kind='tool', lifted_at=None).pk}/lift/"
    assert "Another pause still holds everything here." in ada_s.post(lift, follow=True).text


def test_why_is_kept_whole_or_refused_with_nothing_lost(ada_s, acme):
    place = {"kind": "tool", "name": "mail.*", "reason": "w" * 401}

    refused = ada_s.post(f"{POLICIES}pauses/", place)

    assert refused.status_code == 422
    assert "it has 401 characters, of which 400 can be kept" in refused.text
    assert "w" * 401 in refused.text
    ada_s.post(f"{POLICIES}pauses/", place | {"reason": "w" * 400})
    assert Pause.objects.get().reason == "w" * 400
    said = {"source": "{}", "note": "w" * 401, "act": "save"}
    refused = ada_s.post(f"{POLICIES}new/", said)
    assert (refused.status_code, "w" * 401 in refused.text) == (422, True)
    with pytest.raises(InvalidInput):
        versions.save(acme, "{}", by=None, note="w" * 401)
    assert not PolicyVersion.objects.exists()


def test_the_pause_of_a_connection_counts_the_runs_that_have_called_its_tools(acme, ada, history):
    twins = {"crm.*": {"connection": "crm", "operation": "restore_row", "args": {}}}
    put_in_force(acme, ada, {"policies": {}, "twins": twins})

    its_own = pauses.pause(acme, "connection", "crm", by=ada, reason="it is moved")
    unused = pauses.pause(acme, "connection", "mail", by=ada, reason="it is moved")

    assert [str(one) for one in pauses.held_runs([its_own, unused])] == ["1 run", "0 runs"]


def test_many_pauses_of_tools_hold_each_pattern_against_each_tool_once(acme, ada, agent, history):
    """One condition for each pause took minutes over 5,000 live runs and a hundred pauses."""
    run = Run.objects.filter(workspace=acme).first()
    Run.objects.filter(pk=run.pk).update(state="running")
    Action.objects.create(
        workspace=acme, run=run, agent=agent, action="one_more", n=900, first_place=900,
        last_place=900, tool="mail.send",
    )  # fmt: skip
    standing = [
        pauses.pause(acme, "tool", glob, by=ada, reason="wrong recipients")
        for glob in ("mail.send", "mail.*", "m*.s*", "mail", "nothing.*")
    ]

    with CaptureQueriesContext(connection) as asked:
        held = pauses.held_runs(standing)

    assert [one.runs for one in held] == [1, 1, 1, 0, 0]
    assert sum(one["sql"].count("ledger_action") for one in asked) == 1


def test_what_a_pause_holds_is_counted_so_far_and_no_further(
    ada_s, acme, ada, history, monkeypatch
):
    """It is counted for every page, on a desk of a million runs, too."""
    agent = Run.objects.filter(workspace=acme).first().agent
    elsewhere = Workspace.objects.create(slug="elsewhere", name="Elsewhere")
    for number in range(4):
        Run.objects.create(workspace=acme, run=f"live-{number}", agent=agent)
        Run.objects.create(workspace=elsewhere, run=f"live-{number}", agent=agent)
    everything = pauses.pause(acme, "workspace", by=ada, reason="wrong recipients")
    its_agent = pauses.pause(acme, "agent", agent.name, by=ada, reason="wrong recipients")
    its_run = pauses.pause(acme, "run", "live-1", by=ada, reason="wrong recipients")
    known = Run.objects.filter(workspace=acme, state="running").count()
    assert pauses.held_runs([everything]) == [(known, False)]

    monkeypatch.setattr(pauses, "HELD_MAX", 3)
    held = pauses.held_runs([everything, its_agent, its_run])
    assert [str(one) for one in held] == ["3+ runs", "3+ runs", "1 run"]
    assert "3+ runs" in ada_s.get(POLICIES).text
    monkeypatch.setattr(pauses, "LOOKED_AT_MAX", 2)
    assert str(*pauses.held_runs([its_run])) in {"0+ runs", "1+ runs"}


def test_a_page_asks_no_more_where_more_pauses_stand(ada_s, acme, ada, history):
    """Their banners stand on every page: of twenty each asked three statements more."""
    asked = {}
    for number in range(4):
        pauses.pause(acme, "tool", f"crm.{'x' * number}*", by=ada, reason="wrong recipients")
        with CaptureQueriesContext(connection) as queries:
            shown = ada_s.get(POLICIES).context["pauses"]
        asked[len(shown)] = len(queries)

    assert [*asked] == [1, 2, 3, 4]
    assert len(set(asked.values())) == 1, asked


def test_many_tools_are_shown_a_page_at_a_time_and_all_are_in_the_file(
    ada_s, acme, ada, agent, history
):
    """Five hundred made a page of 650 kB; of more the others stood nowhere, and in no file."""
    put_in_force(acme, ada, {"policies": {}, "tools": {"a.update": {"class": "read_only"}}})
    run = Run.objects.filter(workspace=acme).first()
    used = ["a.update", *(f"tool{number:03}.call" for number in range(510))]
    Action.objects.bulk_create(
        Action(
            workspace=acme, run=run, agent=agent, action=f"other_{number}", n=number,
            first_place=number, last_place=number, tool=tool,
        )
        for number, tool in enumerate(used)
    )  # fmt: skip
    known = sorted(set(Action.objects.filter(workspace=acme).values_list("tool", flat=True)))
    expected = [*known[1:], "a.update"]

    listed, address = [], TOOLS
    while address:
        page = ada_s.get(address)
        listed.append([row["line"].tool for row in page.context["rows"]])
        address = page.context["pager"]["next"]
    assert [tool for rows in listed for tool in rows] == expected
    assert {len(rows) for rows in listed[:-1]} == {50}
    assert "More tools" in ada_s.get(TOOLS).text
    file = ada_s.get(f"{TOOLS}?format=json&after=1").getvalue()
    assert [row["tool"] for row in json.loads(file)] == expected


def test_the_inventory_shows_what_nobody_classified_and_what_cannot_be_undone(
    ada_s, acme, ada, history
):
    source = "policies:\n  crm.*: {approval: AUTO, compensation: SNAPSHOT}\n"
    versions.activate(versions.save(acme, source, by=ada), by=ada)

    html = ada_s.get(TOOLS).content.decode()

    assert "Unclassified" in html
    assert "Not runnable" in html

    named = f"{source}twins:\n  crm.update: {{connection: crm, operation: restore}}\n"
    why = "There is no connection “crm”."
    assert f"crm.update names crm.restore. {why}" in ada_s.post(NEW, {"source": named}).text
    versions.activate(versions.save(acme, named, by=ada), by=ada)
    html = ada_s.get(TOOLS).text
    assert "Not runnable" in html
    assert f"crm.restore: {why}" in html
    assert "crm.<wbr>update" in html


def test_a_requirement_that_nobody_can_meet_any_more_is_told(ada_s, acme, ada, ben, finance):
    asks = "policies:\n  a: {approval: MANUAL, requires: [{group: finance}]}\n"
    versions.activate(versions.save(acme, asks, by=ada), by=ada)
    assert "Nobody can meet" not in ada_s.get(POLICIES).content.decode()

    teams.remove(finance, ben, by=None)

    assert "Nobody can meet" in ada_s.get(POLICIES).content.decode()


def test_a_version_in_the_shadow_has_no_say_and_counts_what_it_would_have_said(
    ada_s, acme, ada, agent, history
):
    version = versions.save(acme, DENIES, by=ada)
    [ada_s.post(f"{POLICIES}1/shadow/", {"act": "begin"}) for _ in "12"]  # no answer came at first
    shown = ada_s.get(f"{POLICIES}1/").content.decode()
    assert "Over 0 actions since it is in shadow" in shown

    actor = Actor(acme.pk, acme.slug, "agent", agent.name, agent.pk, "0123456789")
    data = {"tool": "crm.merge", "targets": [], "args": {}}
    event = {"id": new_id(), "type": "action.planned", "run": "run_2", "action": "a", "n": 1}
    said = read(json.dumps(event | {"data": data}).encode(), actor)
    assert isinstance(said, ParsedEvent)
    intake.record(drivers.plain_connection(), actor, [said])

    shown = ada_s.get(f"{POLICIES}1/").content.decode()
    assert "Over 1 actions since it is in shadow" in shown
    assert "denied 1" in shown
    assert "crm.<wbr>merge" in shown
    assert judge(active(acme), ToolCall(tool="crm.merge")).approval == "AUTO"
    assert [one["number"] for one in told(acme, "policy.shadowed")] == [1]

    other = versions.save(acme, "policies: {}", by=ada)
    versions.shadow(other, by=ada)
    version.refresh_from_db()
    assert version.shadow_since is None  # one at a time
    versions.activate(other, by=ada)
    other.refresh_from_db()
    assert (other.active, other.shadow_since) == (True, None)
    assert ada_s.post(f"{POLICIES}2/shadow/", {"act": "begin"}).status_code == 409


def test_what_it_means_for_open_plans_is_shown_while_writing(ada_s, ask, ada, ben, cleo):
    ask()
    headers = {"HX-Request": "true"}

    def live(rule):
        source = json.dumps({"policies": {"payments.refund": rule}})
        said = {"source": source, "act": "check"}
        return ada_s.post(NEW, said, headers=headers).content.decode()

    assert "would go on without people" in live({"approval": "AUTO"})
    assert "would be denied" in live({"approval": "DENY"})
    anew = live({"approval": "MANUAL", "requires": [{"group": "leads"}, {"group": "finance"}]})
    assert "would be asked anew, of 1 person from finance and 1 person from leads" in anew
    assert "asked anew" not in live({"approval": "MANUAL"})
    assert "<html" not in anew  # a part, swapped in while she goes on writing
    broken = ada_s.post(NEW, {"source": "policies: [", "act": "check"}, headers=headers)
    assert broken.status_code == 422
    assert "data-focus" not in broken.content.decode()  # the focus stays where she writes


def test_what_it_means_for_what_is_approved_and_not_yet_used_is_shown_too(
    ada_s, acme, ask, ada, ben, cleo
):
    approval = ask()
    inbox.grant(approval, by=ben, seen=approval.digest)

    def checked(rule):
        source = json.dumps({"policies": {"payments.refund": rule}})
        return ada_s.post(NEW, {"source": source, "act": "check"}).content.decode()

    assert "would be denied, whatever people have said" in checked({"approval": "DENY"})
    both = {"approval": "MANUAL", "requires": [{"group": "leads"}, {"group": "finance"}]}
    assert "asked anew" in checked(both)
    assert "though it is approved" in checked(both)
    for lax in ({"approval": "AUTO"}, {"approval": "MANUAL"}):
        assert approval.headline not in checked(lax)


def test_a_policy_that_nobody_can_meet_any_more_raises_an_alarm_at_once(
    ada_s, acme, ada, ben, finance, django_capture_on_commit_callbacks
):
    channels.create(
        acme, "ops", "mail", by=ada, settings={"to": ["ops@acme.example"]}, subjects=["policy.*"]
    )
    asks = {"policies": {"a": {"approval": "MANUAL", "requires": [{"group": "finance"}]}}}
    put_in_force(acme, ada, asks)
    assert "Nobody can meet" not in ada_s.get(POLICIES).content.decode()

    with django_capture_on_commit_callbacks(execute=True):
        teams.remove(finance, ben, by=ada)

    assert "Nobody can meet what the policy asks" in ada_s.get(TOOLS).content.decode()
    assert len(told(acme, "policy.unmeetable")) == 1
    team_coverage.sweep()
    assert Delivery.objects.filter(subject="policy.unmeetable").count() == 1  # told once
    with django_capture_on_commit_callbacks(execute=True):
        teams.add(finance, ben, by=ada)
    assert "Nobody can meet" not in ada_s.get(TOOLS).content.decode()
    assert len(told(acme, "policy.meetable_again")) == 1


def test_the_sweep_finds_what_no_bell_tells_of(acme, ada, ben, ada_s):
    asks = {"policies": {"a": {"approval": "MANUAL", "requires": [{"group": "finance"}]}}}
    put_in_force(acme, ada, asks)
    type(ben).objects.filter(pk=ben.pk).update(is_active=False)
    assert team_coverage.sweep() == 0  # looked at just now

    PolicyVersion.objects.update(looked_at=None)
    assert team_coverage.sweep() == 1

    assert len(told(acme, "policy.unmeetable")) == 1
    assert "Nobody can meet what the policy asks" in ada_s.get(TOOLS).content.decode()


@pytest.fixture
def unreadable(acme, ada):
    """The policy in force has a rule that a newer version of the desk refuses."""
    put_in_force(acme, ada, {"policies": {"a": {"approval": "MANUAL"}}})
    document = {"policies": {"a": {"approval": "PERHAPS"}}}
    stored = PolicyVersion.objects.filter(workspace=acme, active=True)
    stored.update(document=document, digest=digest(document), source="", looked_at=None)


def test_a_policy_that_an_upgrade_refuses_is_shown_with_what_is_wrong_and_mended(
    ada_s, acme, ada, unreadable
):
    shown = ada_s.get(POLICIES)
    html = shown.content.decode()
    assert shown.status_code == 200
    assert "This policy cannot be read." in html
    assert "PERHAPS" in html
    written = ada_s.get(NEW).content.decode()
    assert "PERHAPS" in written
    mended = {"source": '{"policies": {"a": {"approval": "DENY"}}}', "note": "mended"}
    checked = ada_s.post(NEW, mended | {"act": "check"})
    assert (checked.status_code, "It can be read and met." in checked.content.decode()) == (
        200,
        True,
    )
    saved = ada_s.post(NEW, mended | {"act": "save"}, follow=True)
    assert saved.status_code == 200
    number = PolicyVersion.objects.latest("number").number

    seen = PolicyVersion.objects.get(workspace=acme, active=True).digest
    ada_s.post(f"{POLICIES}{number}/activate/", {"seen": seen})

    assert active(acme).rules[0].approval == "DENY"
    assert ada_s.get(f"{POLICIES}{number - 1}/").status_code == 200
    assert "cannot be read" not in ada_s.get(POLICIES).content.decode()


def test_a_policy_that_an_upgrade_refuses_is_told_and_others_are_looked_at_all_the_same(
    ada_s, acme, ada, unreadable
):
    team_coverage.sweep()

    [event] = told(acme, "policy.unmeetable")
    assert "The policy in force cannot be read" in str(event)
    [warning] = active_policies.unreadable()
    assert "The policy in force in acme" in warning.msg
    assert "The policy in force cannot be read." in ada_s.get("/w/acme/settings/").content.decode()
    ada_s.raise_request_exception = False
    stopped = ada_s.get(TOOLS)
    assert stopped.status_code == 503
    assert "/w/acme/policies/" in stopped.content.decode()


def test_a_connection_says_which_tools_could_not_be_undone_without_it(acme, ada, ada_s):
    restore = {"restore_contact": {"title": "Restore {target}", "leaves": {"state": "restored"}}}
    settings = {"url": "https://crm.example/hook", "operations": restore}
    connections.create(acme, "crm", "webhook", settings, by=ada)
    page = "/w/acme/connectors/crm/"
    assert "nothing yet: no twin names it" in ada_s.get(page).text

    undo = {"connection": "crm", "operation": "restore_contact", "args": {}, "target": "contact"}
    probe = {"connection": "crm", "operation": "restore_contact", "args": {}}
    asks = undo | {"connection": "elsewhere", "probe": probe}
    put_in_force(acme, ada, {"twins": {"crm.*": [undo], "mail.send": [undo], "hr.add": [asks]}})

    shown = ada_s.get(page).text
    assert "crm.*, mail.send" in shown
    assert "2 tools could not be undone meanwhile" in shown
    assert "<dt>Finds out about</dt><dd>hr.add</dd>" in shown


def test_of_a_long_policy_a_part_is_shown_and_the_rest_is_one_click_away(ada_s, acme, ada):
    """Three hundred rules made an editor of 800 kB and a page of 380 kB."""
    document = {
        "tools": {f"svc{n}.do": {"class": "internal_update"} for n in range(120)},
        "policies": {f"svc{n}.do": {"approval": "AUTO"} for n in range(120)},
    }
    put_in_force(acme, ada, document)
    page = ada_s.get(POLICIES)
    assert "70 more rules are not shown" in page.text
    [rest] = re.findall(r'<a href="([^"]*)">Show all 120</a>', page.text)
    whole = ada_s.get(f"{POLICIES}{rest}")
    assert [len(one.context["table"].sections[0][1]) for one in (page, whole)] == [50, 120]

    editor = ada_s.get(f"{POLICIES}new/")
    source = editor.context["form"].initial["source"]

    def press(act, **more):
        return ada_s.post(f"{POLICIES}new/", {"source": source, "act": act, "note": "", **more})

    def numbers(page):
        return [line.number for line in page.context["table"].sections[0][1]]

    assert numbers(editor) == [*range(50)]
    assert numbers(press("whole")) == [*range(120)]
    assert 'name="whole" value="1"' in press("tool_whole").text
    assert numbers(press("check", whole="1")) == [*range(120)]
    assert numbers(press("down:49")) == [*range(51)]  # where it went to
    right = '"svc100.do": {"approval": "AUTO"'
    wrong = source.replace(right, right.replace("AUTO", "NO"))
    assert wrong != source
    told = ada_s.post(f"{POLICIES}new/", {"source": wrong, "act": "check", "note": ""})
    assert 100 in numbers(told)


def test_versions_and_pauses_beyond_those_shown_are_told_of(ada_s, acme, ada, monkeypatch):
    monkeypatch.setattr("approvals.views.policies.VERSIONS_SHOWN_MAX", 2)
    monkeypatch.setattr("approvals.views.policies.PAUSES_SHOWN_MAX", 2)
    told = "The newest are shown; all stand in the file."
    for number, expected in enumerate([0, 0, 2]):
        versions.save(acme, f"policies: {{}} # {number}", by=ada)
        pauses.pause(acme, "tool", f"crm.{number}", by=ada, reason="wrong recipients")
        page = ada_s.get(POLICIES)
        assert page.text.count(told) == expected, number
        assert len(page.context["pauses"]) == len(page.context["versions"]) == min(number + 1, 2)
