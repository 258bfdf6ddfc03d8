"""Import transcripts of past agents, and say what the policy would have asked people about."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction
from django.urls import reverse
from rich.console import Console
from rich.progress import Progress

from approvals.dry_run import would_have_asked
from approvals.policy import active
from ledger import drivers
from ledger.append.events import RecordedBatch, record
from ledger.drivers import plain_connection
from ledger.foreign import transcripts
from ledger.foreign.calls import Import, ImportBatch, events_of, importer
from ledger.intake import KEEP_BLOB
from workspaces.management import workspace_named
from workspaces.models import Agent

KEY = "import_transcripts"
TOLD_MAX = 1_000
"""Lines about what could not be read; a file of another kind has as many as it has lines."""


class Command(BaseCommand):
    help = (
        "Records the calls in transcripts (message lists of OpenAI, Anthropic and LangChain, JSON"
        " or JSON lines) as runs of an agent that were reported. Importing twice changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
        parser.add_argument("--workspace", required=True, help="its slug")
        parser.add_argument("--agent", required=True, help="the agent that they are transcripts of")

    def handle(self, *_: Any, **options: Any) -> None:
        agent = _agent(options["workspace"], options["agent"])
        taking = Import(importer(agent, name=KEY), _keep)
        runs = calls = 0
        with Progress(console=Console(stderr=True)) as progress:
            files = progress.add_task("Files", total=len(options["files"]))
            for path in options["files"]:
                found = _read(path, taking)
                task = progress.add_task(path.name, total=len(found))
                for conversation in found:
                    run = transcripts.run_of(conversation, agent.name)
                    taking.remarks += run.remarks
                    taking.take(events_of(run))
                    runs, calls = runs + 1, calls + len(run.calls)
                    progress.advance(task)
                progress.advance(files)
        self._tell(agent, taking, runs, calls)

    def _tell(self, agent: Agent, taking: Import, runs: int, calls: int) -> None:
        for lines, mark in ((taking.refused, "refused"), (taking.remarks, "noted")):
            for line in lines[:TOLD_MAX]:
                self.stderr.write(f"{mark}: {line}")
            if len(lines) > TOLD_MAX:
                self.stderr.write(f"{mark}: and {len(lines) - TOLD_MAX} more")
        self.stdout.write(
            f"{runs} runs with {calls} calls: {taking.accepted} events recorded, {taking.known}"
            f" were here already, {len(taking.refused)} refused, {len(taking.remarks)} noted."
        )
        here = agent.workspace
        found = would_have_asked(here, active(here))
        address = settings.AMENDS_URL + reverse("approvals:reported", args=[here.slug])
        self.stdout.write(
            f"Of {found.judged} imported calls the policy in force would have asked people about"
            f" {found.asked} and denied {found.denied}: {address}"
        )
        if taking.refused:
            raise CommandError("Not everything was recorded; what was refused is told above.")


def _agent(workspace: str, name: str) -> Agent:
    agent = Agent.objects.filter(workspace=workspace_named(workspace), name=name).first()
    if agent is None:
        said = "Agents are made at Settings → Agents and keys."
        raise CommandError(f"There is no agent “{name}” in {workspace}. {said}")
    return agent


def _read(path: Path, taking: Import) -> list[transcripts.Conversation]:
    found: list[transcripts.Conversation] = []
    try:
        for one in transcripts.read(path):
            if isinstance(one, str):
                taking.refused.append(one)
            else:
                found.append(one)
    except OSError as wrong:
        taking.refused.append(f"{path}: it cannot be read: {wrong.strerror}")
    return found


def _keep(batch: ImportBatch) -> RecordedBatch:
    with transaction.atomic(), connection.wrap_database_errors:
        plain = plain_connection()
        for sha256, body in batch.blobs.items():
            plain.execute(KEEP_BLOB, [batch.actor.workspace_id, sha256, body, len(body)])
        return drivers.run(record(batch.actor, batch.parsed), plain)
