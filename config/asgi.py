"""The web process: static files and the hot door in front, Django behind.

Which path goes where is all that is decided here; the handlers live on their floors.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
os.environ.setdefault("AMENDS_PROCESS", "web")

from django.core.asgi import get_asgi_application

django = get_asgi_application()

from config.door import Door  # noqa: E402 - it imports models, so Django comes first

application = Door(django)
