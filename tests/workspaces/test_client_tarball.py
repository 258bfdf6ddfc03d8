"""The TypeScript client that the desk hands out: what npm installs from there, and of which sources
it is.
"""

import json
import subprocess

import httpx
import pytest

from config.local.places import ROOT
from tests import npm
from workspaces import client_tarball

DIST = ROOT / "sdk-js" / "dist"
PROGRAM = """
import { connect, NoEffect, verify } from "@amends/client";
console.log([connect, NoEffect, verify].map((one) => typeof one).join(" "));
"""


def node(folder, *words):
    return subprocess.run(
        [str(npm.NODE), *map(str, words)],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_an_agent_elsewhere_installs_it_from_the_desk_and_has_its_command(processes, tmp_path):
    address = f"{processes.kept_web().url}/client/{client_tarball.NAME}"
    npm.run(tmp_path, "install", "--no-audit", "--no-fund", "--omit=peer", address)
    (tmp_path / "agent.mts").write_text(PROGRAM, "utf-8")

    said = node(tmp_path, "agent.mts")
    assert said.stdout == "function function function\n", said.stderr
    command = (tmp_path / "node_modules" / ".bin" / "amends").resolve()
    assert node(tmp_path, command).stderr.startswith("amends verify FILE")
    kept = tmp_path / "node_modules" / "@amends" / "client"
    assert (kept / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
    assert "scripts" not in json.loads((kept / "package.json").read_text("utf-8"))


@pytest.mark.django_db(transaction=True)
def test_a_copy_is_kept_and_asked_for_by_its_tag(processes):
    address = f"{processes.kept_web().url}/client/{client_tarball.NAME}"
    first = httpx.get(address)
    again = httpx.get(address, headers={"if-none-match": first.headers["etag"]})

    assert (first.status_code, again.status_code) == (200, 304)
    assert first.content == client_tarball.content()


def test_it_is_what_the_sources_compile_to():
    made = {path.relative_to(npm.compiled()): path.read_text("utf-8")
            for path in npm.compiled().rglob("*.*")}  # fmt: skip
    kept = {path.relative_to(DIST): path.read_text("utf-8") for path in DIST.rglob("*.*")}

    changed = sorted(str(name) for name in made | kept if made.get(name) != kept.get(name))
    assert not changed, "sdk-js/dist is not of these sources any more: make client"


def test_the_same_files_make_the_same_bytes():
    once = client_tarball.content()
    (ROOT / "sdk-js/package.json").touch()
    client_tarball.content.cache_clear()

    assert client_tarball.content() == once
