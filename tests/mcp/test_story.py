"""An agent acts three times through a server that nobody here wrote, and the third call fails.

A person agrees, and through case, plan, approval and worker everything outside is as it was, byte
for byte. Both official clients, over stdio and over HTTP; the files of docs/mcp.md, as printed.
"""

import json
import re
import subprocess

import pytest

from tests.adapters.conftest import ROOT
from tests.adapters.test_story import case_of, closed
from tests.crash.oracle import until
from tests.mcp.conftest import SECRET, Gateway, files_server, play, python, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True), pytest.mark.timeout(900), pytest.mark.adapters,
]  # fmt: skip
PAGE = (ROOT / "docs" / "mcp.md").read_text("utf-8")
ENVIRONMENT = {"AMENDS_OUTBOUND_ALLOW": "127.0.0.1"}
GIT_POLICY = """
agentSafety:
  policies:
    "git_*": {risk: LOW, approval: AUTO, compensation: SNAPSHOT}
    "repository.*": {risk: HIGH, approval: MANUAL}
"""


def printed(kind):
    """What the page prints in blocks of a kind, in their order."""
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def people(northwind, token):
    """Ada recovers, Ben approves."""
    from workspaces import independence, teams
    from workspaces.models import User

    ada = User.objects.get(name="Ada")
    ben = User.objects.create_user("ben@northwind.example", name="Ben")
    teams.add(teams.create(northwind, "recovery", by=None, may=["view", "recover"]), ada, by=None)
    teams.add(teams.create(northwind, "finance", by=None, may=["view", "approve"]), ben, by=None)
    independence.prove(ben)
    return ada, ben


def connect(northwind, ada, name, address, operations, policy):
    from approvals import versions
    from connectors import connections

    versions.activate(versions.save(northwind, policy, by=ada), by=ada)
    settings = {"url": address, "operations": operations}
    connection = connections.create(northwind, name, "webhook", settings, by=ada)
    for purpose in ("observe", "compensate"):
        connections.set_secret(connection, purpose, {"secret": SECRET}, by=ada)


def undo(case, people):
    """Ada proposes what the desk has drafted, Ben agrees, and it is done; the steps."""
    from approvals import inbox
    from approvals.models import Approval
    from recovery.planning import plans

    ada, ben = people
    draft = plans.draft(case)
    steps = [(one.step.operation, one.preview.title) for one in draft.steps]
    plans.submit(case, digest=draft.digest, revision=draft.case.revision, by=ada, reason="Undo it")
    approval = Approval.objects.get()
    inbox.grant(approval, by=ben, seen=approval.digest, reason="It was a mistake")
    until(lambda: closed(case), 240, "the case is closed")
    return steps


def run_of_the_only_session():
    from ledger.models import Run

    return wait_for(lambda: Run.objects.filter(state="failed").first(), "the run has ended").run


def test_files_that_an_agent_wrote_are_restored_byte_for_byte(
    northwind, people, processes, token, tmp_path, twins
):
    """A secret and a card number are in one, and Windows' ends of lines: the ledger masks, and
    what is put back is what was there.
    """
    folder = tmp_path / "notes"
    folder.mkdir()
    was = {
        "plan.txt": b"\xef\xbb\xbfcard 4111 1111 1111 1111\r\npassword: sk_live_51H8xyzABCDEF\r\n",
        "menu.txt": "Käse\nBrot\n".encode(),
    }
    for name, content in was.items():
        (folder / name).write_bytes(content)
    tools = tmp_path / "files.toml"
    tools.write_text(printed("toml")[0])
    server = files_server(folder)
    with processes.side_by_side():
        web = processes.kept_web(**ENVIRONMENT)
        processes.worker(**ENVIRONMENT)
        processes.sweeper(**ENVIRONMENT)
    address = twins(web.url, token, server, tools)
    operations = json.loads(printed("json")[0])
    connect(northwind, people[0], "files", address, operations, printed("yaml")[0])
    gateway = Gateway(web.url, token, tmp_path / "agent.sqlite", server, "--tools", str(tools))

    said = play(
        "typescript", gateway, command=gateway.command,
        calls=[
            ["write_file", {"path": f"{folder}/plan.txt", "content": "all new"}],
            ["edit_file", {"path": f"{folder}/menu.txt",
                           "edits": [{"oldText": "Brot", "newText": "Wein"}]}],
            ["write_file", {"path": "/etc/plan.txt", "content": "not here"}],
        ],
    )  # fmt: skip

    assert [is_error for _, is_error in said["told"]] == [False, False, True]
    assert (folder / "plan.txt").read_bytes() == b"all new"
    assert (folder / "menu.txt").read_text("utf-8") == "Käse\nWein\n"
    case = case_of(run_of_the_only_session())
    assert undo(case, people) == [
        ("restore_file", f"Put back as it was: file {folder}/menu.txt"),
        ("restore_file", f"Put back as it was: file {folder}/plan.txt"),
    ]
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == was
    assert case.outcome == "restored"


def test_a_repository_is_as_it_was_before_the_agent(
    northwind, people, processes, token, tmp_path, twins, listening_at
):
    """The agent changes branch and stages a file; its commit fails on the repository's own hook."""
    repository = tmp_path / "site"
    was = new_repository(repository)
    tools = tmp_path / "git.toml"
    tools.write_text(printed("toml")[1])
    server = [python(), "-m", "mcp_server_git", "--repository", str(repository)]
    with processes.side_by_side():
        web = processes.kept_web(**ENVIRONMENT)
        processes.worker(**ENVIRONMENT)
        processes.sweeper(**ENVIRONMENT)
    address = twins(web.url, token, server, tools)
    operations = {
        f"restore_{kind}": {"title": "Put back as it was", "leaves": "before"}
        for kind in ("checkout", "index")
    }
    connect(northwind, people[0], "repository", address, operations, GIT_POLICY)
    url = listening_at(web.url, token, server, "--tools", str(tools))
    here = {"repo_path": str(repository)}

    said = play(
        "python", None, url=url,
        calls=[
            ["git_checkout", {**here, "branch_name": "release"}],
            ["git_add", {**here, "files": ["draft.txt"]}],
            ["git_commit", {**here, "message": "Publish the draft"}],
        ],
    )  # fmt: skip

    assert said["version"] == "2025-11-25"
    assert [is_error for _, is_error in said["told"]] == [False, False, True]
    assert (repository / "page.txt").read_bytes() == b"released\n"
    case = case_of(run_of_the_only_session())
    assert [operation for operation, _ in undo(case, people)] == [
        "restore_index",
        "restore_checkout",
    ]
    assert state_of(repository) == was
    assert case.outcome == "restored"


def new_repository(repository):
    """Two branches, a file that nobody has added, and a hook that lets no commit through."""
    repository.mkdir()
    for command in (
        "init -q -b main", "config user.email mia@northwind.example", "config user.name Mia",
    ):  # fmt: skip
        git(repository, *command.split())
    (repository / "page.txt").write_bytes(b"in work\r\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "One")
    git(repository, "checkout", "-qb", "release")
    (repository / "page.txt").write_bytes(b"released\n")
    git(repository, "commit", "-qam", "Two")
    git(repository, "checkout", "-q", "main")
    (repository / "draft.txt").write_bytes(b"\x00 not yet")
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    return state_of(repository)


def state_of(repository):
    """Its files, to the byte, and what git says of branch, index and commits."""
    files = {one.name: one.read_bytes() for one in repository.iterdir() if one.is_file()}
    said = [
        git(repository, *command.split())
        for command in ("symbolic-ref HEAD", "status --porcelain", "for-each-ref", "ls-files -s")
    ]
    return files, said


def git(repository, *words):
    done = subprocess.run(
        ["git", "-C", str(repository), *words], check=True, capture_output=True, text=True
    )
    return done.stdout
