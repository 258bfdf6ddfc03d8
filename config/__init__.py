"""The Django project. Nothing of the domain lives here."""

import gc

# What is imported stays. By default each 700 objects are searched for cycles, and now and then all
# that is there with them: a tenth of each process's start, and a fifth of reading a batch of
# events, which makes ten thousand and frees them all.
gc.set_threshold(50_000, 20, 20)

from config.celery import app as celery_app  # noqa: E402 - it imports all of Celery

__all__ = ["celery_app"]
