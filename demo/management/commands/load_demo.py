"""Set the stage of the demo and print its log-ins. Safe to repeat."""

from typing import Any

from django.core.management.base import BaseCommand

from demo import places
from demo.setting import history, skyline
from workspaces.models import Workspace


class Command(BaseCommand):
    help = "Makes the demo's workspace, people, agents, connections and policy."

    def handle(self, *args: Any, **options: Any) -> None:
        skyline.make_tables()
        logins = skyline.prepare()
        history.seed(Workspace.objects.get(slug=skyline.SLUG))
        told = {address: what for address, _, what, _ in skyline.PEOPLE}
        self.stdout.write("Log in as one of these, all with the password below:")
        for address in logins:
            self.stdout.write(f"  {address:<28} {told[address]}")
        self.stdout.write(f"  {skyline.STRANGER[0]:<28} another workspace, sees nothing of Skyline")
        self.stdout.write(f"  password: {next(iter(logins.values()))}")
        self.stdout.write(f"  mailbox of the demo: {places.places().mailbox}/mailbox")
