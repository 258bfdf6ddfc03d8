"""Encrypt every secret anew under the first key of AMENDS_SECRET_KEYS."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.sealed import COLUMNS


class Command(BaseCommand):
    help = "Encrypts every kept secret under the first key; afterwards the old key may be dropped."

    def handle(self, *args: Any, **options: Any) -> None:
        closed = []
        for one in COLUMNS:
            rotated, lost = one.rotate()
            self.stdout.write(f"{one.words}: {rotated} now rest under the first key.")
            closed += [f"{lost} {one.words}"] if lost else []
        if closed:
            raise CommandError(
                f"No key of AMENDS_SECRET_KEYS opens {', '.join(closed)}: put the key back that was"
                " taken away, last in the list, and run this again."
            )
