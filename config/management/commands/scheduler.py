from typing import Any

from django.core.management.base import BaseCommand

from config import periodic
from workspaces.periodic import SCHEDULER


class Command(BaseCommand):
    requires_system_checks = ()  # `prepare` ran them, and they load every page
    help = "Do the periodic jobs of every floor until told to stop."

    def handle(self, **options: Any) -> None:
        periodic.run(SCHEDULER)
