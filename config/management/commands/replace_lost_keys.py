"""After AMENDS_SECRET_KEYS was lost for good: make anew what no desk runs without."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from config import sealed
from workspaces.models import Workspace


class Command(BaseCommand):
    help = (
        "Says which masking keys, keys of logs and company log-ins no key of AMENDS_SECRET_KEYS"
        " opens."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--for-good",
            action="store_true",
            help="make them anew: what was sealed in them is lost, also where the key turns up",
        )

    def handle(self, *, for_good: bool, **options: Any) -> None:
        find = sealed.replace_lost if for_good else sealed.lost_keys
        found = [(one.slug, find(one)) for one in Workspace.objects.order_by("pk")]
        for slug, lost in found:
            if lost:
                is_new = "made anew" if for_good else "lost, and nothing is changed"
                self.stdout.write(f"{slug}: {' and '.join(lost)}: {is_new}.")
        if log_ins := sealed.lost_log_ins():
            if for_good:
                sealed.let_go(log_ins)
            is_new = "let go until their people log in" if for_good else "lost, nothing is changed"
            self.stdout.write(f"{len(log_ins)} log-ins with a company: {is_new}.")
        if not log_ins and not any(lost for _, lost in found):
            self.stdout.write("Each opens: nothing is lost.")
