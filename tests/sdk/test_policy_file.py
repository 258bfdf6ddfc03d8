"""A policy that is kept in git: checked in a pull request, put in force by the merge, in both
languages; and the workflow that the guide prints.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from config.local.places import ROOT
from tests import npm
from tests.sdk.conftest import ENVIRONMENT

pytestmark = pytest.mark.django_db(transaction=True)
FIRST = "unknownTools: ASK\n"
SECOND = "unknownTools: ASK\npolicies:\n  crm.*: {approval: AUTO}\n"
CLIENTS = {
    "python": [sys.executable, "-m", "amends"],
    "typescript": [str(npm.NODE), str(ROOT / "sdk-js" / "src" / "cli.ts")],
}


@pytest.fixture
def person_token(northwind, token):
    from workspaces import keys, teams
    from workspaces.models import User

    ada = User.objects.get(name="Ada")
    teams.add(teams.create(northwind, "admins", by=None, may=["view", "administer"]), ada, by=None)
    return keys.create_token(northwind, by=ada, name="ci")[1]


@pytest.fixture
def here(processes, person_token, tmp_path):
    (tmp_path / "policy.yaml").write_text(FIRST)
    desk = {"AMENDS_URL": processes.kept_web().url, "AMENDS_TOKEN": person_token}
    return tmp_path, ENVIRONMENT | desk


@pytest.fixture(params=CLIENTS)
def policy(request, here):
    folder, environment = here

    def run(*words, **more):
        done = subprocess.run(
            [*CLIENTS[request.param], "policy", *words], cwd=folder, env=environment | more,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_file_is_checked_and_put_in_force_and_only_over_what_it_knows(policy, here, northwind):
    from approvals import versions
    from approvals.models import PolicyVersion

    folder, _ = here
    code, said = policy("check", "policy.yaml")
    assert (code, "It would take the place of the defaults" in said) == (0, True)
    assert "it would have asked 0 times and denied 0" in said
    assert not PolicyVersion.objects.exists()
    assert policy("apply", "policy.yaml") == (0, "Version 1 is in force.\n")
    assert policy("apply", "policy.yaml") == (0, "policy.yaml is in force already: version 1.\n")
    assert policy("check", "policy.yaml") == (0, "policy.yaml is in force: version 1.\n")

    (folder / "before.yaml").write_text(FIRST)
    (folder / "policy.yaml").write_text(SECOND)
    assert "The difference:" in policy("check", "policy.yaml")[1]
    assert '+    "crm.*": {' in policy("check", "policy.yaml")[1]
    by_hand = versions.save(northwind, "unknownTools: ALLOW", by=None)
    versions.activate(by_hand, by=None)
    code, said = policy("apply", "policy.yaml", "--over", "before.yaml")
    assert (code, "Version 2 is in force, and it is not before.yaml" in said) == (1, True)
    (folder / "before.yaml").write_text("unknownTools: ALLOW")
    over = ("apply", "policy.yaml", "--over", "before.yaml", "--note", "the CRM is ours")
    assert policy(*over) == (0, "Version 3 is in force.\n")
    assert PolicyVersion.objects.get(active=True).note == "the CRM is ours"


def test_a_mistake_stands_with_its_place_and_a_desk_that_is_away_is_none(policy, here):
    (here[0] / "policy.yaml").write_text("policies:\n  crm.*: {aproval: DENY}\n")
    for act in ("check", "apply"):
        code, said = policy(act, "policy.yaml")
        assert (code, said.startswith("policy.yaml:2:11: policies")) == (1, True)
        assert "did you mean approval?" in said
    assert policy("check", "policy.yaml", AMENDS_TOKEN="")[0] == 2
    assert policy("check", "policy.yaml", AMENDS_TOKEN="amends_0_nobody")[0] == 2
    assert policy("check", "none.yaml")[0] == 2
    assert policy("check", "policy.yaml", AMENDS_URL="http://127.0.0.1:9")[0] == 2


def test_what_would_answer_a_question_is_saved_and_not_put_in_force(policy, here, northwind):
    from approvals import versions
    from approvals.models import PolicyVersion
    from tests.approvals.cast import asker
    from workspaces.models import User

    asks = versions.save(northwind, "policies: {'payments.*': {approval: MANUAL}}", by=None)
    versions.activate(asks, by=None)
    asked = asker(northwind, User.objects.get(name="Ada"))()
    (here[0] / "policy.yaml").write_text("policies: {'payments.*': {approval: AUTO}}\n")

    code, said = policy("apply", "policy.yaml")

    assert (code, "Version 2 is saved, and not in force." in said) == (1, True)
    assert f"Approvals that wait: {asked.pk}" in said
    assert PolicyVersion.objects.get(active=True) == asks


def test_the_workflow_of_the_guide_comments_a_pull_request_and_applies_the_merge(here):
    from approvals.models import PolicyVersion

    folder, environment = here
    [printed] = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "docs/policy-api.md").read_text(), re.DOTALL
    )
    steps = {one.get("if", ""): one for one in yaml.safe_load(printed)["jobs"]["policy"]["steps"]}
    tools = folder / "tools"
    tools.mkdir()
    # GitHub's command line, which is given the comment; and the client, which lies beside.
    stands_in = {"gh": f'cat "$7" > {folder}/told.md', "python": f'exec {sys.executable} "$@"'}
    for name, line in stands_in.items():
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    environment = environment | {
        "PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "acme/agents",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }  # fmt: skip

    def shell(script):
        script = script.replace("${{ github.event.number }}", "7")
        command = ["bash", "-e", "-c", script]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    def commit(text):
        (folder / "policy.yaml").write_text(text)
        who = "-c user.name=Ada -c user.email=ada@example.com"
        done = shell(
            f"git init -q . && git add policy.yaml && git {who} commit -qm 'The CRM is ours'"
        )
        assert done.returncode == 0, done.stderr

    commit(FIRST)
    assert shell("python -m amends policy apply policy.yaml").returncode == 0
    commit("policies: {crm.*: {aproval: DENY}}\n")
    refused = shell(steps["github.event_name == 'pull_request_target'"]["run"])
    assert refused.returncode == 1
    assert (folder / "told.md").read_text().startswith("~~~\npolicy.yaml:1:")
    shell("git checkout -q HEAD^ -- policy.yaml && git reset -q --soft HEAD^")
    commit(SECOND)
    assert shell(steps["github.event_name == 'pull_request_target'"]["run"]).returncode == 0
    assert "It would take the place of version 1" in (folder / "told.md").read_text()
    assert PolicyVersion.objects.count() == 1

    merged = shell(steps["github.event_name == 'push'"]["run"])

    assert merged.stdout == "Version 2 is in force.\n", merged.stderr
    assert PolicyVersion.objects.get(active=True).note == "The CRM is ours"
    assert Path(folder / "before.yaml").read_text() == FIRST
