"""Batches are read in threads: a fresh process may meet four of them at once."""

import os
import subprocess
import sys

PROGRAM = """
import importlib, sys, threading
import msgspec
import django
django.setup()
from ledger import schemas

sys.setswitchinterval(1e-6)
target = {"type": "charge", "id": "ch_1"}
plan = {"tool": "pay.refund", "targets": [target], "target": target, "class": "draft"}
for _ in range(100):
    planned = importlib.reload(schemas).AGENT_TYPES["action.planned"]
    together = threading.Barrier(4)

    def read():
        together.wait()
        for _ in range(10):
            msgspec.convert(plan, planned)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_the_first_batches_of_a_fresh_process_may_come_together() -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [sys.executable, "-X", "faulthandler", "-c", PROGRAM]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
