"""The invented recording: what its runs promise about themselves, without a desk."""

from collections import Counter

from demo import corpus
from demo.parcels import generate


def made(folder, seed=generate.SEED):
    folder.mkdir()
    generate.write(folder, seed=seed)
    return corpus.load(folder)


def test_one_seed_makes_the_same_runs_and_another_makes_others(tmp_path):
    first = made(tmp_path / "first")

    assert made(tmp_path / "again") == first
    assert made(tmp_path / "other", seed=8).runs != first.runs


def test_every_effect_starts_from_the_world_as_the_calls_before_left_it(tmp_path):
    recorded = made(tmp_path / "runs")
    for run in recorded.runs:
        now = dict(recorded.world["accounts"]) | recorded.world["parcels"]
        assert run.customer in now
        for call in run.calls:
            assert call.ok or not call.effects, "a refused call changes nothing"
            for effect in call.effects:
                assert effect.before == now.get(effect.id) != effect.after
                columns = set(recorded.desk.tables[effect.table].columns)
                assert set(effect.after) == columns
                now[effect.id] = effect.after


def test_a_run_is_wrong_exactly_where_it_did_not_do_what_was_asked(tmp_path):
    runs = made(tmp_path / "runs").runs
    for run in runs:
        done = [{"tool": call.tool, "args": call.args} for call in run.calls if call.effects]
        as_asked = done == list(run.expected)
        assert run.correct == (run.mistake == "")
        assert as_asked == (run.correct or run.mistake == "told otherwise"), run.run

    kinds = Counter(run.mistake for run in runs if run.mistake and run.touched)
    assert kinds == {
        "unwanted": 21,
        "other tool": 16,
        "wrong argument": 14,
        "stopped half-way": 14,
        "wrong record": 10,
        "one more": 5,
        "done twice": 4,
        "told otherwise": 2,
    }
    writes = [Counter(e.id for c in run.calls for e in c.effects) for run in runs if run.mistake]
    assert sum(max(rows.values(), default=0) > 1 for rows in writes) == 12, "rows written twice"
    created = {e.id for run in runs for c in run.calls for e in c.effects if e.before is None}
    assert created, "and rows that have to go again"
