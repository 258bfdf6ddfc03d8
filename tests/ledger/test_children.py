"""Large batches are taken in by processes of their own, and one that is killed costs only a retry.

The web process is real, and so are its children.
"""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger.models import Event
from tests.ledger import children
from tests.ledger.children import (
    SESSIONS,
    TERMINATE,
    WAITING,
    asked,
    children_of,
    goes,
    large,
    until,
    words,
)

send, web, held = children.send, children.web, children.held
pytestmark = pytest.mark.django_db(transaction=True)
# What Python imports first of all, in every process that is given its folder: no child starts.
NO_CHILD = """
import os
if os.environ.get("AMENDS_PROCESS") == "intake":
    os._exit(3)
"""


def test_a_child_killed_with_a_batch_costs_a_retry_and_another_takes_its_place(web, send, held):
    batch = large()
    before = children_of(web.pid)
    with ThreadPoolExecutor(1) as aside:
        sent = aside.submit(send, web, batch)
        until(lambda: asked(WAITING) == 1)
        for child in before:
            os.kill(child, signal.SIGKILL)
        status, told, headers = sent.result()
    held.rollback()

    assert status == 503
    assert int(headers["retry-after"]) >= 1
    assert headers["content-type"] == "application/problem+json"
    assert told["title"].startswith("Interrupted")
    until(lambda: send(web, batch)[0] == 200)  # the other child's end may not be known yet
    assert words(send(web, batch)) == ["duplicate"] * 4
    assert Event.objects.filter(run="run_1", action__gt="").count() == 4
    send(web, large("another"))
    until(lambda: len(children_of(web.pid) - before) == 2)
    assert words(send(web, batch)) == ["duplicate"] * 4


def test_children_whose_connections_were_cut_find_the_database_again(web, send):
    asked(TERMINATE)

    batch = large()
    until(lambda: send(web, batch)[0] == 200)
    assert words(send(web, batch)) == ["duplicate"] * 4
    assert len(children_of(web.pid)) == 2


def test_threads_take_in_batches_where_no_child_starts_and_the_log_says_so(
    processes, send, tmp_path
):
    (tmp_path / "sitecustomize.py").write_text(NO_CHILD)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    web = processes.web(AMENDS_INTAKE_PROCESSES="2", PYTHONPATH=paths)

    assert words(send(web, large("first"))) == ["accepted"] * 4
    until(lambda: web.said().count("did not start; threads do its work") == 2)
    assert words(send(web, large("second"))) == ["accepted"] * 4
    assert children_of(web.pid) == set()
    assert asked(SESSIONS) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_child_is_left_when_the_web_process_ends(web, send, held, number):
    children = children_of(web.pid)
    with ThreadPoolExecutor(1) as aside:
        sent = aside.submit(send, web, large())
        until(lambda: asked(WAITING) == 1)  # one of them is in the middle of a batch
        os.kill(web.pid, number)
        until(lambda: not any(goes(child) for child in children))
        until(lambda: not web.alive())
        held.rollback()
        sent.exception()


def test_without_any_threads_take_in_large_batches(processes, send):
    web = processes.web(AMENDS_INTAKE_PROCESSES="0")

    assert words(send(web, large())) == ["accepted"] * 4
    assert children_of(web.pid) == set()
    assert asked(SESSIONS) == 0
