"""The web process: static files and the edge in front, Django behind.

Which path goes where is all that is decided here; the handlers live on their floors.
"""

import gc
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
os.environ.setdefault("AMENDS_PROCESS", "web")

from django.core.asgi import get_asgi_application

django = get_asgi_application()

from config.edge import Bounded, Edge  # noqa: E402 - Django comes first

# Batches of events are read in threads. By default each may keep the interpreter for 5 ms while the
# loop waits with an answer, a query or somebody else's request; PostgreSQL then has nothing to do.
sys.setswitchinterval(0.0005)

application = Edge(Bounded(django))
gc.freeze()  # as it is: to search it first takes longer than what little is found is worth
