"""That the mutants fit the code as it is; and of a few, that a test still notices them."""

import subprocess

import pytest

from tests import npm
from tests.mutants import written
from tests.mutants.running import KILLED, copy, run

SAMPLE = {
    "approvals": "what was not shown is approved",
    "engine": "a single move takes no notice of the fence",
    "masking": "a card beside other digits is not masked",
}
"""One of some rooms, each noticed by a quick story: `make mutants` runs them all."""


# Node reads TypeScript by leaving the types out, and says where it cannot.
STRIP = 'require("module").stripTypeScriptTypes(require("fs").readFileSync(0, "utf8"))'


@pytest.mark.parametrize("room", written.rooms())
def test_each_mutant_fits_exactly_once_and_is_a_program(room):
    for mutant in written.of_room(room):
        text = mutant.applied(written.text_of(mutant))
        if mutant.file.endswith(".ts"):
            command = [str(npm.NODE), "-e", STRIP]
            subprocess.run(command, input=text, text=True, check=True, capture_output=True)
        else:
            compile(text, mutant.file, "exec")


@pytest.mark.parametrize("room", written.rooms())
def test_each_room_says_each_danger_once(room):
    names = [mutant.name for mutant in written.of_room(room)]

    assert len(names) == len(set(names)) >= 10


def test_a_sample_of_them_is_noticed(tmp_path):
    sampled = [one for one in written.everyone() if SAMPLE.get(one.room) == one.name]
    here = copy(tmp_path)

    found = {one.room: run(one, here).outcome for one in sampled}

    assert found == dict.fromkeys(SAMPLE, KILLED)


def test_a_change_that_does_not_fit_is_told():
    some = written.everyone()[0]

    with pytest.raises(ValueError, match="fits 0 times"):
        some.applied("nothing of it")
