"""How fast agents may ask: one that asks without end is told when to come back, nobody else is."""

import asyncio
import threading
import time

import pytest
import redis
from django.core.management import call_command

from tests.ledger.conftest import bearer
from workspaces import keys, rates

pytestmark = pytest.mark.django_db(transaction=True)

A_MINUTE = {"key": 6, "agent": 0, "workspace": 0}
POLICY: tuple[str, str, dict[str, str]] = ("GET", "/api/v1/policy", {})
BUCKET = rates.Bucket("key", "1:key:0123456789", 1)
"""One request, and then none for a minute."""


def test_who_asks_too_fast_is_told_when_to_come_back_and_others_are_answered(
    call,
    settings,
    northwind,
    trip_desk,
    ada,
):
    settings.RATES = A_MINUTE
    quiet = keys.create_key(trip_desk, by=ada, name="quiet")[1]

    first, second, other = call(POLICY, POLICY, (*POLICY[:2], {"headers": bearer(quiet)}))

    assert (first.status_code, second.status_code, other.status_code) == (200, 429, 200)
    assert second.headers["retry-after"] == "10"
    assert second.json()["type"] == "urn:amends:problem:rate"
    assert second.json()["detail"] == "At most 6 requests a minute for each key."


def test_who_asks_on_without_heed_is_refused_after_others_are_answered(
    at_the_door, settings, northwind, trip_desk, ada
):
    """Else the next question comes at once, and the answer to it is all that a process does."""
    settings.RATES = A_MINUTE
    loud, quiet = (keys.create_key(trip_desk, by=ada, name=name)[1] for name in ("loud", "quiet"))
    order = []

    async def story(client):
        async def ask(token):
            answer = await client.get(POLICY[1], headers=bearer(token))
            order.append((token, answer.status_code))

        await ask(loud)
        await asyncio.gather(ask(loud), ask(quiet))

    at_the_door(story)

    assert order == [(loud, 200), (quiet, 200), (loud, 429)]


def test_where_very_many_are_refused_they_are_so_at_once(monkeypatch):
    """Each that waits holds a connection, and more of them than that would be the greater harm."""
    monkeypatch.setattr(rates, "HELD_BACK_MAX", 2)

    async def story():
        held = [asyncio.create_task(rates.rates.hold_back()) for _ in range(4)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        at_once = [one.done() for one in held]
        await asyncio.gather(*held)
        await asyncio.create_task(rates.rates.hold_back())
        return at_once

    assert asyncio.run(story()) == [False, False, True, True]


def test_an_operator_sets_limits_of_a_workspace_and_its_page_shows_whom_they_met(
    call,
    client,
    northwind,
    trip_desk,
    ada,
):
    from workspaces import teams

    ada.groups.add(teams.create(northwind, "all", by=None, may=["view"]).group)
    call_command("limits", "northwind", "--agent", "6", "--workspace", "0")

    answers = call(POLICY, POLICY)
    rates.rates._tell(rates._valkey())

    assert [one.status_code for one in answers] == [200, 429]
    client.force_login(ada)
    page = client.get("/w/northwind/settings/keys/").content.decode()
    assert "<code>trip-desk</code> 1 ×" in page
    assert "6 <span" in page


def test_a_persons_token_is_counted_too(client, settings, northwind, ada):
    settings.RATES = A_MINUTE
    token = keys.create_token(northwind, by=ada, name="script")[1]

    shown = {"authorization": f"Bearer {token}"}

    asked = [client.get("/api/v1/cases", headers=shown) for _ in "12"]

    assert asked[0].status_code != 429
    assert (asked[1].status_code, asked[1].headers["retry-after"]) == (429, "10")


def process():
    """The buckets of a web process that tells Valkey when the story says so."""
    found = rates.Rates()
    found._teller = threading.current_thread()
    return found


def let_in(process):
    """How many of five requests at once."""
    found = 0
    for _ in range(5):
        try:
            process.take(1, [BUCKET])
        except rates.TooFast:
            continue
        found += 1
    return found


@pytest.fixture
def valkey():
    found = rates._valkey()
    found.delete(f"amends:rate:{BUCKET.whose}")
    return found


def test_processes_add_up_what_they_let_in(valkey):
    """Each lets in what it does not yet know of; once told, the bucket is overfull for both."""
    one, another = process(), process()
    let_in(one)
    one._tell(valkey)
    first = let_in(another)
    another._tell(valkey)

    assert first == 1
    assert another._meters[BUCKET.whose].level > 1


def test_a_process_whose_teller_has_died_tells_again(valkey):
    """Of an error that nobody foresaw, or because the process was forked from one that told."""
    found, ended = rates.Rates(), threading.Thread(target=int)
    ended.start()
    ended.join()
    found._teller = ended

    found.take(1, [BUCKET])

    until = time.monotonic() + 60
    while not valkey.exists(f"amends:rate:{BUCKET.whose}") and time.monotonic() < until:
        time.sleep(0.01)
    assert float(valkey.hget(f"amends:rate:{BUCKET.whose}", "level")) > 0


def test_while_valkey_is_away_each_counts_by_itself(valkey, settings):
    one, another = process(), process()
    let_in(one)
    one._tell(redis.Redis(port=1))
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    assert let_in(one) == 0
    assert let_in(another) == 1
    assert one._is_alone
    assert rates.refused_lately(1) is None
    one._tell(valkey)
    assert not one._is_alone


def test_after_a_long_outage_nobody_is_held_for_what_came_meanwhile(valkey):
    one = process()
    for _ in range(3):
        let_in(one)
        one._tell(redis.Redis(port=1))
        one._meters[BUCKET.whose].at -= 3_600  # an hour without Valkey
    one._tell(valkey)

    assert let_in(process()) == 1
    another = process()
    another.take(1, [BUCKET])
    another._tell(valkey)
    assert another._meters[BUCKET.whose].level == pytest.approx(1.0, abs=0.1)


def test_a_large_body_counts_for_more():
    one = process()
    one.take(1, [BUCKET], body_bytes=3 * rates.BODY_BYTES_OF_ONE)

    with pytest.raises(rates.TooFast) as fast:
        one.take(1, [BUCKET])

    assert 180 < fast.value.seconds <= 240


def test_a_clock_that_is_set_back_holds_nobody(valkey):
    """Valkey counts by its own clock: what it wrote an hour ahead of now is over all the same."""
    key = f"amends:rate:{BUCKET.whose}"
    valkey.hset(key, mapping={"level": 0.5, "at": time.time() + 3_600, "rate": 1 / 60})
    one = process()
    let_in(one)
    one._tell(valkey)

    assert one._meters[BUCKET.whose].level == pytest.approx(1.5, abs=0.1)


def test_a_body_that_is_only_said_to_be_large_fills_no_bucket_for_hours():
    one, fast = process(), BUCKET._replace(per_minute=6_000)
    one.take(1, [fast], body_bytes=10**18)

    assert one._meters[BUCKET.whose].level == 129


def test_who_is_told_to_be_slower_waits_no_longer_than_a_full_bucket_takes(valkey):
    one, fast = process(), BUCKET._replace(per_minute=60_000)
    one.take(1, [fast], body_bytes=rates.BODY_BYTES_MAX)
    one._tell(valkey)
    other = process()
    other.take(1, [BUCKET._replace(per_minute=60)])
    other._tell(valkey)

    assert other._meters[BUCKET.whose].level < 1.5
    one.take(1, [BUCKET._replace(per_minute=60)])
    assert one._meters[BUCKET.whose].level < 1.5
