"""Replay the recorded runs of the airline desk through the SDK, against a second real database."""

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
from demo.airline import agent, corpus, tables
from demo.setting import airline
from ledger.models import Run


class Command(BaseCommand):
    help = (
        "Streams recorded runs through the SDK. Each run acts in its own copy of the world; those "
        "that ended wrong fail their verification and become cases."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, help="The folder with runs.jsonl.gz")
        parser.add_argument("--limit", type=int, help="Only the first so many runs")
        parser.add_argument("--workspace", default="airline", help="Short name (default: airline)")
        parser.add_argument("--policy", type=Path, help="Another policy file")
        parser.add_argument("--url", default=settings.AMENDS_URL, help="Where the desk listens")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            recorded = corpus.load(options["path"], limit=options["limit"])
        except corpus.NoCorpus as missing:
            raise CommandError(str(missing)) from None
        places.make_outside_database()
        if Run.objects.filter(workspace__slug=options["workspace"]).exists():
            raise CommandError("This workspace has runs already; name another with --workspace.")
        token = airline.prepare(options["workspace"], policy=options["policy"])
        # A fresh spool for each replay: the same runs may be replayed into another workspace.
        desk = amends.connect(
            options["url"], token, spool=places.folder() / f"replay-{os.getpid()}.sqlite"
        )
        with psycopg.connect(places.outside_url(), autocommit=True) as database:
            tables.create(database)
            try:
                self._stream(desk, database, recorded)
            except amends.DeskUnreachable as away:
                raise CommandError(f"No desk answers at {options['url']}: {away}") from None
        desk.close()
        wrong = sum(not run.correct for run in recorded.runs)
        self.stdout.write(
            f"{len(recorded.runs)} runs replayed, {wrong} of them ended wrong. "
            f"See {options['url']}/w/{options['workspace']}/queue/"
        )

    def _stream(
        self, desk: amends.Desk, database: psycopg.Connection, recorded: corpus.Corpus
    ) -> None:
        console = Console(file=self.stdout, stderr=False)  # type: ignore[arg-type]
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("Replaying", total=len(recorded.runs))
            for run in recorded.runs:
                tables.put_world(database, recorded, run.run)
                agent.replay(desk, database, run)
                progress.advance(bar)
