"""The health page proposes to ask less where that was earned, and more where it was lost."""

import pytest
from django.utils import timezone

from approvals import health, proposals, versions
from approvals.models import Approval, PolicyVersion
from approvals.policy import active, editing, judge, load
from approvals.policy.decisions import ToolCall
from ledger.models import Action, Run
from tests.approvals.cast import put_in_force
from tests.people import logged_in, person, team
from tests.worlds import kept

HEALTH = "/w/acme/approvals/health/"
DOCUMENT = {"policies": {"pay.refund": {"approval": "MANUAL"}, "crm.*": {"approval": "AUTO"}}}


@pytest.fixture
@kept
def ada(acme):
    return person("ada", team(acme, "admins", "view", "approve", "recover", "administer"))


@pytest.fixture
@kept(in_turn=True)
def desk(acme, ada, agent):
    put_in_force(acme, ada, DOCUMENT)
    return acme


def did(workspace, agent, number, tool="pay.refund", amount=20, **became):
    run, _ = Run.objects.get_or_create(workspace=workspace, run="run_1", defaults={"agent": agent})
    return Action.objects.create(
        workspace=workspace, run=run, agent=agent, action=f"{tool}{number}", tool=tool,
        args={"amount": amount}, targets=[{"type": "order", "id": f"o{number}"}],
        key=f"k{tool}{number}", state="succeeded", planned_at=timezone.now(),
        action_class="external_reversible", first_place=number, **became,
    )  # fmt: skip


def approved(workspace, agent, number, state="used", **more):
    """A call that people said yes to, was made, and read back as it should be."""
    action = did(workspace, agent, number, **({"verified": "ok"} | more))
    return Approval.objects.create(
        workspace=workspace, subject_kind="action", action=action, subject_key=action.key,
        run_ref="run_1", digest="d" * 64, rules=[], headline="x", risk="high", agent=agent,
        calls=[{"operation": "pay.refund", "args": action.args, "targets": action.targets}],
        was="waiting" if state == "rejected" else "granted", state=state,
        asked_at=timezone.now(), expires_at=timezone.now(),
    )  # fmt: skip


def proposed(workspace):
    return [(one.kind, one.tool) for one in proposals.of(workspace, active(workspace))]


@pytest.mark.django_db
def test_ten_good_calls_earn_a_proposal_that_goes_no_further_than_they_did(desk, agent, ada):
    for number in range(proposals.EARNED_MIN - 1):
        approved(desk, agent, number, amount=10 + number)
    assert proposed(desk) == []
    approved(desk, agent, 99, amount=50)
    [(kind, tool)] = proposed(desk)
    assert (kind, tool) == ("looser", "pay.refund")

    browser = logged_in(ada)
    page = browser.get(HEALTH).content.decode()
    assert "Ask less" in page
    address = f"{HEALTH}proposal/?of=looser:pay.refund"
    looked = browser.get(address).content.decode()
    assert "args.amount &lt;= 50 &amp;&amp; known(target)" in looked
    assert "Dry run" in looked
    assert PolicyVersion.objects.count() == 1  # looking saves nothing

    assert 'name="seen" value="1"' in browser.get(address).text
    told = browser.post(address, {"seen": "0"})
    assert (told.status_code, PolicyVersion.objects.count()) == (409, 1)
    answer = browser.post(address, {"seen": "1"})

    saved = PolicyVersion.objects.latest("number")
    assert answer["Location"].endswith(f"/policies/{saved.number}/")
    assert not saved.active  # nothing loosens by itself
    assert active(desk).document == DOCUMENT
    versions.activate(saved, by=ada)
    beyond = ToolCall(tool="pay.refund", args={"amount": 51}, targets=[{"type": "o", "id": "o1"}])
    assert judge(active(desk), beyond).approval == "MANUAL"
    unknown = ToolCall(tool="pay.refund", args={"amount": 5}, targets=[{"type": "o", "id": "o1"}])
    assert judge(active(desk), unknown).approval == "MANUAL"  # nobody has looked it up


@pytest.mark.django_db
def test_less_is_asked_of_the_tool_that_people_were_asked_about(desk, agent):
    for number in range(proposals.EARNED_MIN):
        approved(desk, agent, number)
    Action.objects.update(tool="pay.transfer")  # as its agent tells it a second time
    assert proposed(desk) == [("looser", "pay.refund")]


def called(*each):
    return [{"args": args, "targets": [{"type": "order", "id": "o1"}]} for args in each]


@pytest.mark.parametrize(
    ("calls", "within"),
    [
        (called({"a": 3}, {"a": 5}), "args.a >= 3 && args.a <= 5 && known(target)"),
        (
            called({"pay": {"sum": 3, "in": "EUR"}}, {"pay": {"sum": 5, "in": "EUR"}}),
            'args.pay.in == "EUR" && args.pay.sum >= 3 && args.pay.sum <= 5 && known(target)',
        ),
        (called({"to": "a", "live": True}, {"to": "b", "live": True}),
         "args.live == true && known(target)"),
        (called({"a": 3}, {"a": 5, "tip": 90}), ""),
        (called({"a": [3]}, {"a": [5]}), ""),
        (called({"a-b": 3}, {"a-b": 5}), ""),
        (called({"a": 3}, {"a": "5"}), ""),
    ],
)  # fmt: skip
def test_less_is_asked_only_where_each_number_is_bound_that_was_seen(calls, within):
    assert proposals._within(calls) == within


@pytest.mark.django_db
def test_one_call_that_was_not_read_back_or_was_overturned_earns_nothing(desk, agent):
    for number in range(proposals.EARNED_MIN):
        approved(desk, agent, number)
    earned = ("looser", "pay.refund")
    assert earned in proposed(desk)
    for spoilt in ({"verified": "not_yet"}, {"verified": "failed"}, {"compensated": "compensated"},
                   {"state": "rejected"}, {"state": "withdrawn"}):  # fmt: skip
        one = approved(desk, agent, 100, **spoilt)
        assert earned not in proposed(desk), spoilt
        one.delete()
        one.action.delete()
    assert earned in proposed(desk)


@pytest.mark.django_db
@pytest.mark.parametrize("became", [{"verified": "failed"}, {"compensated": "compensated"}])
def test_one_failure_of_what_nobody_was_asked_about_proposes_to_ask(desk, agent, ada, became):
    did(desk, agent, 1, tool="crm.update", **became)
    assert proposed(desk) == [("tighter", "crm.update")]
    assert judge(active(desk), ToolCall(tool="crm.update")).approval == "AUTO"  # a person confirms

    browser = logged_in(ada)
    answer = browser.post(f"{HEALTH}proposal/?of=tighter:crm.update")
    number = int(answer["Location"].rstrip("/").rpartition("/")[2])
    versions.activate(PolicyVersion.objects.get(workspace=desk, number=number), by=ada)
    assert judge(active(desk), ToolCall(tool="crm.update")).approval == "MANUAL"
    assert proposed(desk) == []


@pytest.mark.django_db
def test_asking_more_takes_the_place_of_nothing_that_denies_or_asks_for_more(desk, agent, ada, ben):
    wider = [{"when": "args.amount == 666", "approval": "DENY"},
             {"when": "args.amount > 900", "approval": "MANUAL", "requires": [{"count": 2}]},
             {"approval": "AUTO"}]  # fmt: skip
    put_in_force(desk, ada, {"policies": {"crm.*": wider}})
    did(desk, agent, 1, tool="crm.update", verified="failed")
    [one] = proposals.of(desk, active(desk))
    policy = load(one.source)

    def judged(amount):
        return judge(policy, ToolCall(tool="crm.update", args={"amount": amount}))

    assert (one.kind, judged(20).approval) == ("tighter", "MANUAL")
    assert judged(666).approval == "DENY"
    assert [str(need) for need in judged(901).requires] == ["2 people who may approve"]


CAP = {"when": "sum(args.amount, over: '24h') > 500", "approval": "MANUAL"}
DENIAL = {"when": "args.to == 'evil'", "approval": "DENY"}
ASKS = {"approval": "MANUAL"}
LARGE = {"when": "args.amount > 5", "approval": "MANUAL"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("rules", "stays"),
    [
        ({"pay.refund": [CAP, ASKS]}, [CAP]),
        ({"pay.refund": [DENIAL, ASKS]}, [DENIAL]),
        ({"pay.refund": [LARGE, {"approval": "AUTO"}]}, []),
        ({"pay.refund": [{**LARGE, "when": "args.amount > 15"}, ASKS]},
         [{**LARGE, "when": "args.amount > 15"}]),
        ({"pay.refund": [CAP, LARGE]}, [CAP]),
        ({"pay.*": [ASKS]}, []),
        ({"pay.*": [DENIAL, ASKS], "pay.refund": [ASKS]}, []),
    ],
)  # fmt: skip
def test_asking_less_leaves_each_denial_each_cap_and_what_not_all_were_asked_for(
    desk, agent, ada, rules, stays
):
    put_in_force(desk, ada, {"policies": rules})
    for number in range(proposals.EARNED_MIN):
        one = approved(desk, agent, number, amount=10 + number)
        met = [LARGE, *([{"when": "args.amount > 15"}] if number > 5 else [])]
        Approval.objects.filter(pk=one.pk).update(rules=met)
    [one] = proposals.of(desk, active(desk))
    entries = [entry for glob, _, entry in editing.entries(one.source) if glob == "pay.refund"]
    own = rules.get("pay.refund", [])
    assert [entry for entry in entries if entry in own] == stays
    assert entries[-1]["approval"] == "AUTO"


@pytest.mark.django_db
def test_less_is_not_asked_where_a_wider_rule_would_lose_its_say(desk, agent, ada):
    for number in range(proposals.EARNED_MIN):
        approved(desk, agent, number)
    assert proposed(desk)
    for rules in ({"pay.*": [DENIAL, ASKS]}, {"pay.*": [CAP, ASKS]},
                  {"pay.*": [DENIAL], "pay.refund": [LARGE]},
                  {"pay.refund": [CAP, {**LARGE, "when": "args.amount > 15"}]}):  # fmt: skip
        put_in_force(desk, ada, {"policies": rules})
        assert proposed(desk) == [], rules
    put_in_force(desk, ada, {"policies": {"pay.refund": [ASKS]}})
    assert proposed(desk), "it is no version in force that keeps it back"


@pytest.mark.django_db
@pytest.mark.parametrize(("became", "undone"), [("none", 0), ("compensated", 1)])
def test_a_yes_whose_own_try_failed_is_neither_good_nor_undone_by_a_later_try(
    desk, agent, became, undone
):
    """Each call was tried again, and the second try was asked for anew."""
    for number in range(proposals.EARNED_MIN):
        one = approved(desk, agent, number, compensated=became if number == 0 else "none")
        Action.objects.update(current_attempt="try-2")
        Approval.objects.filter(pk=one.pk).update(used_by="try-1")
    assert proposed(desk) == []
    assert health.of(desk).undone_later == 0

    Approval.objects.update(used_by="try-2")
    assert health.of(desk).undone_later == undone
    assert (("looser", "pay.refund") in proposed(desk)) is not bool(undone)


@pytest.mark.django_db
def test_who_may_not_change_the_policy_is_proposed_nothing(desk, agent, ben):
    did(desk, agent, 1, tool="crm.update", verified="failed")
    browser = logged_in(ben)
    assert "Ask more" not in browser.get(HEALTH).content.decode()
    assert browser.get(f"{HEALTH}proposal/?of=tighter:crm.update").status_code == 403
