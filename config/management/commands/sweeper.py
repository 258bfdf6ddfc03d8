from typing import Any

from django.core.management.base import BaseCommand

from config import periodic
from workspaces.periodic import SWEEPER


class Command(BaseCommand):
    requires_system_checks = ()  # `prepare` ran them, and they load every page
    help = "Find work whose wake-up was lost, straight on the database, until told to stop."

    def handle(self, **options: Any) -> None:
        periodic.run(SWEEPER)
