"""The client that the desk hands out: what pip installs from there is what the desk itself runs."""

import base64
import hashlib
import io
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import httpx
import pytest

from config.local.places import ROOT
from workspaces import client_wheel

PROJECT = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text("utf-8"))["project"]
ENTRY = "amends-0.1.0.dist-info/"


def wheel():
    return zipfile.ZipFile(io.BytesIO(client_wheel.content()))


@pytest.mark.django_db(transaction=True)
def test_an_agent_elsewhere_installs_it_from_the_desk_and_has_its_command(processes, tmp_path):
    web = processes.kept_web()
    where = f"amends[verify] @ {web.url}/client/{client_wheel.NAME}#sha256={client_wheel.digest()}"
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
def test_a_copy_is_kept_and_asked_for_by_its_tag(processes):
    address = f"{processes.kept_web().url}/client/{client_wheel.NAME}"
    first = httpx.get(address)
    again = httpx.get(address, headers={"if-none-match": first.headers["etag"]})

    assert (first.status_code, again.status_code) == (200, 304)
    assert first.content == client_wheel.content()


def test_it_says_what_it_needs_as_the_source_does():
    told = message_from_string(wheel().read(f"{ENTRY}METADATA").decode())

    assert (told["Name"], told["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert told["Requires-Python"] == PROJECT["requires-python"]
    extras = PROJECT["optional-dependencies"]
    assert told.get_all("Provides-Extra") == list(extras)
    assert set(told.get_all("Requires-Dist")) == {
        *PROJECT["dependencies"],
        *(f'{one} ; extra == "{extra}"' for extra, more in extras.items() for one in more),
    }
    licence = wheel().read(f"{ENTRY}licenses/{told['License-File']}").decode()
    assert licence == (ROOT / "LICENSE").read_text("utf-8")
    assert told.get_payload() == (ROOT / "sdk/README.md").read_text("utf-8")
    points = wheel().read(f"{ENTRY}entry_points.txt").decode()
    assert "[console_scripts]\namends = amends.__main__:main\n" in points
    assert "[pytest11]\namends = amends.pytest_plugin\n" in points


def test_its_record_has_each_file_with_its_digest():
    kept = wheel()
    lines = kept.read(f"{ENTRY}RECORD").decode().splitlines()

    assert [line.split(",")[0] for line in lines] == kept.namelist()
    for line in lines[:-1]:
        name, digest, size = line.split(",")
        text = kept.read(name)
        own = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")
        assert (digest, size) == (f"sha256={own}", str(len(text))), name
    assert lines[-1] == f"{ENTRY}RECORD,,"


def test_the_same_sources_make_the_same_bytes_wherever_they_lie(monkeypatch):
    once = client_wheel.content()
    for path in (Path(client_wheel.__file__), ROOT / "sdk/pyproject.toml"):
        path.touch()
    client_wheel.content.cache_clear()

    assert client_wheel.content() == once
