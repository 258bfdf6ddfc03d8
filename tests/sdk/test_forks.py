"""An agent that forks: neither answers, nor locks, nor the spool are shared with the child."""

import os
import subprocess
import sys

import pytest

from tests.sdk.conftest import ENVIRONMENT, KEY

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")

# The parent's calls and the child's go over the wire at once, many of them. Each says what it asked
# for and which action it was told.
FORKED = """
import os, sys, threading, amends
desk = amends.connect(sys.argv[1], sys.argv[2], spool=sys.argv[3])
if sys.argv[4] == "sending":  # the thread that sends is on the wire, and holds its lock
    desk.sender._sending.acquire()
def call(who):
    with desk.run("Move it", run=f"run_{who}") as run:
        for place in range(20):
            with run.action("note.add", target=("note", f"{who}-{place}"),
                            effect_class="internal_update") as act:
                asked = run.last_action
                act.succeeded({"who": who, "place": place}, after={})
            if not desk.spool.find(act.row.key).result == {"who": who, "place": place}:
                return 3
    return 0
desk.fetch_policy()
child = os.fork()
if child == 0:
    code = 4
    try:
        code = call("child")
        desk.flush(60)
    finally:
        os._exit(code)
if sys.argv[4] == "sending":
    desk.sender._sending.release()
code = call("parent")
_, status = os.waitpid(child, 0)
desk.close(seconds=5)
sys.exit(code or os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("busy", ["idle", "sending"])
def test_parent_and_child_each_hear_their_own_answers_and_lose_nothing(
    small_desk, spool_file, busy
):
    command = [sys.executable, "-c", FORKED, small_desk.url, KEY, str(spool_file), busy]

    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    told = [event["run"] for event in small_desk.journal() if event["type"] == "action.succeeded"]
    assert (told.count("run_parent"), told.count("run_child")) == (20, 20)
    asked = {body["action"]: body["run"] for body in small_desk.journal("begin")}
    for event in small_desk.journal():
        assert asked.get(event.get("action"), event["run"]) == event["run"]


# A thread holds the store at the moment of the fork; then both processes are asked for the same.
TWINS = """
import os, signal, sys, threading, time
from amends.twins import SqliteKeys
signal.alarm(20)
store = SqliteKeys(sys.argv[1])
holds = threading.Event()
def hold():
    with store._lock:
        holds.set()
        time.sleep(0.3)
threading.Thread(target=hold).start()
holds.wait()
read, write = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(20)
began = [key for key in range(100) if store.start(f"k-{key}", "asked") is None]
if child == 0:
    os.write(write, str(len(began)).encode())
    os._exit(0)
os.waitpid(child, 0)
print(len(began) + int(os.read(read, 10)))
"""


def test_workers_that_a_server_forks_begin_each_key_once(tmp_path):
    command = [sys.executable, "-c", TWINS, str(tmp_path / "twins.sqlite")]

    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.strip() == "100", done.stderr


# A program that begins to work for good after it has left whoever started it, and ends as it likes.
LEAVES = """
import os, sys, amends
desk = amends.connect(sys.argv[1], sys.argv[2], spool=sys.argv[3])
desk.fetch_policy()
if os.fork():
    os._exit(0)
desk.spool.need_room()
held = desk.sender._sending.acquire()
with desk.run("Move it", run="run_1"):
    pass
desk.sender._sending.release()
"""


def test_a_child_that_goes_on_alone_sends_what_is_left_as_it_ends(small_desk, spool_file):
    command = [sys.executable, "-c", LEAVES, small_desk.url, KEY, str(spool_file)]

    subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=60, check=True)

    assert small_desk.types() == ["run.started", "run.completed"]


CHILD_ENDS = """
import os, sys, amends
desk = amends.connect(sys.argv[1], sys.argv[2], spool=sys.argv[3])
with desk.run("Move it", run="run_1") as run:
    with run.action("note.add", target=("note", "1")) as act:
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        act.perform(dict)
desk.close(seconds=30)
"""


def test_a_child_that_ends_ends_neither_the_parents_run_nor_its_call(small_desk, spool_file):
    command = [sys.executable, "-c", CHILD_ENDS, small_desk.url, KEY, str(spool_file)]

    subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=60, check=True)

    assert small_desk.types() == ["run.started", "action.succeeded", "run.completed"]


BOTH_GO_ON = """
import os, sys, amends
url, key, spool = sys.argv[1:]
desk = amends.connect(url, key, spool=spool, workspace="northwind")
with desk.run("Move it") as run, run.action("update_flight") as act:
    child = os.fork()
    try:
        act.perform(lambda: print("made", flush=True))
    except amends.AmendsError as refused:
        print(refused, flush=True)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
desk.close(seconds=30)
"""


def test_a_call_is_made_by_the_process_that_began_it_and_by_no_child(small_desk, spool_file):
    """Each had a lock of its own, and both made it."""
    command = [sys.executable, "-c", BOTH_GO_ON, small_desk.url, KEY, str(spool_file)]

    said = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=True
    ).stdout

    assert said.count("made\n") == 1
    assert "a child begins calls of its own" in said
    assert small_desk.types() == ["run.started", "action.succeeded", "run.completed"]
