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


def test_what_is_in_force_is_known_by_its_text_where_the_desk_no_longer_takes_it(
    policy, here, northwind
):
    from workspaces import teams
    from workspaces.models import Team, User

    folder, _ = here
    needs = "policies: {'payments.*': {approval: MANUAL, requires: [{group: night}]}}\n"
    (folder / "before.yaml").write_text(needs)
    code, said = policy("apply", "policy.yaml", "--over", "before.yaml")
    assert (code, "there is no team" in said) == (1, True)
    (folder / "before.yaml").write_text(SECOND)
    code, said = policy("apply", "policy.yaml", "--over", "before.yaml")
    assert (code, said[:27]) == (1, "No version is in force, so ")

    night = teams.create(northwind, "night", by=None, may=["view", "approve"])
    teams.add(night, User.objects.get(name="Ada"), by=None)
    (folder / "before.yaml").write_text(needs)
    assert policy("apply", "before.yaml")[0] == 0
    Team.objects.get(name="night").delete()
    assert policy("apply", "policy.yaml", "--over", "before.yaml") == (
        0, "Version 2 is in force.\n",
    )  # fmt: skip


def test_a_file_that_is_no_text_or_too_long_is_said_to_be_that(policy, here):
    file = here[0] / "policy.yaml"
    file.write_bytes(FIRST.encode() + b"# \xff\n")
    code, said = policy("apply", "policy.yaml")
    assert (code, "policy.yaml is no text in UTF-8" in said) == (2, True)
    file.write_text(FIRST + "# " + "é" * 300_000)
    code, said = policy("check", "policy.yaml")
    assert (code, said) == (1, "policy.yaml: longer than 262144 characters\n")
    file.write_text(FIRST)
    code, said = policy("apply", "policy.yaml", "--note", "n" * 500)
    assert (code, "Shorten what you wrote" in said) == (1, True)


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
    (here[0] / "policy.yaml").rename(here[0] / "before.yaml")
    (here[0] / "policy.yaml").write_text(SECOND)
    code, said = policy("apply", "policy.yaml", "--over", "before.yaml")
    told = "before.yaml, which was saved as version 2 and never put in force"
    assert (code, told in said) == (1, True), "what its reader would look for on the page is not"
    assert PolicyVersion.objects.get(active=True) == asks


def printed_workflow():
    """What its first step checks out, and what is run for each kind of event."""
    text = (ROOT / "docs/policy-api.md").read_text()
    [printed] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    checkout, _, *steps = yaml.safe_load(printed)["jobs"]["policy"]["steps"]
    return checkout["with"], {one["if"].split("'")[1]: one["run"] for one in steps}


@pytest.fixture
def shell(here):
    """Runs a script with GitHub's command line, which keeps the comment, and the client beside."""
    folder, environment = here
    stands_in = {"gh": f'cat "$7" > {folder}/told.md', "python": f'exec {sys.executable} "$@"'}
    tools = folder / "tools"
    tools.mkdir()
    for name, line in stands_in.items():
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    who = {f"GIT_{one}": "Ada" for one in (
        "AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL",
    )}  # fmt: skip
    environment = environment | who | {
        "PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "acme/agents",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }  # fmt: skip

    def run(script, before=""):
        told = {"event.number": "7", "event.before": before}
        for name, value in told.items():
            script = script.replace(f"${{{{ github.{name} }}}}", value)
        return subprocess.run(
            ["bash", "-e", "-c", script], cwd=folder, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def test_the_workflow_of_the_guide_comments_a_pull_request_and_applies_the_merge(here, shell):
    from approvals.models import PolicyVersion

    folder, _ = here
    checkout, on = printed_workflow()

    def commit(text, subject="The CRM is ours"):
        (folder / "policy.yaml").write_text(text)
        done = shell(f"git add policy.yaml amends* && git commit -qm '{subject}'")
        assert done.returncode == 0, done.stderr

    def checked(branch):
        """The job of a pull request, from what its first step checks out."""
        of_theirs = "pull_request" in str(checkout.get("ref", ""))
        begin = f"git update-ref refs/pull/7/head {branch} && git checkout -qf"
        assert shell(f"{begin} {branch if of_theirs else 'main'}").returncode == 0
        return shell(on["pull_request_target"]).returncode, (folder / "told.md").read_text()

    (folder / "amends.md").touch()
    assert shell("git init -qb main . && git remote add origin .").returncode == 0
    commit(FIRST)
    assert shell("python -m amends policy apply policy.yaml").returncode == 0
    shell("git checkout -qb evil")
    (folder / "amends.py").write_text("print('the branch has run')")
    commit("policies: {crm.*: {aproval: DENY}}\n")
    code, told = checked("evil")
    assert (code, told.startswith("~~~\npolicy.yaml:1:")) == (1, True), told

    shell("git checkout -qfB theirs main")
    commit(SECOND, "A first step")
    commit(SECOND + "# ours\n", "-m is no option: the CRM is ours")
    code, told = checked("theirs")
    assert (code, "It would take the place of version 1" in told) == (0, True)
    assert PolicyVersion.objects.count() == 1

    before = shell("git rev-parse main").stdout.strip()
    shell("git checkout -qfB main theirs")
    merged = shell(on["push"], before)

    assert merged.stdout == "Version 2 is in force.\n", merged.stderr
    assert PolicyVersion.objects.get(active=True).note == "-m is no option: the CRM is ours"
    assert Path(folder / "before.yaml").read_text() == FIRST
