"""Approval health: where asking people has become a habit of saying yes."""

import re
from datetime import timedelta
from statistics import median

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from approvals import approval_requests, grants, health, inbox, periodic
from approvals.models import Approval
from approvals.views import card
from tests.people import logged_in, person
from workspaces import clock

PAGE = "/w/acme/approvals/health/"


@pytest.fixture
def as_ben(ben):
    return logged_in(ben)


RULE = {"glob": "crm.*", "words": "Somebody looks at CRM changes"}


def granted(ask, by, seconds, **judged):
    approval = ask(**judged)
    inbox.grant(approval, by=by, seen=approval.digest, shown_seconds=seconds)
    return approval


def expired(approval):
    Approval.objects.filter(pk=approval.pk).update(expires_at=Now() - timedelta(seconds=1))
    periodic.expire_due()


def test_the_figures_count_what_happened(ask, acme, ben, cleo):
    slow, fast = granted(ask, ben, 40), granted(ask, ben, 1.5)
    grants.use(slow.pk, slow.digest)
    rejected = ask()
    inbox.reject(rejected, by=cleo, seen=rejected.digest, reason="no", shown_seconds=60)
    expired(ask())
    expired(fast)
    taken = granted(ask, cleo, 30)
    inbox.withdraw(taken, by=ben, reason="seen the second mail")
    ask()

    found = health.of(acme)

    assert (found.asked, found.granted, found.ends["rejected"], found.ends["expired"]) == (
        6, 3, 1, 1,
    )  # fmt: skip
    assert (found.fast, found.never_used, found.taken_back) == (1, 1, 1)
    inbox.withdraw(ask(), by=ben, reason="asked twice")
    figures = logged_in(ben).get("/w/acme/approvals/health/").context["figures"]
    [ended] = [one for one in figures if one["name"] == "Ended"]
    assert ended["value"] == 6
    assert ended["note"] == "3 granted · 1 rejected · 1 expired · 1 withdrawn; 1 more wait"
    assert len(found.decide_seconds) == 2  # the others ended otherwise, or wait
    rates = {one.name: (one.yes, one.no, one.rate, one.fast) for one in found.people}
    assert rates == {"Ben": (2, 0, 100, 1), "Cleo": (1, 1, 50, 0)}


def test_the_few_figures_beside_others_are_those_of_the_page(ask, acme, ben, cleo):
    used, rejected, expired_granted = ask(), ask(), granted(ask, ben, 1)
    inbox.grant(used, by=ben, seen=used.digest)
    grants.use(used.pk, used.digest)
    inbox.reject(rejected, by=cleo, seen=rejected.digest, reason="no")
    expired(expired_granted)
    expired(ask())
    taken = granted(ask, cleo, 30)
    inbox.withdraw(taken, by=ben, reason="seen the second mail")
    granted(ask, ben, 2)
    long_ago = granted(ask, ben, 3)
    Approval.objects.update(asked_at=rejected.asked_at)  # one day, also while a day ends
    Approval.objects.filter(pk=long_ago.pk).update(asked_at=Now() - timedelta(days=40))
    Approval.objects.filter(pk=used.pk).update(asked_at=Now() - timedelta(days=2, hours=1))

    found = health.of(acme)
    whole, days = health.decision_times_of(acme)

    assert (whole.asked, whole.granted) == (found.asked, found.granted) == (6, 4)
    inbox.withdraw(ask(), by=ben, reason="asked twice")
    ask()
    now, found = health.decision_times_of(acme)[0], health.of(acme)
    names = ("rejected", "expired", "withdrawn", "waiting")
    ends = tuple(found.ends[one] for one in names)
    assert tuple(getattr(now, one) for one in names) == ends == (1, 1, 1, 1)
    assert (now.asked, now.granted + sum(ends)) == (8, 8), "each question is one of these"
    listed = logged_in(ben).get("/w/acme/approvals/history/?q=is:withdrawn").context["rows"]
    assert len(listed) == now.withdrawn, "one that was granted and then taken back is another"
    assert whole.median_seconds == pytest.approx(found.median_seconds)
    medians = {f"{one.day:%Y-%m-%d}": one.median_seconds for one in days}
    assert medians == {day: pytest.approx(median(each)) for day, each in found.by_day.items()}
    assert len(medians) == 2
    assert [one.asked for one in days] == [1, 5]


def test_a_day_is_one_of_the_page_s_clock(ask, acme, ben):
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    before = midnight - timedelta(minutes=30)
    one = granted(ask, ben, 1)
    Approval.objects.filter(pk=one.pk).update(asked_at=before)

    def days():
        told = [f"{one.day:%Y-%m-%d}" for one in health.decision_times_of(acme)[1]]
        assert told == list(health.of(acme).by_day)
        return told

    assert days() == [f"{before:%Y-%m-%d}"]
    with timezone.override("Pacific/Auckland"):
        assert days() == [f"{midnight:%Y-%m-%d}"]


def test_nobody_was_asked(acme):
    assert health.decision_times_of(acme) == (health.DecisionTimes(), [])


def test_a_rule_that_always_gets_a_fast_yes_is_pointed_out(ask, acme, ben, as_ben):
    for _ in range(health.ENOUGH_TO_JUDGE):
        granted(ask, ben, 0.8, rules=(RULE,))
    read_with_care = {"glob": "pay.*", "words": "Payments"}
    refused = ask(rules=(read_with_care,))
    inbox.reject(refused, by=ben, seen=refused.digest, reason="twice", shown_seconds=0.8)
    for _ in range(health.ENOUGH_TO_JUDGE):
        granted(ask, ben, 45, rules=(read_with_care,))

    assert [one.words for one in health.of(acme).rubber_stamped] == [RULE["words"]]
    assert {one.words: one.fast for one in health.of(acme).rules}["Payments"] == 0, "a fast no"
    shown = as_ben.get(PAGE).content.decode()
    assert "Always a fast yes." in shown
    assert "“Somebody looks at CRM changes” asked 5 times" in shown


def test_the_plot_has_an_axis_and_its_numbers_stand_below(ask, acme, ben, as_ben):
    approval = granted(ask, ben, 1)
    asked = approval.asked_at - timedelta(minutes=3)
    Approval.objects.filter(pk=approval.pk).update(asked_at=asked)

    shown = as_ben.get(PAGE + "?days=7")

    page, plot = shown.content.decode(), shown.context["plot"]
    assert (plot.heights, len(plot.names)) == (("4 min", "2 min", "0"), 7)
    assert "<span>4 min</span><span>2 min</span><span>0</span>" in page
    assert [words for _, words in shown.context["medians"]] == ["3 min"]
    assert "<td>3 min</td>" in page


def test_one_slow_no_takes_a_rule_off_that_list(ask, acme, ben):
    for _ in range(health.ENOUGH_TO_JUDGE):
        granted(ask, ben, 0.8, rules=(RULE,))
    approval = ask(rules=(RULE,))
    inbox.reject(approval, by=ben, seen=approval.digest, reason="no", shown_seconds=0.5)

    assert health.of(acme).rubber_stamped == []


def test_every_figure_equals_the_list_that_it_opens(ask, acme, ben, as_ben, subtests):
    granted(ask, ben, 1.0)
    expired(granted(ask, ben, 2.0))
    expired(ask())
    inbox.withdraw(granted(ask, ben, 30), by=ben, reason="second thoughts")
    for _ in range(2):  # of another time: neither counted nor listed
        long_ago = granted(ask, ben, 1.0)
        expired(long_ago)
        Approval.objects.filter(pk=long_ago.pk).update(asked_at=Now() - timedelta(days=40))

    shown = as_ben.get(PAGE).content.decode()
    none = as_ben.get("/w/acme/approvals/history/?q=nothing-like-that").content.decode()
    assert "Drop the search" in none, "the way on is one click away"

    for q, made in {"is:fast": 2, "is:expired": 1, "is:unused": 1, "is:overturned": 1}.items():
        [figure] = re.findall(rf'q={q}\+asked:30d">[^<]*</a></h2></header><div class="inner">'
                              r'<span class="amount">(\d+)', shown)  # fmt: skip
        listed = as_ben.get(f"/w/acme/approvals/history/?q={q}+asked:30d").content.decode()
        with subtests.test(q=q):
            assert int(figure) == made == listed.count('class="row-link"')


def test_what_the_desk_takes_back_to_ask_anew_is_nobodys_change_of_mind(ask, acme, ben, as_ben):
    approval = granted(ask, ben, 30)
    approval.refresh_from_db()
    approval_requests.void(approval, why="the policy has become stricter since")

    assert health.of(acme).overturned == 0
    listed = as_ben.get("/w/acme/approvals/history/?q=is:overturned").content.decode()
    assert 'class="row-link"' not in listed


def test_an_empty_desk_and_a_stranger(as_ben, dev, acme):
    assert "Nobody was asked" in as_ben.get(PAGE).content.decode()
    browser = logged_in(dev)
    assert browser.get(PAGE).status_code == 404


def test_answers_of_one_person_open_by_name(ask, ben, cleo, as_ben, finance):
    granted(ask, ben, 10)
    granted(ask, person("fred", finance), 10)
    shown = as_ben.get(f"/w/acme/approvals/history/?q=by:{ben.pk}").content.decode()
    assert shown.count('class="row-link"') == 1


@pytest.mark.parametrize("astray", [timedelta(hours=1), -timedelta(hours=1)], ids=str)
def test_how_long_a_card_was_looked_at_is_no_matter_of_the_clocks_of_two_web_processes(
    ask, monkeypatch, astray
):
    approval, right, shown_at = ask(), timezone.now, clock.now()
    with monkeypatch.context() as another_web:
        another_web.setattr(timezone, "now", lambda: right() + astray)
        stamp = card.shown_stamp(approval)

    monkeypatch.setattr(clock, "now", lambda: shown_at + timedelta(seconds=12))
    assert 11 < card.shown_seconds(stamp) <= 12
    monkeypatch.setattr(clock, "now", lambda: shown_at + timedelta(days=2))
    assert card.shown_seconds(stamp) is None
