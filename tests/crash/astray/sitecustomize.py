"""A machine whose clock is off: ASTRAY_SECONDS are added to every reading of the time of day.

Python imports a module of this name by itself when it starts, where its folder is on the path. So
the product's own processes run with a wrong clock, and know nothing of it.
"""

import os
import time
from datetime import datetime, timedelta

SECONDS = float(os.environ.get("ASTRAY_SECONDS", "0"))

if SECONDS:
    from django.utils import timezone

    right_time, right_now = time.time, timezone.now

    def wrong_time() -> float:
        return right_time() + SECONDS

    def wrong_now() -> datetime:
        return right_now() + timedelta(seconds=SECONDS)

    time.time = wrong_time
    timezone.now = wrong_now
