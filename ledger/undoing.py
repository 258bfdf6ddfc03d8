"""Undoing: the events with which the steps of plans end, folded from what is in hand.

`record` reads back all that was ever said of an action before it folds. Of a step whose every event
this process has noted itself, all is in hand already; and of the agent's action that it undoes, one
effect is compensated now, which needs none of what was said before. Whatever is not as usual (a row
that is not there, payloads that were erased) is folded the long way; a rebuild gives the same rows.
"""

from collections.abc import Generator, Mapping, Sequence

from ledger import noting, statements
from ledger.fold.effects import undone_as
from ledger.fold.meaning import COMPENSATED
from ledger.folding import Folding, KnownRun, Name, Undone
from ledger.noting import Drawn
from ledger.record import OTHERS_AHEAD
from ledger.said import Fact, Said, Speaker
from ledger.statements import Meanwhile, Rows, Statement

Steps = Generator[list[Statement], list[Rows], list[int] | None]


def end(speaker: Speaker, events: Sequence[Said], told: Mapping[Name, Sequence[Fact]]) -> Steps:
    """Record `events`, whose ids are new, and fold them; gives the row ids of their runs.

    `told` has of some actions, which have no row yet, all earlier events. None, and nothing is
    written, if a run is not there or is erased.
    """
    names = sorted({event.run for event in events})
    actions = len({(event.run, event.action) for event in events})
    rows, ((places, received, ids),) = yield [
        (statements.LOCK_RUNS, [names, speaker.workspace_id]),
        (statements.PLACES, [actions, len(events)]),
    ]
    folding = Folding(speaker)
    for id_, name, agent_id, started_at, forgotten in rows:
        if not forgotten:
            folding.runs[name] = KnownRun(id_, agent_id, started_at)
    if len(folding.runs) < len(names):
        return None
    undone = _undone(events)
    look = [folding.standing(undone)] if undone else []
    folding.fresh_ids = ids or []
    folding.prior_of.update({name: list(known) for name, known in told.items()})
    drawn = Drawn(places, received)
    _, known, *found = yield Meanwhile(
        [noting.noted(speaker, events, drawn), folding.rows_of(told), *look],
        lambda: folding.fold_ahead(events, noting.facts(speaker, events, drawn), told.keys()),
    )
    folding.know(known)
    folding.undone = {
        (run, action): Undone(*undone[run, action][:2], *ids)
        for rows in found
        for run, action, *ids in rows
    }
    unknown = [one for one in events if (one.run, one.action) not in folding.undone.keys() | told]
    look = folding.looks_back(unknown, received + OTHERS_AHEAD)
    if look:
        earlier, known = yield look
        folding.remember(earlier, known)
    yield folding.add(events, places, received)
    return folding.touched


def _undone(events: Sequence[Said]) -> dict[Name, Undone]:
    """The actions of which nothing is said but that one effect of theirs is compensated."""
    found: dict[Name, Undone] = {}
    others: set[Name] = set()
    for event in events:
        name = (event.run, event.action)
        positions = event.data.get("positions") or []
        if event.type != COMPENSATED or len(positions) != 1 or name in found:
            others.add(name)
        else:
            found[name] = Undone(positions[0], undone_as(event.data))
    return {name: one for name, one in found.items() if name not in others}
