"""Replay the recorded runs of a service desk through the SDK, against a second real database.

A run that ended wrong fails its verification: the last call that changed something is read back and
compared with what the customer had asked for.
"""

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
from demo import corpus, places
from demo.corpus import Effect, RecordedCall, RecordedRun, Row, ServiceDesk, UnknownDesk
from demo.setting import skyline
from ledger.models import Run
from workspaces import entrance, keys
from workspaces.models import Agent, User, Workspace

# A workspace for the replay of a recorded service desk: one agent, one database, one policy.

POLICIES = Path(__file__).parents[2] / "policies"


def prepare(
    desk: ServiceDesk, slug: str, *, founder: str = skyline.ADA, policy: Path | None = None
) -> str:
    """Make what is missing, activate the policy, and mint a key for the agent: its token. A new
    workspace is opened for the person with this address; for the demo's Ada, with her colleagues.
    """
    workspace = Workspace.objects.filter(slug=slug).first() or opened(desk, slug, founder)
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


def opened(desk: ServiceDesk, slug: str, founder: str) -> Workspace:
    """Raises CommandError where nobody would be in it."""
    somebody = User.objects.filter(email__iexact=founder, is_active=True).first()
    if somebody is None:
        raise CommandError(f"Nobody here has the address {founder}: name somebody by --founder.")
    workspace = entrance.open_workspace(desk.name, slug, by=somebody)
    if founder == skyline.ADA:
        skyline.bring_in(workspace, somebody)
    return workspace


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
        parser.add_argument("--founder", default=skyline.ADA, help="Who administers a new one")
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
        token = prepare(
            recorded.desk, workspace, founder=options["founder"], policy=options["policy"]
        )
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
                replay(client, database, recorded.desk, run)
                progress.advance(bar)


RESULT_CHARACTERS_MAX = 2_000


def replay(
    client: amends.Desk, database: psycopg.Connection, desk: ServiceDesk, recorded: RecordedRun
) -> None:
    """Replay one run in its own world, which is named like the run."""
    with client.run(
        recorded.request,
        run=recorded.run,
        on_behalf_of=_person(database, desk, recorded),
        model=recorded.model,
        goal=desk.goal,
        labels={"corpus": desk.slug},
    ) as run:
        last = None
        for call in recorded.calls:
            action = _act(run, database, desk, recorded.run, call)
            if call.effects or last is None:
                last = action
        verify(last or _reviewed(run), desk, recorded)
        run.summary = "Done as asked" if recorded.correct else "Done, not as asked"


def _reviewed(run: amends.Run) -> amends.Action:
    """A run that called no tool is verified all the same: doing nothing can be wrong too."""
    with run.action("review_conversation", effect_class="read_only") as action:
        action.succeeded(result="No tool was called.")
    return action


def _person(
    database: psycopg.Connection, desk: ServiceDesk, recorded: RecordedRun
) -> dict[str, Any]:
    row = corpus.read(database, desk.customers, recorded.run, recorded.customer) or {}
    person = {"id": recorded.customer, "name": desk.name_of(row) or recorded.customer}
    return person | ({"contact": row["email"]} if row.get("email") else {})


def _act(
    run: amends.Run, database: psycopg.Connection, desk: ServiceDesk, world: str, call: RecordedCall
) -> amends.Action:
    """One recorded call. Reading calls are recorded too: they tell what the agent had seen."""

    def target(effect: Effect) -> tuple[str, str]:
        return desk.tables[effect.table].target_type, f"{world}/{effect.id}"

    def now(effect: Effect) -> Row | None:
        return corpus.read(database, effect.table, world, effect.id)

    before = list(map(now, call.effects))
    known: dict[str, Any] = (
        {"target": list(map(target, call.effects)), "before": before} if call.effects else {}
    )
    with run.action(
        call.tool,
        args=call.args,
        effect_class=desk.class_of(call.tool),
        op=f"{call.tool} {call.n}",
        **known,
    ) as action:
        if not call.ok:
            action.failed(call.result[:RESULT_CHARACTERS_MAX], outcome="no_effect")
            return action
        for effect in call.effects:
            corpus.write(database, desk, world, (effect.table, effect.id), effect.after)
        action.succeeded(
            result=call.result[:RESULT_CHARACTERS_MAX],
            effects=[
                {
                    "target": target(effect),
                    "before": was,
                    "after": now(effect),
                    "summary": desk.summary(call.tool, effect.table, effect.id),
                    "reversibility": "exact",
                }
                for was, effect in zip(before, call.effects, strict=True)
            ],
        )
    return action


def verify(action: amends.Action, desk: ServiceDesk, recorded: RecordedRun) -> None:
    """Say whether the run did what the customer had asked for; the recording knows."""
    done = [_words(desk, call.tool, call.args) for call in recorded.calls if call.effects]
    wanted = [_words(desk, call["tool"], call["args"]) for call in recorded.expected]
    action.verified(
        [
            {
                "name": "what the customer asked for",
                "expected": wanted or ["no change"],
                "actual": done or ["no change"],
                "ok": recorded.correct,
            }
        ]
    )


def _words(desk: ServiceDesk, tool: str, args: Row) -> str:
    what = next((args[name] for name in desk.subjects if args.get(name)), "")
    return f"{tool} {what}".strip()
