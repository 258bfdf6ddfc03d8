"""`manage.py connectors`: which connectors this desk knows, and what is wrong with the others."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from connectors.registry import BUILT_IN, registry


class Command(BaseCommand):
    help = (
        "List the connectors that are installed, with their operations; what a workspace reaches by"
        " them is listed by `manage.py connections`."
    )

    def handle(self, *_: Any, **__: Any) -> None:
        found = registry()
        for name, connector in sorted(found.connectors.items()):
            origin = "built in" if name in BUILT_IN else type(connector).__module__
            self.stdout.write(f"{name} {connector.version}  {connector.title} ({origin})")
            for operation in connector.operations.values():
                self.stdout.write(f"    {operation.name}: {operation.title}")
        if found.faults:
            raise CommandError("Left out:\n" + "\n".join(found.faults))
