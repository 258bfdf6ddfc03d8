"""That the mutants fit the code as it is; and of a few, that a test still notices them."""

import json
import subprocess

import psycopg
import pytest

from config.local.postgres import Postgres
from tests import npm
from tests.mutants import written
from tests.mutants.running import KILLED, Kept, copy, run

SAMPLE = {
    "approvals": "what was not shown is approved",
    "engine": "a single move takes no notice of the fence",
    "masking": "a card beside other digits is not masked",
}
"""One of some rooms, each noticed by a quick story: `make mutants` runs them all."""


# Node reads TypeScript by leaving the types out, and says where it cannot: one of it for all texts.
STRIP = """
const { stripTypeScriptTypes } = require("module");
JSON.parse(require("fs").readFileSync(0, "utf8")).forEach((text) => stripTypeScriptTypes(text))"""


@pytest.mark.parametrize("room", written.rooms())
def test_each_mutant_fits_exactly_once_and_is_a_program(room):
    of_node = []
    for mutant in written.of_room(room):
        text = mutant.applied(written.text_of(mutant))
        if mutant.file.endswith(".ts"):
            of_node.append(text)
        else:
            compile(text, mutant.file, "exec")
    if of_node:
        command = [str(npm.NODE), "-e", STRIP]
        subprocess.run(command, input=json.dumps(of_node), text=True, check=True)


@pytest.mark.parametrize("room", written.rooms())
def test_each_room_says_each_danger_once(room):
    names = [mutant.name for mutant in written.of_room(room)]

    assert len(names) == len(set(names)) >= 10


@pytest.fixture
def kept(tmp_path):
    servers = Kept(tmp_path / "servers")
    yield servers
    servers.stop()


def test_a_sample_of_them_is_noticed(tmp_path, kept):
    sampled = [one for one in written.everyone() if SAMPLE.get(one.room) == one.name]
    here = copy(tmp_path / "copy")

    found = {one.room: run(one, here, kept).outcome for one in sampled}

    assert found == dict.fromkeys(SAMPLE, KILLED)


@pytest.mark.parametrize("change", ["CREATE ROLE a_relic", "CREATE DATABASE a_relic"])
def test_a_server_that_a_mutant_left_otherwise_than_it_was_is_lent_to_no_other(kept, change):
    first = kept.lend()
    assert kept.lend() == first
    with psycopg.connect(Postgres(first).url("postgres"), autocommit=True) as connection:
        connection.execute(change)

    assert kept.lend() != first


def test_a_change_that_does_not_fit_is_told():
    some = written.everyone()[0]

    with pytest.raises(ValueError, match="fits 0 times"):
        some.applied("nothing of it")
