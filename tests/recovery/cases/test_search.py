"""The queue's query language: what it means, and where it says that it cannot be read."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from approvals import pauses
from ledger.models import Run
from recovery import search
from recovery.casework import cases, closing
from recovery.models import Case
from recovery.search.keys import KEYS, parse
from recovery.search.language import QUERY_CHARACTERS_MAX, QueryError
from recovery.search.lists import BY_HEART, RECENT_DAYS
from recovery.triage import case_projection, triage
from tests.recovery.cases.cast import AgentRun, submitted
from tests.worlds import kept
from workspaces import clock
from workspaces.models import User


@pytest.fixture
@kept(in_turn=True)
def queue(agent, policy):
    """Three open cases: two tickets, low, and a user, high."""
    for name, tool, target in (
        ("run_1", "tickets.update", "T-182"),
        ("run_2", "users.update", "U-7"),
        ("run_3", "tickets.close", "T-9"),
    ):
        run = AgentRun(agent, name).begins("Refund me")
        done = run.does(tool, (tool.partition(".")[0], target, {"a": 1}, {"a": 2}))
        error = {"type": "Gone", "message": f"no such {target}"}
        run.ends("failed", failed_action=done, error=error)
    triage.look()
    return agent.workspace


def runs(workspace, text, by=None):
    return [one.run.run for one in search.find(workspace, text, by=by).cases]


OF_MONEY = [
    ("amount:>1000", ["run_1"]),
    ("amount:>999", ["run_2", "run_3", "run_1"]),
    ("amount:1000", ["run_2", "run_3"]),
    ("amount:<1000.0005", ["run_2", "run_3"]),
    ("amount:1000.001", []),
    ("amount:<1000", []),
]


def test_an_amount_is_in_whole_units_of_the_currency_of_each_case(queue, subtests):
    """1 001 yen, 1 000.00 euros and 1 000.000 dinars."""
    amounts = {"run_1": (1001, "JPY"), "run_2": (100_000, "EUR"), "run_3": (1_000_000, "KWD")}
    for run, (minor, currency) in amounts.items():
        Case.objects.filter(run__run=run).update(amount_minor=minor, currency=currency)
    for text, found in OF_MONEY:
        with subtests.test(text=text):
            assert runs(queue, text) == found


MEANS = [
    ("", ["run_2", "run_3", "run_1"]),
    ("is:open", ["run_2", "run_3", "run_1"]),
    ("is:closed", []),
    ("tool:tickets.update", ["run_1"]),
    ("tool:tickets.*", ["run_3", "run_1"]),
    ("-tool:tickets.*", ["run_2"]),
    ("risk:high,critical", ["run_2"]),
    ("risk:>low", ["run_2"]),
    ("risk:<high", ["run_3", "run_1"]),
    ("agent:ticket-desk age:<24h", ["run_2", "run_3", "run_1"]),
    ("age:>24h", []),
    ("run:run_1 OR run:run_3", ["run_3", "run_1"]),
    ("(run:run_1 OR run:run_3) -run:run_3", ["run_1"]),
    ("is:unclaimed is:irreversible", []),
    ("target:*T-182", ["run_1"]),
    ("target:*t-18*", ["run_1"]),
    ("target:***t-18" + "*" * 300, ["run_1"]),
    ("target:T-182", []),
    ("target:*T.182", []),
    ("run:run_*", ["run_2", "run_3", "run_1"]),
    ("run:nobody's", []),
    ("T-182", ["run_1"]),
    ('"Refund me"', ["run_2", "run_3", "run_1"]),
    ("refu", ["run_2", "run_3", "run_1"]),
    ("nothinglikethis", []),
    ("reason:failed_with_effects", ["run_2", "run_3", "run_1"]),
    ("has:approval", []),
    ("has:drift OR has:comment", []),
    ("amount:>10", []),
    ("opened:<24h", ["run_2", "run_3", "run_1"]),
    ("is:paused", []),
    ("connector:shop", []),
    ("state:open", ["run_2", "run_3", "run_1"]),
    ("run:run_* reason:failed_with_effects", ["run_2", "run_3", "run_1"]),
    ("run:*_1 reason:failed_with_effects", ["run_1"]),
    ("target:*T-182 run:run_* -has:comment", ["run_1"]),
    ("state:open target:*T-182", ["run_1"]),
    ("state:closed,open target:*T-182 has:drift,comment", []),
    ("run:run_* -outcome:restored -is:late", ["run_2", "run_3", "run_1"]),
    ("run:run_* outcome:restored", []),
    ("is:without-effects run:run_*", []),
    ("cause:nothing", []),
]


def test_what_queries_find(queue):
    found = {text: runs(queue, text) for text, _ in MEANS}

    assert found == dict(MEANS)
    for text, wanted in MEANS:
        assert search.count(queue, text, by=None).number == len(wanted)


PAUSED = [
    ("tool", "tickets.*", ["run_3", "run_1"]),
    ("tool", "tickets.upd?te", ["run_1"]),
    ("tool", "tickets", []),
    ("connection", "shop", ["run_2", "run_3", "run_1"]),
    ("connection", "sho", []),
    ("agent", "ticket-desk", ["run_2", "run_3", "run_1"]),
    ("run", "run_2", ["run_2"]),
    ("workspace", "", ["run_2", "run_3", "run_1"]),
]


def test_what_is_paused_is_what_the_pause_holds_up(queue, globex, ada, subtests):
    pauses.pause(globex, "workspace", by=ada, reason="Another company's")
    assert runs(queue, "is:paused") == []
    for kind, name, wanted in PAUSED:
        with subtests.test(kind=kind, name=name):
            placed = pauses.pause(queue, kind, name, by=ada, reason="Look at it first")

            assert runs(queue, "is:paused") == wanted
            pauses.lift(placed, by=ada)
            assert runs(queue, "is:paused") == []


def test_a_step_that_a_pause_holds_makes_its_case_a_paused_one(raised, ada):
    case = raised.case()
    submitted(case, ada)
    assert runs(case.workspace, "is:paused") == []

    pauses.pause(case.workspace, "tool", "shop.rest*", by=ada, reason="The shop is slow")

    assert runs(case.workspace, "is:paused") == ["run_1"]


def test_many_lists_are_counted_at_once_each_no_further_than_the_limit(queue):
    texts = [*(text for text, _ in MEANS), "risk:purple"]

    numbers = search.counts(queue, texts, by=None, limit=2)

    assert numbers == [*(min(len(wanted), 2) for _, wanted in MEANS), None]
    assert search.counts(queue, [], by=None, limit=2) == []


def test_the_list_that_is_shown_is_counted_with_the_others_as_far_as_alone(queue, ada, monkeypatch):
    """Counted in two statements, a list of 10,000 that is a view, too, was counted twice."""
    found = search.find(queue, "", by=ada, limit=1)
    for most, told in ((3, "3"), (2, "2+")):
        monkeypatch.setattr(search.lists, "COUNT_MAX", most)
        [number, mine] = search.counts(queue, ["", "-is:mine"], by=ada, limit=1, shown="")

        counted = search.count(queue, "", by=ada, found=found, counted=number)

        assert (str(counted), counted) == (told, search.count(queue, "", by=ada, found=found))
        assert mine == 1


def test_what_is_counted_by_heart_is_what_the_query_means(queue, ada, ben):
    now = clock.now()
    first, second, third = Case.objects.filter(workspace=queue).order_by("pk")[:3]
    hour = timedelta(hours=1)
    Case.objects.filter(pk=first.pk).update(
        claimed_by=ada, claimed_until=now + hour, due_at=now - hour, unknown_count=1
    )
    Case.objects.filter(pk=second.pk).update(
        claimed_by=ben, claimed_until=now - hour, due_at=now + hour, reversibility="irreversible"
    )
    Case.objects.filter(pk=third.pk).update(
        claimed_by=ben, claimed_until=now + hour, due_at=now + hour
    )

    means = {
        "": {"run_1", "run_2", "run_3"},
        "is:mine": {"run_1"},
        "is:unclaimed": {"run_2"},
        "is:unknown": {"run_1"},
        "is:irreversible": {"run_2"},
        "is:overdue": {"run_1"},
        "is:without-effects": set(),
    }
    assert means.keys() == BY_HEART
    for text, wanted in means.items():
        assert set(runs(queue, text, by=ada)) == wanted, text
        assert search.counts(queue, [text], by=ada, limit=9) == [len(wanted)], text
        assert search.count(queue, text, by=ada).number == len(wanted), text
        assert search.counts(queue, [text], by=ben, limit=9) == [
            search.matching(queue, search.parse(text), by=ben).count()
        ], text


def test_what_a_page_of_the_list_leaves_out_is_not_fetched_line_by_line(queue, client, ada):
    client.force_login(ada)
    client.get("/w/acme/queue/")
    with CaptureQueriesContext(connection) as three:
        assert len(client.get("/w/acme/queue/").context["cases"]) == 3
    with CaptureQueriesContext(connection) as one:
        assert len(client.get("/w/acme/queue/?q=risk:high").context["cases"]) == 1

    assert len(three) == len(one)


FEW = [
    ("nobody-wrote-this", []),
    ("T-182", ["run_1"]),
    ("agent:nobody", []),
    ("run:nobody*", []),
    ("run:*_1", ["run_1"]),
    ("model:large-*", []),
    ("amount:>1000 is:open", []),
    ("target:*U-7 risk:high", ["run_2"]),
    ("customer:c-9*", []),
]


def test_what_few_cases_hold_is_looked_up_and_no_list_is_walked_for_it(queue):
    """In its order a list of 100,000 was read to the end for a word that none of them holds."""
    for text, held in FEW:
        with CaptureQueriesContext(connection) as sent:
            found = search.find(queue, text, by=None)
            number = search.count(queue, text, by=None, found=found)

        assert [one.run.run for one in found.cases] == held, text
        assert (number.number, number.capped) == (len(held), False), text
        lists = (one["sql"] for one in sent if 'FROM "recovery_case"' in one["sql"])
        walked = [sql for sql in lists if "ORDER BY" in sql and "\"run_ref\" = ''" not in sql]
        assert len(walked) == len(held), text
        assert all('"recovery_case"."id" IN (' in sql for sql in walked), text


def test_what_more_cases_hold_than_are_counted_is_a_list_in_its_order(queue, monkeypatch):
    monkeypatch.setattr(search.lists, "COUNT_OF_WORDS_MAX", 2)

    found = search.find(queue, "refund", by=None, limit=2)
    rest = search.find(queue, "refund", by=None, limit=2, after=found.after)

    assert str(search.count(queue, "refund", by=None, found=found)) == "2+"
    assert [one.run.run for one in [*found.cases, *rest.cases]] == ["run_2", "run_3", "run_1"]


def test_what_is_asked_of_its_run_a_case_carries_and_what_an_older_version_opened_is_found(queue):
    """Such a version opens cases beside us while an upgrade goes on."""
    Run.objects.update(model="large-2")
    triage.look(list(Run.objects.values_list("pk", flat=True)))
    before = dict(Case.objects.values_list("run_ref", "revision"))
    Case.objects.filter(run_ref="run_2").update(run_ref="", model="")

    for is_left in (True, False):
        for text in ("run:RUN_*", "model:large-2", "model:*-2"):
            with CaptureQueriesContext(connection) as sent:
                assert runs(queue, text) == ["run_2", "run_3", "run_1"], text
            [asked] = [one["sql"] for one in sent if "LIMIT 1001" in one["sql"]]
            assert ("ledger_run" in asked) is is_left, text
        assert case_projection.carry_runs() == int(is_left)

    Run.objects.filter(run="run_2").update(model="small-1")
    triage.look([Run.objects.get(run="run_2").pk])
    assert runs(queue, "model:small-*") == ["run_2"]
    assert dict(Case.objects.values_list("run_ref", "revision")) == before


def test_what_each_value_needs_to_know_is_looked_up_once_for_all_of_a_query(queue, ada):
    """Whether a case lacks its run, and what the reader is shown, was asked anew for each of 50."""
    for key in ("model", "run", "customer", "target"):
        sent = []
        for number in (1, 50):
            values = ",".join(f"m{one}*" for one in range(number))
            reader = User.objects.get(pk=ada.pk)
            with CaptureQueriesContext(connection) as asked:
                assert runs(queue, f"{key}:{values}", by=reader) == []
            sent.append(len(asked))
        assert sent[0] == sent[1], key


def test_the_longest_names_have_room_in_an_entry_of_an_index(queue):
    """It takes 2,704 bytes, and a case that had more was never opened."""
    case = Case.objects.get(run_ref="run_2")
    sizes = {"run_ref": 120, "model": 120, "customer": 120, "customer_name": 200,
             "failed_target": 400, "failed_tool": 200}  # fmt: skip
    longest = {
        name: "".join(chr(0x20000 + pow(size + one, 7, 39_989)) for one in range(size))
        for name, size in sizes.items()
    }
    Case.objects.filter(pk=case.pk).update(**longest)
    assert Case.objects.filter(**longest).get() == case


BERLIN = [
    (datetime(2027, 3, 28, 3, 10, tzinfo=ZoneInfo("Europe/Berlin")), timedelta(minutes=15), True),
    (datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), timedelta(hours=1),
     False),
]  # fmt: skip
"""Ten minutes after the clocks went forward, and after they went back."""


@pytest.mark.parametrize(("now", "age", "young"), BERLIN)
def test_an_age_goes_by_the_hours_that_passed(queue, now, age, young):
    Case.objects.update(failed_at=now.astimezone(UTC) - age, opened_at=now.astimezone(UTC) - age)
    for key in ("age", "failed", "opened"):
        for sign, found in (("<", 3 if young else 0), (">", 0 if young else 3)):
            query = search.parse(f"{key}:{sign}30m")
            assert search.matching(queue, query, by=None, now=now).count() == found, query

    since = now.astimezone(UTC) - timedelta(days=RECENT_DAYS)
    Case.objects.update(failed_at=since + timedelta(minutes=5))
    Case.objects.filter(run__run="run_1").update(failed_at=since - timedelta(minutes=5))
    recent = search.matching(queue, search.parse("is:open"), by=None, now=now)
    assert set(recent.values_list("run__run", flat=True)) == {"run_2", "run_3"}


def test_what_was_closed_late_is_found_without_a_word_on_its_state(queue, ada):
    case = Case.objects.get(run__run="run_1")
    closing.close(case, outcome="expected", reason="a test", by=ada, seen=case.revision)
    Case.objects.filter(pk=case.pk).update(due_at=clock.now() - timedelta(hours=1))

    assert runs(queue, "is:late") == ["run_1"]
    assert runs(queue, "is:open is:late") == []


def test_mine_is_what_i_claimed(queue, ada, finn):
    case = Case.objects.get(run__run="run_1")
    cases.claim(case, by=ada, seen=case.revision)

    assert runs(queue, "is:mine", by=ada) == ["run_1"]
    assert runs(queue, "claimed:me", by=finn) == []
    assert runs(queue, "claimed:ada", by=finn) == ["run_1"]
    assert runs(queue, "is:unclaimed") == ["run_2", "run_3"]


MISTAKES = [
    ("risk:huge", 5),
    ("is:open (tool:x", 15),
    ("tool:x)", 6),
    ('"never closed', 0),
    ("nokey:1", 0),
    ("age:soon", 4),
    ("tool:", 5),
    ("OR", 0),
    ("a OR", 4),
    ("amount:lots", 7),
    ("opened:tomorrow", 7),
    ("opened:9999-12-31", 7),
    ("opened:>2026-11-21T15:00", 7),
    ("tool:" + "a*" * 300, 5),
    ("customer:" + "a*" * 300, 9),
    ("-OR", 1),
]
"""A query that is none, and the character at which it goes wrong."""


def test_a_mistake_is_pointed_at(acme, subtests):
    for text, position in MISTAKES:
        with subtests.test(text=text[:40]):
            with pytest.raises(QueryError) as found:
                search.find(acme, text, by=None)
            assert found.value.position == position


def test_paging_by_key_lists_every_case_once(queue):
    for order in search.ORDERS:
        seen, after = [], ""
        while True:
            page = search.find(queue, "", by=None, order=order, after=after, limit=1)
            seen += [one.run.run for one in page.cases]
            after = page.after
            if not after:
                break
        assert sorted(seen) == ["run_1", "run_2", "run_3"], order


def test_a_place_that_no_page_gave_out_is_refused(acme, subtests):
    for after in ("x", "!!!!", "W10", "WzFd", "eyJhIjoxfQ", "9" * 500):
        with subtests.test(after=after), pytest.raises(search.BadPlace):
            search.find(acme, "", by=None, after=after)


def test_words_of_an_error_that_no_page_shows_are_not_found(agent, policy):
    """An answer's body, say, which is a payload: whoever may not see it could guess at it here."""
    run = AgentRun(agent, "run_1").begins("Refund me")
    run.does("tickets.update", ("ticket", "T-182", {"a": 1}, {"a": 2}))
    run.ends("failed", error={"type": "Gone", "message": "no such seat", "body": "iban zebra"})
    run.case()

    assert runs(agent.workspace, "seat") == runs(agent.workspace, "Gone") == ["run_1"]
    assert runs(agent.workspace, "zebra") == []


def test_suggestions_as_one_types(queue, ada):
    assert [one.text for one in search.suggest(queue, "ri", by=ada)] == ["risk:"]
    assert [one.text for one in search.suggest(queue, "is:open risk:h", by=ada)] == ["high"]
    assert [one.text for one in search.suggest(queue, "tool:tick", by=ada)] == [
        "tickets.close",
        "tickets.update",
    ]
    [offered] = search.suggest(queue, "reason:fai", by=ada)
    assert offered.text == "failed_with_effects"


def test_the_browser_colours_the_keys_that_the_server_has(desk):
    shown = desk.get("/w/acme/queue/").content.decode()

    assert f'data-query="{" ".join(KEYS)}"' in shown


def test_what_a_key_gives_as_an_example_and_what_it_offers_is_read(queue, ada, subtests):
    for key, row in KEYS.items():
        with subtests.test(key=key):
            offered = [one for one in row.offered(queue) if " " not in one]
            for value in (row.example, *offered):
                runs(queue, f"{key}:{value}", by=ada)
            hints = {one.text: one.hint for one in search.suggest(queue, key, by=ada)}
            assert hints[f"{key}:"] == row.hint


def test_an_empty_field_shows_every_key_and_values_say_what_they_mean(acme, ada):
    keys = search.suggest(acme, "", by=ada)

    assert [one.text for one in keys][:2] == ["is:", "has:"]
    assert all(one.hint for one in keys)
    overdue = search.suggest(acme, "is:over", by=ada)[0]
    assert (overdue.text, overdue.hint) == ("overdue", "past its time")
    assert search.suggest(acme, "is:open ", by=ada) == [], "not in the way of what follows"


def test_each_part_can_be_dropped():
    query = parse('is:open -tool:x "a b"')

    assert [query.without(term) for term in query.terms] == [
        '-tool:x "a b"',
        'is:open "a b"',
        "is:open -tool:x",
    ]


words = st.one_of(
    st.sampled_from([f"{key}:" for key in KEYS]),
    st.sampled_from(["(", ")", "-", '"', "OR", ",", ":", "*", "<24h", "high", "open"]),
    st.text(max_size=8),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(words, max_size=30))
def test_any_text_is_read_or_refused_in_words(parts):
    text = " ".join(parts)
    try:
        query = parse(text)
    except QueryError as refused:
        problem = refused
    else:
        assert query.text.replace(" ", "") == text.replace("\0", "").replace(" ", "")
        return
    assert 0 <= problem.position <= max(len(text), QUERY_CHARACTERS_MAX)
    assert problem.message.endswith(".")
