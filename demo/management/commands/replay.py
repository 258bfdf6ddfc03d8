"""Replay the recorded runs of a service desk through the SDK, against a second real database."""

import os
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.progress import Progress

import amends
from approvals import versions
from connectors import connections
from connectors.models import Connection
from demo import places
from demo.recorded import agent, corpus
from demo.recorded.desks import ServiceDesk, UnknownDesk
from ledger.models import Run
from workspaces import keys
from workspaces.models import Agent, Workspace

# A workspace for the replay of a recorded service desk: one agent, one database, one policy.

POLICIES = Path(__file__).parents[2] / "policies"


def prepare(desk: ServiceDesk, slug: str, *, policy: Path | None = None) -> str:
    """Make what is missing, activate the policy, and mint a key for the agent: its token."""
    workspace, _ = Workspace.objects.get_or_create(slug=slug, defaults={"name": desk.name})
    agent, _ = Agent.objects.get_or_create(
        workspace=workspace,
        name=desk.agent,
        defaults={"description": "Replays the recorded service desk"},
    )
    connect(workspace, desk)
    document = (policy or POLICIES / f"{desk.slug}.yaml").read_text(encoding="utf-8")
    versions.activate(versions.save(workspace, document, by=None, note="For the replay"), by=None)
    _, token = keys.create_key(agent, by=None, name="replay", trusted_runtime=True)
    return token


def connect(workspace: Workspace, desk: ServiceDesk) -> Connection:
    """The connection to the desk's database, which restores rows of its tables."""
    found = Connection.objects.filter(workspace=workspace, name=desk.slug).first()
    if found is not None:
        return found
    made = connections.create(
        workspace,
        desk.slug,
        "sql",
        places.outside_settings()
        | {
            "tables": {
                table.target_type: {"table": name, "key": ["world", "id"], "version": "version"}
                for name, table in desk.tables.items()
            }
        },
        by=None,
    )
    connections.set_secret(made, "observe", places.outside_login(), by=None)
    connections.set_secret(made, "compensate", places.outside_login(), by=None)
    return made


class Command(BaseCommand):
    help = (
        "Streams recorded runs through the SDK. Each run acts in its own copy of the world; those "
        "that ended wrong fail their verification and become cases."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, help="The folder with runs.jsonl.gz")
        parser.add_argument("--limit", type=int, help="Only the first so many runs")
        parser.add_argument("--workspace", help="Short name (default: the desk's own)")
        parser.add_argument("--policy", type=Path, help="Another policy file")
        parser.add_argument("--url", default=settings.AMENDS_URL, help="Where the desk listens")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            recorded = corpus.load(options["path"], limit=options["limit"])
        except (corpus.NoCorpus, UnknownDesk) as missing:
            raise CommandError(str(missing)) from None
        workspace = options["workspace"] or recorded.desk.slug
        places.make_outside_database()
        if Run.objects.filter(workspace__slug=workspace).exists():
            raise CommandError("This workspace has runs already; name another with --workspace.")
        token = prepare(recorded.desk, workspace, policy=options["policy"])
        # A fresh spool for each replay: the same runs may be replayed into another workspace.
        client = amends.connect(
            options["url"], token, spool=places.folder() / f"replay-{os.getpid()}.sqlite"
        )
        with psycopg.connect(places.outside_url(), autocommit=True) as database:
            corpus.create(database, recorded.desk)
            try:
                self._stream(client, database, recorded)
            except amends.DeskUnreachable as away:
                raise CommandError(f"No desk answers at {options['url']}: {away}") from None
        client.close()
        wrong = sum(not run.correct for run in recorded.runs)
        self.stdout.write(
            f"{len(recorded.runs)} runs replayed, {wrong} of them ended wrong. "
            f"See {options['url']}/w/{workspace}/queue/"
        )

    def _stream(
        self, client: amends.Desk, database: psycopg.Connection, recorded: corpus.Corpus
    ) -> None:
        console = Console(file=self.stdout, stderr=False)  # type: ignore[arg-type]
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("Replaying", total=len(recorded.runs))
            for run in recorded.runs:
                corpus.put_world(database, recorded, run.run)
                agent.replay(client, database, recorded.desk, run)
                progress.advance(bar)
