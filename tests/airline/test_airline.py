"""The airline desk: 200 recorded runs of a real agent, 86 of them wrong after changing something.

The whole path on real input: the runs come in through the SDK, the wrong ones become cases, a
person's script compensates them over the HTTP API, the worker restores the rows of a second real
database, and each affected person gets a correction. The oracle is the world as it was before.
"""

from typing import Any

import psycopg

from demo.airline import corpus, tables
from tests.airline.desk import CORPUS, SETTLE_SECONDS_MAX, replay, wait_until

WRONG_WITH_EFFECTS = 86
WRONG = 116


def test_all_86_wrong_runs_are_compensated_and_every_touched_row_is_as_before(
    airline_desk, processes
):
    recorded = corpus.load(CORPUS)
    wrong = [run for run in recorded.runs if not run.correct]
    assert len(wrong) == WRONG
    replay(processes, airline_desk.web, airline_desk.outside)
    wait_until(lambda: len(airline_desk.cases("is:open")) == WRONG, SETTLE_SECONDS_MAX)
    to_undo = [case for case in airline_desk.cases("is:open") if case["standing"]]
    assert len(to_undo) == WRONG_WITH_EFFECTS
    assert differing(recorded, wrong, airline_desk.outside), "the runs changed something"

    for case in to_undo:
        preview = airline_desk.get(f"/cases/{case['id']}/preview")
        assert preview["why_not"] == ""
        airline_desk.post(
            f"/cases/{case['id']}/compensate",
            digest=preview["digest"],
            revision=preview["revision"],
            reason="The agent did not do what the customer asked for",
        )

    def restored() -> list[dict[str, Any]]:
        return [case for case in airline_desk.cases("is:closed") if case["outcome"] == "restored"]

    wait_until(lambda: len(restored()) == WRONG_WITH_EFFECTS, SETTLE_SECONDS_MAX)
    assert differing(recorded, wrong, airline_desk.outside) == []
    untouched = [run for run in recorded.runs if run.correct]
    assert changed(recorded, untouched, airline_desk.outside), "right runs were left alone"
    published = [publish_all(airline_desk, case["id"]) for case in restored()]
    assert all(published)


def publish_all(desk, case: int) -> int:
    """Publish the case's corrections and read each as its person would; how many there are."""
    wait_until(lambda: desk.get(f"/cases/{case}")["corrections"], SETTLE_SECONDS_MAX)
    found = desk.get(f"/cases/{case}")["corrections"]
    for correction in found:
        said = desk.post(
            f"/corrections/{correction['id']}/publish", revision=correction["revision"]
        )
        page = desk.http.get(said["link"], headers={"Authorization": ""})
        assert page.status_code == 200
        assert "Something went wrong" not in page.text
    return len(found)


def differing(recorded, runs, outside) -> list[str]:
    with psycopg.connect(outside) as database:
        return [
            f"{run.run}: {difference}"
            for run in runs
            for difference in tables.differences(database, recorded, run.run, run.touched)
        ]


def changed(recorded, runs, outside) -> list[str]:
    """What right runs changed, which must stand."""
    return differing(recorded, runs, outside)
