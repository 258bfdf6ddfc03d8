"""Requirements: one decision fills one place, and whoever can be seated is."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from approvals.matching import assign
from approvals.policy import Need
from approvals.policy.judging import needs

PLACES = st.lists(st.integers(1, 2), min_size=1, max_size=3)
TEAMS = st.sampled_from(["finance", "leads", "law", None])
REQUIRES = st.lists(st.builds(Need, TEAMS, st.integers(1, 3)), max_size=3).map(tuple)


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
        for need in one or (Need(None, 1),):
            wanted[need.team] = wanted.get(need.team, 0) + need.count
        assert sum(joined.values()) >= sum(wanted.values())
        assert all(joined.get(team, 0) >= count for team, count in wanted.items() if team)


@given(st.lists(REQUIRES, min_size=1, max_size=4), st.randoms())
def test_the_order_of_rules_means_nothing(asked, random):
    mixed = list(asked)
    random.shuffle(mixed)
    assert needs(mixed) == needs(asked)
    assert needs([needs(asked)]) == needs(asked)
