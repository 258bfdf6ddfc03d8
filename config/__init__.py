"""The Django project. Nothing of the domain lives here."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
