"""Time in a policy: working hours, and a second team where nobody decides."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from approvals import grants, inbox, periodic
from approvals.gate import bounded_grants, covered_questions
from approvals.models import Approval, GateKey
from approvals.policy import Invalid, load_new
from tests.approvals import cast
from tests.approvals.cast import as_the_desk, now, put_in_force, told
from tests.people import person, team

pytestmark = pytest.mark.django_db(transaction=True)
trip = cast.trip

OFFICE = {"zone": "Europe/Berlin", "from": "08:00", "to": "18:00", "closed": ["2026-12-25"]}
NIGHT = {"days": ["fri"], "from": "22:00", "to": "06:00"}


def hours(said):
    return load_new({"policies": {}, "hours": said}).working_hours


def test_working_hours_are_those_of_a_place_its_summer_and_its_holidays():
    at = {
        "2026-11-25T07:00": (OFFICE, True), "2026-11-25T06:59": (OFFICE, False),
        "2026-11-25T17:00": (OFFICE, False), "2026-07-15T06:00": (OFFICE, True),
        "2026-11-28T10:00": (OFFICE, False), "2026-12-25T10:00": (OFFICE, False),
        "2026-11-27T22:00": (NIGHT, True), "2026-11-28T05:59": (NIGHT, True),
        "2026-11-27T05:59": (NIGHT, False), "2026-11-28T06:00": (NIGHT, False),
    }  # fmt: skip
    for moment, (said, is_open) in at.items():
        covered = hours(said).covers(datetime.fromisoformat(moment).replace(tzinfo=UTC))
        assert covered is is_open, moment


def test_what_cannot_be_kept_to_is_refused_with_its_place():
    says: dict[str, dict[str, object]] = {
        "did you mean Europe/Berlin": {"hours": OFFICE | {"zone": "Europe/Berln"}},
        "a time of the day": {"hours": OFFICE | {"from": "8"}},
        "two times of a day": {"hours": OFFICE | {"to": "08:00"}},
        "a day such as": {"hours": OFFICE | {"closed": ["Xmas"]}},
        "needs the section": {
            "policies": {"*": {"when": "!working_hours", "approval": "MANUAL"}}},
        "“group” is missing": {"policies": {"*": {"escalate": {"after": "1h"}}}},
        "AUTO asks nobody": {
            "policies": {"*": {"approval": "AUTO", "escalate": {"after": "1h", "group": "x"}}}},
    }  # fmt: skip
    for words, document in says.items():
        with pytest.raises(Invalid, match=words):
            load_new({"policies": {}} | document)


def test_outside_working_hours_people_are_asked_and_the_card_says_so(trip, acme, ada):
    always_open = {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "from": "00:00"}
    rule = {"pay.*": {"when": "!working_hours", "approval": "MANUAL", "words": "Nobody is there"}}
    policies = {"pay.*": {"approval": "AUTO"}}
    put_in_force(
        acme, ada, {"policies": policies, "always": rule, "hours": always_open | {"to": "24:00"}}
    )
    assert trip.begin(tool="pay.card", key="k1", action="a1").json()["answer"] == "proceed"
    closed = [(now() + timedelta(days=one)).date().isoformat() for one in (-1, 0, 1)]
    put_in_force(acme, ada, {
        "policies": policies, "always": rule,
        "hours": always_open | {"to": "24:00", "closed": closed},
    })  # fmt: skip
    assert trip.begin(tool="pay.card", key="k2", action="a2").json()["answer"] == "wait"
    assert Approval.objects.get().rules[0]["facts"] == ["It is outside working hours"]


def test_where_nobody_decides_in_time_a_second_team_is_asked_and_everybody_is_told(
    trip, acme, ada, finance, ben, client, django_capture_on_commit_callbacks
):
    night = team(acme, "night", "view", "approve")
    nora = person("nora", night)
    rule = {
        "approval": "MANUAL", "requires": [{"group": "finance"}],
        "escalate": {"after": "10m", "group": "night"},
    }  # fmt: skip
    put_in_force(acme, ada, {"policies": {"pay.*": rule}})
    trip.begin(tool="pay.card")
    approval = Approval.objects.get()
    with pytest.raises(inbox.NotEntitled):
        inbox.grant(approval, by=nora, seen=approval.digest)
    assert periodic.escalate_due() == 0, "not yet"

    Approval.objects.update(escalate_at=Now())
    with as_the_desk():
        assert periodic.escalate_due() == 1
        assert periodic.escalate_due() == 0, "once"
    [said] = told(acme, "approval.escalated")
    assert (said["team"], said["people"]) == ("night", [nora.pk])
    client.force_login(nora)
    card = client.get(f"/w/acme/approvals/{approval.pk}/").content.decode()
    assert "1 person from finance or, as nobody had decided in time, from night" in card
    assert "night is asked, too, after 10 min" in card
    assert (
        "escalated: nobody had decided in time" in client.get("/w/acme/approvals/").content.decode()
    )

    inbox.grant(approval, by=nora, seen=approval.digest)
    assert trip.begin(tool="pay.card").json()["answer"] == "proceed"


def test_a_question_that_cannot_escalate_keeps_no_other_waiting_and_its_error_is_told(
    trip, acme, ada, ben
):
    person("nora", team(acme, "night", "view", "approve"))
    later = {"after": "10m", "group": "night"}
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL", "escalate": later}}})
    trip.begin(tool="pay.card", key="k1")
    trip.begin(tool="pay.card", key="k2", action="act_2")
    odd, other = Approval.objects.order_by("pk")
    broken = [odd.rules[0] | {"escalate": {"seconds": "ten", "team": "night"}}]
    Approval.objects.filter(pk=odd.pk).update(rules=broken)
    Approval.objects.update(escalate_at=Now())

    with pytest.raises(ValueError, match="ten"):
        periodic.escalate_due()

    escalated = Approval.objects.exclude(escalated_at=None)
    assert [one.pk for one in escalated] == [other.pk]


def test_a_question_that_is_answered_or_over_is_not_escalated(trip, acme, ada, ben):
    person("nora", team(acme, "night", "view", "approve"))
    later = {"after": "10m", "group": "nigth"}
    rule = {"approval": "MANUAL", "escalate": later}
    with pytest.raises(Invalid, match="there is no team “nigth”"):
        put_in_force(acme, ada, {"policies": {"pay.*": rule}})
    later["group"] = "night"
    put_in_force(acme, ada, {"policies": {"pay.*": rule}})
    trip.begin(tool="pay.card")
    approval = Approval.objects.get()
    inbox.grant(approval, by=ben, seen=approval.digest)
    Approval.objects.update(escalate_at=Now())
    assert periodic.escalate_due() == 0


def test_a_yes_for_later_lets_the_agent_wait_until_its_moment_has_come(
    trip, acme, ada, ben, client
):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip.begin(tool="pay.card")
    approval = Approval.objects.get()
    client.force_login(ben)
    url = f"/w/acme/approvals/{approval.pk}/later/"
    soon = now() + timedelta(minutes=20)

    def post(moment):
        return client.post(url, {"digest": approval.digest, "not-before": moment})

    for wrong in ("", "tomorrow", (now() - timedelta(minutes=1)).isoformat(),
                  (approval.expires_at + timedelta(hours=1)).isoformat()):  # fmt: skip
        assert post(wrong).status_code == 422, wrong
    approval.refresh_from_db()
    assert (approval.state, approval.not_before) == ("waiting", None)

    with as_the_desk():
        assert post(soon.strftime("%Y-%m-%dT%H:%M")).status_code == 302
    approval.refresh_from_db()
    assert approval.state == "granted"
    moment, later, earlier = (soon + timedelta(minutes=one) for one in (0, 5, -5))
    assert post(moment.strftime("%Y-%m-%dT%H:%M")).status_code == 302, "the answer did not come"
    for other in (later, earlier):
        assert post(other.strftime("%Y-%m-%dT%H:%M")).status_code == 409
    said = {"digest": approval.digest, "decision": "grant"}
    at_once = client.post(url.replace("later/", "decide/"), said)
    assert at_once.status_code == 409, "at once is another answer than later"
    long = {"digest": approval.digest, "not-before": str(soon), "reason": "x" * 9_000}
    assert client.post(url, long).status_code == 409
    assert told(acme, "approval.put_off")[0]["until"] == approval.not_before.isoformat()
    assert trip.begin(tool="pay.card").json()["answer"] == "wait"
    assert trip.request("GET", f"/api/v1/approvals/{approval.pk}").json()["state"] == "waiting"
    assert not grants.use(approval.pk, approval.digest), "nor by any other way"
    assert grants.why_unused(approval.pk, approval.digest, now=now()).code == "paused"
    drawn = client.get(url.replace("later/", "")).content.decode()
    assert re.search(r'id="not-yet"><p>Not before .*: until then its call waits', drawn)
    [badge] = re.findall(r'<span id="state">(.*?)</span></span>', drawn)
    assert "Approved" in badge

    Approval.objects.update(not_before=Now())
    assert trip.request("GET", f"/api/v1/approvals/{approval.pk}").json()["state"] == "granted"
    assert trip.begin(tool="pay.card").json()["answer"] == "proceed"


def test_what_one_of_two_puts_off_is_no_other_answer_of_the_other(
    trip, acme, ada, ben, cleo, client
):
    rule = {"approval": "MANUAL", "requires": [{"count": 2}]}
    put_in_force(acme, ada, {"policies": {"pay.*": rule}})
    trip.begin(tool="pay.card")
    approval = Approval.objects.get()
    url = f"/w/acme/approvals/{approval.pk}/"
    said = {"digest": approval.digest, "decision": "grant"}
    soon = (now() + timedelta(minutes=20)).strftime("%Y-%m-%dT%H:%M")

    def post(person, act):
        client.force_login(person)
        moment = {"not-before": soon} if act == "later" else {}
        return client.post(f"{url}{act}/", said | moment).status_code

    given = [(cleo, "decide"), (ben, "later")]
    assert [post(*one) for one in given] == [302, 302]
    assert [post(*one) for one in given] == [302, 302], "the answer did not come"
    assert [post(cleo, "later"), post(ben, "decide")] == [409, 409]


@pytest.mark.parametrize(
    ("act", "answer"), [("decide", {"decision": "grant"}), ("more", {"more-uses": "2"})]
)
def test_who_has_typed_a_moment_approves_nothing_at_once(trip, acme, ada, ben, client, act, answer):
    rule = {"approval": "MANUAL", "bounded": {"uses": 3, "for": "1d"}}
    put_in_force(acme, ada, {"policies": {"pay.*": rule}})
    trip.begin(tool="pay.card")
    approval = Approval.objects.get()
    client.force_login(ben)
    here, soon = f"/w/acme/approvals/{approval.pk}/", "2031-05-06T09:30"
    said = {"digest": approval.digest, "reason": "fine", "not-before": soon} | answer

    refused = client.post(f"{here}{act}/", said)

    assert refused.status_code == 422
    assert "by this button it would go on at once" in refused.text
    assert f'name="not-before" value="{soon}"' in refused.text, "what was typed stays"
    assert re.search(r'id="later" open', refused.text)
    approval.refresh_from_db()
    assert approval.state == "waiting"
    no = client.post(f"{here}decide/", said | {"decision": "reject"})
    assert no.status_code == 302, "a no is a no at any time"


def test_no_card_offers_a_moment_beside_the_glass_which_would_pass_over_it(
    trip, acme, ada, ben, operators, client
):
    rule = {"approval": "MANUAL"}
    put_in_force(acme, ada, {"policies": {"pay.*": rule}, "breakGlass": {"after": "15m"}})
    trip.begin(tool="pay.card")
    Approval.objects.update(asked_at=now() - timedelta(hours=1))
    approval, olga = Approval.objects.get(), person("olga", operators)

    for who, moment, glass in ((ben, True, False), (olga, False, True)):
        client.force_login(who)
        page = client.get(f"/w/acme/approvals/{approval.pk}/").text
        assert ('name="not-before"' in page, "one of two" in page) == (moment, glass), who


@pytest.mark.parametrize("end", ["withdrawn", "expired"])
def test_an_open_card_of_a_yes_that_is_over_says_so_at_its_badge_and_waits_for_no_moment(
    trip, acme, ada, ben, client, end
):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip.begin(tool="pay.card")
    approval = Approval.objects.get()
    grants.put_off(approval, now() + timedelta(minutes=20), by=ben, now=now())
    inbox.grant(approval, by=ben, seen=approval.digest)
    client.force_login(ben)
    asked = f"/w/acme/approvals/{approval.pk}/outcome/"
    under_way = client.get(asked, headers={"HX-Request": "true"}).content.decode()
    assert "hx-swap-oob" not in under_way

    if end == "withdrawn":
        inbox.withdraw(approval, by=ben, reason="too late")
    else:
        Approval.objects.update(expires_at=Now())
        periodic.expire_due()

    told = client.get(asked, headers={"HX-Request": "true"}).content.decode()
    [badge] = re.findall(r'<span hx-swap-oob="innerHTML:#state">(.*?)</span></span>', told)
    assert "Approved" not in badge
    assert end in badge.lower()
    assert 'hx-swap-oob="delete:#not-yet"' in told


def test_a_team_that_only_another_rule_asks_is_not_stood_in_for(
    trip, acme, ada, finance, ben, leads
):
    nora = person("nora", team(acme, "night", "view", "approve"))
    put_in_force(acme, ada, {
        "policies": {"pay.*": {"approval": "MANUAL", "requires": [{"group": "finance"}],
                               "escalate": {"after": "10m", "group": "night"}}},
        "always": {"pay.*": {"approval": "MANUAL", "requires": [{"group": "leads"}]}},
    })  # fmt: skip
    person("lea", leads)
    trip.begin(tool="pay.card")
    Approval.objects.update(escalate_at=Now())
    assert periodic.escalate_due() == 1

    approval = Approval.objects.get()
    teams = approval.requirements.values_list("team__name", "escalated_to__name")
    assert dict(teams) == {"finance": "night", "leads": None}
    inbox.grant(approval, by=ben, seen=approval.digest)
    with pytest.raises(inbox.NotEntitled):
        inbox.grant(approval, by=nora, seen=approval.digest)


def test_where_nobody_may_be_asked_instead_nobody_is_told_that_somebody_was(
    trip, acme, ada, finance, leads, ben, cleo
):
    person("nora", team(acme, "night", "view", "approve"))
    finance_too = [{"group": "finance"}]
    put_in_force(acme, ada, {
        "policies": {"pay.*": {"approval": "MANUAL", "requires": finance_too,
                               "escalate": {"after": "10m", "group": "night"}}},
        "always": {"pay.*": {"approval": "MANUAL", "requires": finance_too}},
    })  # fmt: skip
    trip.begin(tool="pay.card")
    Approval.objects.update(escalate_at=Now())
    with as_the_desk():
        assert periodic.escalate_due() == 0
    assert (Approval.objects.get().escalated_at, told(acme, "approval.escalated")) == (None, [])


def test_who_only_asks_what_would_be_hears_of_a_yes_for_later(trip, acme, ada, ben):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip.begin(tool="pay.card")
    approval = Approval.objects.get()
    grants.put_off(approval, now() + timedelta(minutes=5), by=ben, now=now())
    inbox.grant(approval, by=ben, seen=approval.digest)
    assert trip.begin(tool="pay.card", explain=True).json()["answer"] == "wait"
    Approval.objects.update(not_before=Now())
    assert trip.begin(tool="pay.card", explain=True).json()["answer"] == "proceed"


def test_a_yes_that_has_to_be_signed_is_not_given_for_later(trip, acme, ada, ben, client):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip.begin(tool="pay.card")
    Approval.objects.update(signed=True)
    approval = Approval.objects.get()
    client.force_login(ben)
    card = f"/w/acme/approvals/{approval.pk}/"
    page = client.get(card).content.decode()
    assert "No yes for later: Each yes is signed" in page, "whoever looks for it reads why not"
    assert "Approve for later" not in page, "what cannot be pressed is no button"
    assert 'name="not-before"' not in page
    soon = (now() + timedelta(minutes=20)).strftime("%Y-%m-%dT%H:%M")
    answer = client.post(f"{card}later/", {"digest": approval.digest, "not-before": soon})
    assert (answer.status_code, "names no moment" in answer.content.decode()) == (422, True)
    assert Approval.objects.get().not_before is None


def test_a_call_that_somebody_approved_for_later_is_let_pass_by_no_grant_before(
    trip, acme, ada, ben
):
    rule = {"approval": "MANUAL", "bounded": {"uses": 5, "for": "1h"}}
    put_in_force(acme, ada, {"policies": {"pay.*": rule}})
    trip.begin(tool="pay.card", key="k0", action="a0")
    trip.begin(tool="pay.card", key="k1", action="a1", attempt="t1")
    first, later = Approval.objects.order_by("pk")
    grants.put_off(later, now() + timedelta(minutes=30), by=ben, now=now())
    bounded_grants.approve_with_more(
        first, by=ben, seen=first.digest, reason="a batch",
        typed={"uses": "3", "hours": "1", "target": "any"},
    )  # fmt: skip

    assert covered_questions.release_due() == 0
    asked = trip.begin(tool="pay.card", key="k1", action="a1", attempt="t1")
    assert asked.json()["answer"] == "wait"
    later.refresh_from_db()
    [(_, why)] = covered_questions.standing_for(later)
    assert why == "somebody approved it for later"
    Approval.objects.update(not_before=None)
    assert covered_questions.release_due() == 1, "else it would"


def test_what_stays_put_keeps_no_grant_and_no_question_from_its_turn(
    trip, acme, ada, ben, monkeypatch
):
    """A batch is one row here, and two hundred in earnest."""
    monkeypatch.setattr(covered_questions, "BATCH", 1)
    rule = {"approval": "MANUAL", "bounded": {"uses": 5, "for": "1h", "same": ["args.to"]}}
    put_in_force(acme, ada, {"policies": {"pay.*": rule}})
    for n, (tool, to) in enumerate(
        [("pay.mail", "x"), ("pay.card", "x"), ("pay.card", "other"), ("pay.card", "x")]
    ):
        trip.begin(tool=tool, key=f"k{n}", action=f"a{n}", attempt=f"t{n}", args={"to": to})
    mail, card, other, alike = Approval.objects.order_by("pk")
    grants.put_off(alike, now() + timedelta(minutes=30), by=ben, now=now())
    for question in (mail, card):
        bounded_grants.approve_with_more(
            question, by=ben, seen=question.digest, reason="a batch",
            typed={"uses": "3", "hours": "1", "target": "any"},
        )  # fmt: skip
    Approval.objects.update(not_before=None)

    assert covered_questions.release_due() == 1

    other.refresh_from_db()
    alike.refresh_from_db()
    assert (other.state, alike.state) == ("waiting", "withdrawn")


def test_a_key_that_came_more_than_four_hundred_days_ago_is_forgotten(trip):
    for days in (402, 399, 0):
        trip.begin(tool="pay.card", action=f"act_{days}", key=f"key-{days}")
    with connection.cursor() as owner:  # only the tables' owner turns the clock back
        owner.execute("ALTER TABLE approvals_gatekey DISABLE TRIGGER gate_key_keeps_its_age")
        for days in (402, 399):
            old = GateKey.objects.filter(key=f"key-{days}")
            old.update(met_at=F("met_at") - timedelta(days=days))
        owner.execute("ALTER TABLE approvals_gatekey ENABLE TRIGGER gate_key_keeps_its_age")

    assert periodic.forget_old_keys() == 1

    assert set(GateKey.objects.values_list("key", flat=True)) == {"key-399", "key-0"}
