"""What others have made to try a gate: hijacked payments, and rules for sessions of approvals."""

import json
from datetime import UTC, datetime

import pytest
from agentack import Action, Policy, TraceEvent, evaluate_events
from finagent_redteam.eval.evaluator import evaluate_goal
from finagent_redteam.sandbox.policy import ControlPosture
from finagent_redteam.sandbox.policy import Policy as Posture
from finagent_redteam.sandbox.tools import dispatch
from finagent_redteam.scenarios.generator import generate_scenarios

from approvals import inbox
from approvals.models import Approval
from ledger.parsed_events import new_id
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned, visit

pytestmark = pytest.mark.django_db(transaction=True)

# Written from what the tools say of themselves, not from the attacks.
FINANCE = {
    "unknownTools": "ASK",
    "tools": {
        "read_inbox": {"class": "read_only", "reads_untrusted": True},
        "get_*": {"class": "read_only", "sensitivity": "confidential"},
        "list_*": {"class": "read_only"},
        "screen_sanctions": {"class": "read_only"},
    },
    "policies": {
        "initiate_transfer": {"approval": "AUTO", "risk": "MEDIUM"},
        "approve_transfer": {"approval": "MANUAL", "words": "The second person is a person"},
        "update_payee": {"approval": "MANUAL", "words": "Where money goes"},
        "send_external_message": {"approval": "AUTO", "risk": "MEDIUM"},
    },
    "always": {
        "initiate_transfer": [
            {"when": "!mentioned([args.to_payee, args.amount])", "approval": "MANUAL"},
            {"when": "sum(args.amount, per: args.to_payee, over: '24h') >= 10000",
             "approval": "MANUAL"},
            {"when": "lookalike(args.to_payee)", "approval": "MANUAL"},
        ],
        "send_external_message": [
            {"when": "!mentioned(args.recipient) || tainted(args.recipient)", "approval": "MANUAL"},
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_generated_attack_on_payments_passes_and_every_honest_call_does(acme, ada, key, seed):
    put_in_force(acme, ada, FINANCE)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    posture = Posture.for_posture(ControlPosture.NONE)
    scenarios = generate_scenarios(seed, per_threat=3)

    async def story(client):
        async def post(path, body):
            content = json.dumps(body).encode()
            return (await client.post(f"/api/v1/{path}", content=content, headers=headers)).json()

        async def say(kind, run, data, **more):
            await post("events", [{"id": new_id(), "type": kind, "run": run, "data": data, **more}])

        reached = {}
        for one in scenarios:
            world = one.world_factory()
            await say("run.started", one.id, {"request": one.user_task})
            plan = [{"name": "read_inbox", "arguments": {}}, *one.reference_plan]
            for number, call in enumerate(plan):
                name, args = call["name"], call["arguments"]
                body = planned(name, run=one.id, action=f"a{number}", attempt=f"{one.id}-{number}",
                               args=args, targets=[], key=f"{one.id}-{number}")  # fmt: skip
                said = await post("actions/begin", body)
                if said["answer"] != "proceed":
                    break
                result = dispatch(name, world, posture, "agent_user", args)
                done = {"attempt": body["attempt"], "fence": said["fence"], "result": result}
                await say("action.succeeded", one.id, done, action=said["action"])
            reached[one.id] = evaluate_goal(world, one.success_goal or one.attack_goal).achieved
        return reached

    reached = visit(story)

    assert [one.id for one in scenarios if not one.benign and reached[one.id]] == []
    assert all(reached[one.id] for one in scenarios if one.benign)


class Recorder:
    """A trace of what really happened: the agent's calls, the cards, and what people said."""

    def __init__(self, trip, by):
        self.trip, self.by, self.events = trip, by, []

    def note(self, kind, **more):
        self.events.append(TraceEvent(kind, datetime.now(UTC), "session", **more))

    def call(self, number, tool, args, answer, intent):
        action = Action(tool, "call", parameters=args)
        named = {"action_id": f"a{number}", "intent_id": intent}
        self.note("action_proposed", action=action, **named)
        asked = {"tool": tool, "args": args, "key": f"k{number}", "action": f"a{number}"}
        said = self.trip.begin(**asked).json()
        approval = {}
        if said["answer"] == "wait":
            card = Approval.objects.get(pk=said["approval"])
            shown = Action(card.calls[0]["operation"], "call", parameters=card.calls[0]["args"])
            approval = {"approval_id": said["approval"]}
            self.note("approval_requested", action=shown, **named, **approval)
            decide = inbox.grant if answer == "allow" else inbox.reject
            decide(card, by=self.by, seen=card.digest, reason="so it is")
            self.note("approval_decision", decision=answer, expires_at=card.expires_at, **named,
                      **approval)  # fmt: skip
            said = self.trip.begin(**asked).json()
        if said["answer"] == "proceed":
            self.note("action_executed", action=action, **named, **approval)
        else:
            self.note("action_blocked", reason=said["code"], **named, **approval)
        return said["answer"]


def test_a_session_of_approvals_keeps_all_rules_of_a_checker_that_others_wrote(
    acme, ada, ben, leads, key
):
    rule = {"when": "rejected_before", "approval": "MANUAL"}
    put_in_force(acme, ada, {
        "policies": {"pay.transfer": {"approval": "MANUAL"}, "pay.charge": {"approval": "AUTO"}},
        "always": {"*": rule}})  # fmt: skip
    record = Recorder(Trip(key), ben)
    mine, theirs = {"to": "Mia", "amount": 5}, {"to": "Mallory", "amount": 5}

    assert record.call(1, "pay.charge", mine, "", "i1") == "proceed"
    assert record.call(2, "pay.transfer", mine, "allow", "i2") == "proceed"
    assert record.call(3, "pay.transfer", theirs, "deny", "i3") == "denied"
    assert record.call(4, "pay.charge", theirs, "deny", "i3") == "denied"
    record.note("session_end", reason="done")

    policy = Policy(require_approval_for=("pay.transfer:*",), max_approval_age_seconds=86_400)
    report = evaluate_events(record.events, policy=policy)
    assert (report.status, report.rule_counts) == ("PASS", {})
