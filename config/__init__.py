"""The Django project. Nothing of the domain lives here."""

import gc

# What is imported stays. By default all of it is searched for garbage again and again while it
# comes in, which was a tenth of each process's start.
gc.set_threshold(50_000, 20, 20)

from config.celery import app as celery_app  # noqa: E402 - it imports all of Celery

__all__ = ["celery_app"]
