"""A recorded desk: 200 runs, 116 of them wrong, 86 of those after changing something.

The whole path on real input: the runs come in through the SDK, the wrong ones become cases, a
person's script compensates them over the HTTP API, the worker restores the rows of a second real
database, and each affected person gets a correction. The oracle is the world as it was before.
The invented recording was made to have the airline's numbers.
"""

import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import psycopg

from demo import corpus
from demo.corpus import Row, ServiceDesk
from tests.recorded.desk import SETTLE_SECONDS_MAX, replay, wait_until

WRONG_WITH_EFFECTS = 86
WRONG = 116


def test_all_86_wrong_runs_are_compensated_and_every_touched_row_is_as_before(
    recorded_desk, processes
):
    recorded = corpus.load(recorded_desk.recording)
    wrong = [run for run in recorded.runs if not run.correct]
    harmful = {run.run for run in wrong if run.touched}
    assert (len(wrong), len(harmful)) == (WRONG, WRONG_WITH_EFFECTS)
    replay(processes, recorded_desk)
    wait_until(lambda: len(recorded_desk.cases("is:open")) >= WRONG, SETTLE_SECONDS_MAX)
    found = recorded_desk.cases("is:open")
    assert sorted(case["run"] for case in found) == sorted(run.run for run in wrong)
    to_undo = [case for case in found if case["standing"]]
    assert {case["run"] for case in to_undo} == harmful
    assert not_as_left(recorded, recorded.runs, recorded_desk.outside) == []

    for case in to_undo:
        preview = recorded_desk.get(f"/cases/{case['id']}/preview")
        assert preview["why_not"] == ""
        recorded_desk.post(
            f"/cases/{case['id']}/compensate",
            digest=preview["digest"],
            revision=preview["revision"],
            reason="The agent did not do what the customer asked for",
        )

    def restored() -> list[dict[str, Any]]:
        closed = recorded_desk.cases("is:closed")
        return [case for case in closed if case["outcome"] == "restored"]

    wait_until(lambda: len(restored()) == WRONG_WITH_EFFECTS, SETTLE_SECONDS_MAX)
    assert not_as_before(recorded, wrong, recorded_desk.outside) == []
    right = [run for run in recorded.runs if run.correct]
    assert not_as_left(recorded, right, recorded_desk.outside) == [], "right runs are left alone"
    published = [publish_all(recorded_desk, case["id"]) for case in restored()]
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


def not_as_before(recorded, runs, outside) -> list[str]:
    """Which touched rows are not as they stood before their run."""
    with psycopg.connect(outside) as database:
        return [
            f"{run.run}: {difference}"
            for run in runs
            for difference in differences(
                database,
                recorded.desk,
                run.run,
                {key: recorded.world[key[0]].get(key[1]) for key in run.touched},
            )
        ]


def not_as_left(recorded, runs, outside) -> list[str]:
    """Which touched rows are not as their run left them."""
    with psycopg.connect(outside) as database:
        return [
            f"{run.run}: {difference}"
            for run in runs
            for difference in differences(database, recorded.desk, run.run, run.left)
        ]


def differences(
    database: psycopg.Connection,
    desk: ServiceDesk,
    world: str,
    should: Mapping[tuple[str, str], Row | None],
) -> list[str]:
    """Which of these rows, by table and id, are not as they should be: the oracle of the replay.

    Compared column by column as canonical JSON, the version aside; a row that should be None must
    be gone.
    """
    found = []
    for (table, row_id), expected in sorted(should.items(), key=itemgetter(0)):
        row = corpus.read(database, table, world, row_id)
        if expected is None or row is None:
            if expected is not row:
                found.append(f"{table} {row_id} {'is still there' if row else 'is gone'}")
            continue
        found += [
            f"{table} {row_id}.{name}: {_text(row[name])} instead of {_text(expected.get(name))}"
            for name in desk.tables[table].columns
            if _text(row[name]) != _text(expected.get(name))
        ]
    return found


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
