"""A stranger checks what was handed to them, on a machine that has the client and nothing else.

Their Python is an environment of its own with the client and what its `verify` extra asks for.
"""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from config.local.places import ROOT
from ledger import logkeys, proofs, sealer
from tests.ledger.conftest import event, record_events
from tests.worlds import kept


def asked_for(requirement: str, found: dict[str, metadata.Distribution]) -> None:
    """The distribution that a requirement names, and those that it asks for in turn."""
    wanted = Requirement(requirement)
    if wanted.name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
        return
    found[wanted.name] = metadata.distribution(wanted.name)
    for more in found[wanted.name].requires or ():
        asked_for(more, found)


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    """The Python of somebody who typed pip install './sdk[verify]'."""
    home = tmp_path_factory.mktemp("stranger")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=120)
    packages = next(home.glob("lib/python*/site-packages"))
    project = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]
    found: dict[str, metadata.Distribution] = {}
    for one in (*project["dependencies"], *project["optional-dependencies"]["verify"]):
        asked_for(one, found)
    for distribution in found.values():
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            place = Path(str(distribution.locate_file(top)))
            if place.exists() and not (packages / top).exists():
                (packages / top).symlink_to(place)
    (packages / "amends").symlink_to(ROOT / "sdk" / "amends")
    return home / "bin" / "python"


def checks(stranger: Path, folder: Path, name: str, text: str, key: str) -> tuple[int, str]:
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "log.pub").write_text(f"{key}\n")
    command = [str(stranger), "-I", "-m", "amends", "verify", name, "--key", "log.pub"]
    done = subprocess.run(
        command, cwd=folder, env={}, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
@kept(in_turn=True)
def said(actor, northwind):
    events = [event("run.started", run=f"run_{n}", data={"request": f"Nº {n}"}) for n in range(20)]
    record_events(actor, *events)
    sealer.seal(northwind)
    return events


@pytest.mark.parametrize(
    ("page", "from_where"),
    [
        ("docs/proofs.md", "./sdk[verify]"),
        ("templates/recovery/trail_verify.html", "amends[verify] @ {{ client_url }}"),
    ],
)
def test_what_a_stranger_is_told_to_install_says_from_where(page, from_where):
    """Not a name on an index, where somebody else may have put something under it."""
    words = re.sub(r"</?span[^>]*>", "", (ROOT / page).read_text("utf-8"))
    told = re.findall(r"pip install '(.*?)'", words)

    assert told == [from_where]
    project = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]
    assert "verify" in project["optional-dependencies"]


def test_the_stranger_has_nothing_of_the_desk(stranger):
    for name in ("django", "ledger", "psycopg"):
        done = subprocess.run(
            [stranger, "-I", "-c", f"import {name}"], capture_output=True, check=False, timeout=60
        )
        assert b"ModuleNotFoundError" in done.stderr


def test_proof_and_facts_are_proven_and_one_changed_letter_is_not(
    stranger, northwind, said, tmp_path
):
    (key,) = logkeys.published(northwind)
    proof = proofs.proof_of(northwind, said[3]["id"])
    facts = json.dumps(proofs.download_of(northwind, said[3]["id"]), ensure_ascii=False)

    for name, text in (("3.tlog-proof", proof), ("event.json", facts)):
        code, told = checks(stranger, tmp_path, name, text, key)
        assert code == 0, told
        assert "Proven: entry 3 of 20" in told
        assert said[3]["id"] in told
    for name, text in (
        ("index.tlog-proof", proof.replace("index 3", "index 2")),
        ("event.json", facts.replace("Nº 3", "Nº 4")),
    ):
        code, told = checks(stranger, tmp_path, name, text, key)
        assert (code, told.partition(":")[0]) == (1, "NOT PROVEN")


def test_a_file_that_says_a_thing_twice_proves_nothing(stranger, northwind, said, tmp_path):
    """Who reads it sees one of the two, who checks it the other."""
    (key,) = logkeys.published(northwind)
    document = proofs.download_of(northwind, said[3]["id"])
    whole = json.dumps(document)
    forged = json.dumps(document["event"] | {"data": {"request": "I was paid"}})

    code, told = checks(
        stranger, tmp_path, "event.json", '{"event": ' + forged + ", " + whole[1:], key
    )
    assert (code, told.strip()) == (1, "NOT PROVEN: “event” stands twice in the download")
    code, told = checks(stranger, tmp_path, "deep.json", '{"event": ' + "[" * 100_000, key)
    assert (code, told.partition(":")[0]) == (1, "NOT PROVEN")
