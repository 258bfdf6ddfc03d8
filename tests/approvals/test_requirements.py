"""Requirements: one decision fills one place, and whoever can be seated is."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from amends.protocol.vocabulary import ActionClass, Risk
from approvals.deciders import assign
from approvals.policy import PolicyDecision, RequiredApprovers
from approvals.policy.evaluation import needs

PLACES = st.lists(st.integers(1, 2), min_size=1, max_size=3)
TEAMS = st.sampled_from(["finance", "leads", "law", None])
REQUIRES = st.lists(st.builds(RequiredApprovers, TEAMS, st.integers(1, 3)), max_size=3).map(tuple)


@st.composite
def rooms(draw):
    places = draw(PLACES)
    people = draw(
        st.dictionaries(
            st.integers(0, 20),
            st.lists(st.integers(0, len(places) - 1), unique=True, min_size=1),
            max_size=5,
        )
    )
    return people, places


def most_by_trying_all(people, places):
    seats = [place for place, count in enumerate(places) for _ in range(count)]
    most = 0
    for order in permutations(seats, min(len(people), len(seats))):
        for who in permutations(people, len(order)):
            most = max(most, sum(p in people[w] for w, p in zip(who, order, strict=True)))
        if most == min(len(people), len(seats)):
            break
    return most


@given(rooms())
@settings(max_examples=150, deadline=None)
def test_as_many_are_seated_as_could_be_by_trying_everything(room):
    people, places = room
    seated = assign(people, places)

    assert all(place in people[person] for person, place in seated.items())
    assert all(list(seated.values()).count(i) <= count for i, count in enumerate(places))
    assert len(seated) == most_by_trying_all(people, places)


@given(st.lists(REQUIRES, min_size=1, max_size=4))
def test_what_satisfies_all_rules_together_satisfies_each(asked):
    joined = {need.team: need.count for need in needs(asked)}
    for one in asked:
        wanted: dict[str | None, int] = {}
        for need in one or (RequiredApprovers(None, 1),):
            wanted[need.team] = wanted.get(need.team, 0) + need.count
        assert sum(joined.values()) >= sum(wanted.values())
        assert all(joined.get(team, 0) >= count for team, count in wanted.items() if team)


@given(st.lists(REQUIRES, min_size=1, max_size=4), st.randoms())
def test_the_order_of_rules_means_nothing(asked, random):
    mixed = list(asked)
    random.shuffle(mixed)
    assert needs(mixed) == needs(asked)
    assert needs([needs(asked)]) == needs(asked)


@given(rooms(), st.randoms())
def test_who_answers_first_changes_nothing_of_how_many_are_seated(room, random):
    people, places = room
    mixed = list(people)
    random.shuffle(mixed)
    assert len(assign({who: people[who] for who in mixed}, places)) == len(assign(people, places))


@given(rooms())
def test_one_more_yes_never_unseats_anybody_and_seats_at_most_one(room):
    people, places = room
    if not people:
        return
    last = list(people)[-1]
    before = assign({who: people[who] for who in people if who != last}, places)
    after = assign(people, places)
    assert set(before) <= set(after) <= set(before) | {last}


@given(rooms())
def test_nobody_fills_two_places_and_nobody_unasked_fills_one(room):
    people, places = room
    seated = assign(people, places)
    assert set(seated) <= set(people)
    assert len(seated) <= sum(places)


@given(st.lists(REQUIRES, min_size=1, max_size=3), REQUIRES)
def test_a_further_rule_never_asks_for_less(asked, more):
    fewer, all_of_them = needs(asked), needs([*asked, more])
    assert sum(one.count for one in all_of_them) >= sum(one.count for one in fewer)
    had = {one.team: one.count for one in all_of_them}
    assert all(had.get(one.team, 0) >= one.count for one in fewer if one.team)


@given(REQUIRES, REQUIRES)
def test_people_are_asked_anew_exactly_where_those_who_said_yes_would_not_do(asked, now):
    asked, now = needs([asked]), needs([now])
    said_yes = [need.team for need in asked for _ in range(need.count)]
    fits = {
        person: [place for place, need in enumerate(now) if need.team in {None, team}]
        for person, team in enumerate(said_yes)
    }
    seated = assign(fits, [need.count for need in now])

    then, today = (
        PolicyDecision(
            approval="MANUAL", risk=Risk.LOW, action_class=ActionClass.EXTERNAL_REVERSIBLE,
            requires=one,
        )
        for one in (asked, now)
    )  # fmt: skip

    assert today.stricter_than(then) is (len(seated) < sum(need.count for need in now))
