"""The clients that the desk hands out: what pip installs from there is what the desk itself runs,
what npm installs is of which sources.
"""

import base64
import hashlib
import io
import json
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string

import httpx
import pytest

from config.local.places import ROOT
from tests import npm
from workspaces.client_packages import tarball, wheel

PROJECT = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text("utf-8"))["project"]
ENTRY = "amends-0.1.0.dist-info/"
DIST = ROOT / "sdk-js" / "dist"
PROGRAM = """
import { connect, NoEffect, verify } from "@amends/client";
console.log([connect, NoEffect, verify].map((one) => typeof one).join(" "));
"""


def opened():
    return zipfile.ZipFile(io.BytesIO(wheel.content))


def node(folder, *words):
    return subprocess.run(
        [str(npm.NODE), *map(str, words)],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_an_agent_elsewhere_installs_it_from_the_desk_and_has_its_command(processes, tmp_path):
    web = processes.kept_web()
    where = f"amends[verify] @ {web.url}/client/{wheel.name}#sha256={wheel.digest}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir",
           "--disable-pip-version-check", "--root-user-action=ignore"]  # fmt: skip
    subprocess.run([*pip, "--target", tmp_path, where], check=True, timeout=60)

    own = {path.name for path in (ROOT / "sdk/amends").rglob("*.py")}
    assert {path.name for path in (tmp_path / "amends").rglob("*.py")} == own
    said = subprocess.run(
        [sys.executable, tmp_path / "bin/amends", "--help"],
        env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "verify" in said.stdout
    found = "import importlib.metadata as m; print(m.version('amends'), m.distribution('amends'))"
    told = subprocess.run([sys.executable, "-c", found], env={"PYTHONPATH": str(tmp_path)},
                          capture_output=True, text=True, check=True, timeout=60)  # fmt: skip
    assert told.stdout.startswith(PROJECT["version"])


@pytest.mark.django_db(transaction=True)
def test_an_agent_in_typescript_installs_its_own_from_the_desk_and_has_its_command(
    processes, tmp_path
):
    address = f"{processes.kept_web().url}/client/{tarball.name}"
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
@pytest.mark.parametrize("package", [wheel, tarball], ids=["wheel", "tarball"])
def test_a_copy_is_kept_and_asked_for_by_its_tag(processes, package):
    address = f"{processes.kept_web().url}/client/{package.name}"
    first = httpx.get(address)
    again = httpx.get(address, headers={"if-none-match": first.headers["etag"]})

    assert (first.status_code, again.status_code) == (200, 304)
    assert first.content == package.content


def test_it_says_what_it_needs_as_the_source_does():
    told = message_from_string(opened().read(f"{ENTRY}METADATA").decode())

    assert (told["Name"], told["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert told["Requires-Python"] == PROJECT["requires-python"]
    extras = PROJECT["optional-dependencies"]
    assert told.get_all("Provides-Extra") == list(extras)
    assert set(told.get_all("Requires-Dist")) == {
        *PROJECT["dependencies"],
        *(f'{one} ; extra == "{extra}"' for extra, more in extras.items() for one in more),
    }
    licence = opened().read(f"{ENTRY}licenses/{told['License-File']}").decode()
    assert licence == (ROOT / "LICENSE").read_text("utf-8")
    assert told.get_payload() == (ROOT / "sdk/README.md").read_text("utf-8")
    points = opened().read(f"{ENTRY}entry_points.txt").decode()
    assert "[console_scripts]\namends = amends.__main__:main\n" in points
    assert "[pytest11]\namends = amends.pytest_plugin\n" in points


def test_its_record_has_each_file_with_its_digest():
    kept = opened()
    lines = kept.read(f"{ENTRY}RECORD").decode().splitlines()

    assert [line.split(",")[0] for line in lines] == kept.namelist()
    for line in lines[:-1]:
        name, digest, size = line.split(",")
        text = kept.read(name)
        own = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")
        assert (digest, size) == (f"sha256={own}", str(len(text))), name
    assert lines[-1] == f"{ENTRY}RECORD,,"


def test_it_is_what_the_sources_compile_to():
    made = {path.relative_to(npm.compiled()): path.read_text("utf-8")
            for path in npm.compiled().rglob("*.*")}  # fmt: skip
    kept = {path.relative_to(DIST): path.read_text("utf-8") for path in DIST.rglob("*.*")}

    changed = sorted(str(name) for name in made | kept if made.get(name) != kept.get(name))
    assert not changed, "sdk-js/dist is not of these sources any more: make client"


@pytest.mark.parametrize("package", [wheel, tarball], ids=["wheel", "tarball"])
def test_the_same_sources_make_the_same_bytes_wherever_they_lie(package):
    once = package.content
    for name in ("workspaces/client_packages.py", "sdk/pyproject.toml", "sdk-js/package.json"):
        (ROOT / name).touch()

    assert package.made() == once
