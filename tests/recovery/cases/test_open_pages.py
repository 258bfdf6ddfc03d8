"""What a page says is so, also when it has stood open for a while."""

import re
from datetime import timedelta

from django.utils import timezone

from recovery.casework import closing
from recovery.corrections import publishing
from recovery.models import Case
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand

TICKING = r'{} <time datetime="[^"]+" data-moment="{}" data-exact="[^"]+">{}</time>'


def test_what_is_due_goes_on_counting(desk, case):
    Case.objects.update(
        due_at=timezone.now() + timedelta(hours=2, seconds=59),
        undo_until=timezone.now() + timedelta(hours=1, seconds=59),
    )
    queue, peeked, page = "queue/", f"queue/?peek={case.pk}", f"cases/{case.pk}/"

    for path in (queue, page):
        assert re.search(TICKING.format("due", "ago", "in 2 h"), desk.get(f"/w/acme/{path}").text)
    fact = TICKING.format("<dt>Due</dt><dd>due", "ago", "in 2 h")
    assert re.search(fact, desk.get(f"/w/acme/{peeked}").text)
    closes = TICKING.format("undo closes", "ago", "in 1 h")
    assert re.search(closes, desk.get(f"/w/acme/{queue}").text)
    Case.objects.update(due_at=timezone.now() - timedelta(minutes=5, seconds=30))
    late = TICKING.format("past due for", "span", "5 min")
    for path in (queue, page):
        assert re.search(late, desk.get(f"/w/acme/{path}").text)


def test_how_long_ago_it_was_closed_goes_on_counting(desk, case, ada):
    closing.close(case, outcome="duplicate", reason="<b>Twice</b>", by=ada, seen=case.revision)

    page = desk.get(f"/w/acme/cases/{case.pk}/").text

    assert re.search(TICKING.format("by Ada", "ago", r"\d+ s ago"), page)
    assert "“&lt;b&gt;Twice&lt;/b&gt;”" in page, "what people write is no markup of it"


def test_the_badge_of_the_queue_is_told_with_the_news(desk, case):
    drawn = {"since": (timezone.now() - timedelta(hours=1)).isoformat()}
    there = "/w/acme/queue/"
    assert '<span class="count urgent" data-count="queue">1</span>' in desk.get(there).text

    assert desk.get(f"{there}fresh/", drawn).json()["counts"] == {"queue": "1"}
    Case.objects.update(snoozed_until=timezone.now() + timedelta(hours=1))
    assert desk.get(f"{there}fresh/", drawn).json()["counts"] == {"queue": "0"}
    hidden = '<span class="count urgent" data-count="queue" hidden>0</span>'
    assert hidden in desk.get(there).text, "nothing to see, and a place for news"


def test_of_related_cases_no_more_is_claimed_than_was_looked_for(desk, case):
    page = desk.get(f"/w/acme/cases/{case.pk}/?tab=related")

    assert "No other case has this customer or cause." in page.text


def test_the_page_is_new_as_the_plan_is_over_and_again_as_its_correction_stands(desk, case, ada):
    """What the reader can do next is on the page then, without a hand at it."""
    plan = submitted(case, ada, reason="wrong")

    def asked_next():
        return desk.get(f"/w/acme/cases/{case.pk}/").context["plan"]["progress_url"]

    def is_new(asked):
        return "HX-Refresh" in desk.get(asked, headers={"HX-Request": "true"})

    runs = asked_next()
    assert not is_new(runs)
    by_hand.advance(plan.pk)
    assert is_new(runs)

    closed = asked_next()
    assert not is_new(closed)
    assert publishing.draft_due() == 1
    assert is_new(closed)
    assert asked_next() == ""
