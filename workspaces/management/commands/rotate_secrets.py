"""Encrypt every secret anew under the first key of AMENDS_SECRET_KEYS."""

from typing import Any

from django.core.management.base import BaseCommand

from workspaces.models import Secret, Workspace

BATCH = 200


class Command(BaseCommand):
    help = "Encrypts every kept secret under the first key; afterwards the old key may be dropped."

    def handle(self, *args: Any, **options: Any) -> None:
        rotated = 0
        for secret in Secret.objects.order_by("pk").iterator(chunk_size=BATCH):
            secret.rotate()
            rotated += 1
        for workspace in Workspace.objects.order_by("pk").iterator(chunk_size=BATCH):
            workspace.rotate()
            rotated += 1
        self.stdout.write(f"{rotated} secrets now rest under the first key.")
