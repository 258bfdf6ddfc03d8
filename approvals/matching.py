"""Which decision fills which requirement.

One decision fills one requirement, and a person may stand in several teams; so the assignment is a
bipartite matching between people and places, found by augmenting paths (Kuhn 1955). A greedy choice
would say "not enough" where exchanging two people would do.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Person = TypeVar("Person", bound=Hashable)


def assign(fits: Mapping[Person, Sequence[int]], places: Sequence[int]) -> dict[Person, int]:
    """A largest assignment person → requirement.

    `fits` says which requirements (by index into `places`) each person can fill, `places` how many
    people each requirement takes. People who come first keep a place if they had one.
    """
    filled: list[list[Person]] = [[] for _ in places]
    for person in fits:
        _seat(person, fits, places, filled, set())
    return {person: place for place, people in enumerate(filled) for person in people}


def _seat(
    person: Person,
    fits: Mapping[Person, Sequence[int]],
    places: Sequence[int],
    filled: list[list[Person]],
    tried: set[int],
) -> bool:
    for place in fits[person]:
        if place in tried:
            continue
        tried.add(place)
        if len(filled[place]) < places[place]:
            filled[place].append(person)
            return True
        for sitting in filled[place]:
            if _seat(sitting, fits, places, filled, tried):
                filled[place].remove(sitting)
                filled[place].append(person)
                return True
    return False
