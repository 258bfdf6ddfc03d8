#!/usr/bin/env python
import atexit
import gc
import os
import signal
import sys

if __name__ == "__main__":
    # What a command began it takes away again (a half backup), also where it is told to end.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # What is left goes with the process: to search it for garbage would take longer than the stop.
    atexit.register(gc.freeze)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
