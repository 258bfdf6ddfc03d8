import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from config.local.places import ROOT


@pytest.mark.django_db
def test_the_desk_runs_on_postgresql_18() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        assert int(cursor.fetchone()[0]) >= 180000


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("turn", [1, 2])
def test_what_a_test_commits_is_gone_for_the_next(turn: int) -> None:
    from django.contrib.auth.models import Group

    assert not Group.objects.exists()
    Group.objects.create(name="finance")


def test_every_variable_that_the_settings_read_is_in_the_guide() -> None:
    read = re.compile(r"""(?:text|claim|number|words|secret|environ\.get)\(\s*"([A-Z_]+)\"""")
    sources = [ROOT / "config" / "settings.py", ROOT / "config" / "env.py"]
    names = {name for source in sources for name in read.findall(source.read_text())}
    of_ours = {"AMENDS_PROCESS", "AMENDS_DEMO", "AMENDS_DEBUG", "AMENDS_HASHED_STATIC"}

    guide = (ROOT / "docs" / "running.md").read_text()

    assert {name for name in names - of_ours if f"`{name}`" not in guide} == set()


def run_with(tmp_path: Path, **environment: str) -> str:
    """What the settings say to this environment alone."""
    command = [
        sys.executable,
        "-c",
        "import config.settings as s; print(s.SECURE, s.ALLOWED_HOSTS)",
    ]
    given = {"PATH": os.environ["PATH"], "AMENDS_LOCAL": str(tmp_path)} | environment
    done = subprocess.run(
        command, cwd=ROOT, env=given, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout + done.stderr


def test_a_deployment_without_its_secrets_does_not_start(tmp_path: Path) -> None:
    said = run_with(tmp_path, DATABASE_URL="postgresql:///x", REDIS_URL="redis://localhost")

    assert "Set AMENDS_URL: it is required where DATABASE_URL is set" in said
    assert not (tmp_path / "secrets.env").exists()


def test_half_a_deployment_is_a_mistake(tmp_path: Path) -> None:
    said = run_with(tmp_path, DATABASE_URL="postgresql:///x")

    assert "Set both DATABASE_URL and REDIS_URL, or neither" in said


def test_a_deployment_under_https_answers_to_its_own_name_only(tmp_path: Path) -> None:
    said = run_with(
        tmp_path,
        DATABASE_URL="postgresql:///x",
        REDIS_URL="redis://localhost",
        AMENDS_URL="https://desk.example.org",
        DJANGO_SECRET_KEY="a-long-and-random-one",
        AMENDS_SECRET_KEYS="MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    )

    assert said.strip() == "True ['desk.example.org']"
