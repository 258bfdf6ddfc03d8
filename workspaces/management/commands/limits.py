"""`manage.py limits WORKSPACE`: how fast its agents may ask, as an operator of the desk sets it."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from amends.protocol.vocabulary import EventType
from workspaces import outbox, rates
from workspaces.management import workspace_named
from workspaces.models import Workspace

PER_MINUTE_MAX = 10_000_000
UNSAID = -1


def per_minute(said: str) -> int | None:
    """`default` is None: what the environment says."""
    if said == "default":
        return None
    number = int(said)
    if not 0 <= number <= PER_MINUTE_MAX:
        raise ValueError
    return number


class Command(BaseCommand):
    help = "Show, or set, how many requests a minute the agents of a workspace may make."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", metavar="WORKSPACE", help="its short name")
        for name in rates.NAMES:
            words = f"requests a minute of each {name}; 0 is no limit, `default` the environment's"
            parser.add_argument(f"--{name}", type=per_minute, default=UNSAID, help=words)

    def handle(self, *_: Any, slug: str, **options: Any) -> None:
        here = workspace_named(slug)
        said = {f"rate_{name}": options[name] for name in rates.NAMES if options[name] != UNSAID}
        if said:
            was = {name: getattr(here, name) for name in said}
            with transaction.atomic():
                Workspace.objects.filter(pk=here.pk).update(**said)
                outbox.record(here, EventType.WORKSPACE_CHANGED, by=None, data=said | {"was": was})
            here.refresh_from_db()
        limits = rates.limits_of(here)
        for name, own, rate in zip(rates.NAMES, limits, limits.in_force(), strict=True):
            whence = "the environment" if own is None else "set for this workspace"
            told = f"{rate} requests a minute" if rate else "no limit"
            self.stdout.write(f"{name}: {told} ({whence})")
