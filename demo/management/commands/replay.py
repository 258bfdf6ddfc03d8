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
from demo import places
from demo.recorded import agent, corpus, tables
from demo.recorded.desks import UnknownDesk
from demo.setting import recorded as setting
from ledger.models import Run


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
        token = setting.prepare(recorded.desk, workspace, policy=options["policy"])
        # A fresh spool for each replay: the same runs may be replayed into another workspace.
        client = amends.connect(
            options["url"], token, spool=places.folder() / f"replay-{os.getpid()}.sqlite"
        )
        with psycopg.connect(places.outside_url(), autocommit=True) as database:
            tables.create(database, recorded.desk)
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
                tables.put_world(database, recorded, run.run)
                agent.replay(client, database, recorded.desk, run)
                progress.advance(bar)
