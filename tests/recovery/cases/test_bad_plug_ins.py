"""A plug-in that raises or hangs where nothing may go wrong harms nobody but itself."""

import sys
import threading
import time
from functools import partial

import pytest

from connectors import accounts, call_pool, calls, connections, registry
from connectors.contract import CannotRead, Observation, Refused, Target
from connectors.models import Connection
from recovery.casework import bulk
from recovery.models import Case
from recovery.planning import plans
from recovery.triage import triage
from tests.connectors.conftest import connected
from tests.people import logged_in
from workspaces.models import Workspace

PIGEON = """
from connectors.contract import *

class Pigeon(Connector):
    name, version, title = "pigeon", "0.1", "Carrier pigeons"
    operations = {
        "recall": Operation(
            name="recall", title="Recall a pigeon", args_schema=NothingSchema,
            reversibility="compensable", idempotency="natural_key",
        )
    }

    def preview(self, call):
        return Preview(kind="http", title="Recall", must_be_true={"exists": True, "fields": {}})

    def observe(self, call):
        return Observation(found=True, state={})

    def apply(self, call):
        return Answer(outcome="applied")
"""
PREVIEW = '        return Preview(kind="http"'
MISTAKES = {
    "raises": PIGEON.replace(PREVIEW, f"        call.args['nothing']\n{PREVIEW}"),
    "gives no preview": PIGEON.replace(PREVIEW, f"        return 'Recall'\n{PREVIEW}"),
    "is not JSON": PIGEON.replace('"fields": {}', '"fields": {"at": object()}'),
    "has no operations": f"""import os
{PIGEON}
    def operations_for(self, settings):
        return 1 / 0 if os.environ.get("LOFT") else self.operations
""",
}


@pytest.fixture
def pigeons(tmp_path, monkeypatch, acme, ada, begin_run):
    """Somebody's package with this source, a connection of its kind, and a twin that names it."""
    from approvals import versions
    from tests.recovery.cases.conftest import POLICY

    def put(source):
        (tmp_path / "pigeons.py").write_text(source)
        dist = tmp_path / "pigeons-1.0.dist-info"
        dist.mkdir()
        (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeons\nVersion: 1.0\n")
        (dist / "entry_points.txt").write_text("[amends.connectors]\npigeon = pigeons:Pigeon\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        registry.forget()
        connection = connected(acme, "loft", "pigeon", {}, {}, by=ada)
        twin = '    "pigeons.*": {connection: loft, operation: recall, args: {}}\n'
        document = POLICY.replace("  twins:\n", f"  twins:\n{twin}")
        versions.activate(versions.save(acme, document, by=None), by=None)
        return connection

    yield put
    registry.forget()
    sys.modules.pop("pigeons", None)


ANSWERING = ("observe", "apply", "probe", "verify")


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_triage_goes_on_beside_a_plug_in_that_fails(pigeons, begin_run, ada, mistake, monkeypatch):
    pigeons(mistake)
    monkeypatch.setenv("LOFT", "on fire")
    theirs, others = begin_run("run_1"), begin_run("run_2")
    theirs.does("pigeons.send", ("pigeon", "P-1", {}, {"sent": True}))
    theirs.ends("failed")
    others.does("tickets.update", ("ticket", "main/T-1", {"a": 1}, {"a": 2}))
    others.ends("failed")

    triage.look()

    assert set(Case.objects.values_list("run__run", flat=True)) == {"run_1", "run_2"}
    [cannot] = plans.draft(theirs.case()).cannot
    assert cannot.text.startswith("The connector pigeon fails with ")
    seen = bulk.dry_run(ada.groups.get().team.workspace, "compensate", by=ada)
    assert "run_1" in [one.case.run.run for one in seen.not_eligible]


AWAY = "        if os.environ.get('LOFT'): raise CannotRead('The loft is away.')\n"
KEYED = PIGEON.replace(
    "class Pigeon", "class Key(NothingSchema):\n    key: str = ''\n\nclass Pigeon"
)
KEYED = KEYED.replace("    operations =", "    credential_schema = Key\n    operations =", 1) + "\n"
OPERATIONS = f"    def operations_for(self, settings):\n{AWAY}        return self.operations\n"
UNREAD = {
    "preview": PIGEON.replace(PREVIEW, f"{AWAY}{PREVIEW}"),
    "operations_for": f"{PIGEON}\n{OPERATIONS}",
    "place": f"{PIGEON}\n    def place(self, settings):\n{AWAY}        return 'the loft'\n",
    "account": KEYED + f"    def account(self, settings, key):\n{AWAY}        return 'mia'\n",
}


@pytest.mark.parametrize("source", UNREAD.values(), ids=UNREAD)
def test_of_one_that_cannot_read_where_it_should_not_look_the_case_says_so(
    pigeons, begin_run, source, monkeypatch
):
    """It ended the page of the case."""
    pigeons(f"import os\n{source}")
    monkeypatch.setenv("LOFT", "away")
    accounts._known.clear()
    run = begin_run("run_1")
    run.does("pigeons.send", ("pigeon", "P-1", {}, {"sent": True}))
    run.ends("failed")

    [cannot] = plans.draft(run.case()).cannot

    assert cannot.text == "The loft is away."


def test_one_that_calls_an_account_by_a_number_costs_its_own_step(pigeons, begin_run):
    """It ended the page of the case, and the engine failed at the step."""
    pigeons(KEYED + "    def account(self, settings, key):\n        return 17\n")
    run = begin_run("run_1")
    run.does("pigeons.send", ("pigeon", "P-1", {}, {"sent": True}))
    run.ends("failed")

    [cannot] = plans.draft(run.case()).cannot

    assert cannot.text == "The connector pigeon fails with TypeError: see its author."


@pytest.mark.parametrize("says", ["return None", "raise CannotRead('The loft is away.')"])
def test_the_inventory_stands_beside_one_that_cannot_say_what_it_does(
    pigeons, ada, begin_run, says, monkeypatch
):
    away = f"import os\n        if os.environ.get('LOFT'): {says}\n        return self.operations"
    pigeons(f"{PIGEON}\n    def operations_for(self, settings):\n        {away}")
    begin_run("run_1").does("pigeons.send", ("pigeon", "P-1", {}, {"sent": True}))
    monkeypatch.setenv("LOFT", "away")

    page = logged_in(ada).get("/w/acme/tools/")

    assert page.status_code == 200
    assert "loft.recall: The " in page.text


def test_settings_over_which_it_fails_are_refused_in_words(pigeons, acme, ada):
    always = "\n    def check_settings(self, settings):\n        raise KeyError('x')\n"

    with pytest.raises(connections.BadSettings, match="pigeon fails with KeyError"):
        pigeons(PIGEON + always)


@pytest.mark.parametrize("name", ["drifted", "satisfied"])
def test_what_it_says_of_a_state_is_no_better(pigeons, name):
    connection = pigeons(
        f"{PIGEON}\n    def {name}(self, call, seen):\n        raise KeyError('x')\n"
    )
    recall = partial(getattr(calls, name), connection, "recall", {}, Target("pigeon", "P-1"))

    with pytest.raises((Refused, CannotRead), match="fails with KeyError: see its author"):
        recall(Observation(found=True, state={}), expected={})


@pytest.fixture
def hanging(monkeypatch):
    """The name of what a plug-in waits for, in a process where others wait half a second for it."""
    over = threading.Event()
    monkeypatch.setattr(sys, "pigeons_are_back", over, raising=False)
    monkeypatch.setattr(call_pool, "SECONDS_MAX", 0.5)
    yield over
    over.set()
    deadline = time.monotonic() + 40.0
    while call_pool._hanging:  # each comes back, and gives its hand back
        assert time.monotonic() < deadline
        time.sleep(0.05)


def hands_out():
    """How many hands hang in a preview, over each connection."""
    known = call_pool._hanging.items()
    return {asker: one.count for (asker, _, name), one in known if name == "a preview"}


HANGS = "import sys\n" + PIGEON.replace(
    PREVIEW, f"        call.args or sys.pigeons_are_back.wait(60)\n{PREVIEW}"
)

HANGS_NOW = HANGS.replace("call.args or", 'getattr(sys, "pigeons_hang", True) and')


def test_triage_goes_on_beside_a_plug_in_that_hangs(pigeons, begin_run, hanging):
    pigeons(HANGS)
    theirs, others = begin_run("run_1"), begin_run("run_2")
    for bird in range(4):
        theirs.does("pigeons.send", ("pigeon", f"P-{bird}", {}, {"sent": True}))
    theirs.ends("failed")
    others.does("tickets.update", ("ticket", "main/T-1", {"a": 1}, {"a": 2}))
    others.ends("failed")

    triage.look()

    assert not hanging.is_set()  # nobody waited for it
    assert set(Case.objects.values_list("run__run", flat=True)) == {"run_1", "run_2"}
    cannot = plans.draft(theirs.case()).cannot
    assert list(hands_out().values()) == [1]  # it is not asked for each bird
    assert len(cannot) == 4
    [words] = {one.text for one in cannot}
    assert words == (
        "The connector pigeon did not answer in 0.5 s when asked for a preview: see its author."
    )


def test_a_plug_in_that_came_back_is_asked_again(pigeons, hanging, monkeypatch):
    recall = partial(calls.preview, pigeons(HANGS), "recall", {}, Target("pigeon", "P-1"))
    with pytest.raises(Refused, match="did not answer"):
        recall()
    with pytest.raises(Refused, match="did not answer"):
        recall()

    hanging.set()
    monkeypatch.setattr(call_pool, "SECONDS_MAX", 40.0)
    deadline = time.monotonic() + 40.0
    while hands_out():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    assert recall().title == "Recall"


def test_one_that_hangs_again_and_again_is_not_asked_any_more(pigeons, hanging, monkeypatch):
    monkeypatch.setattr(call_pool, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(call_pool, "SECONDS_MAX", 0.05)
    recall = partial(calls.preview, pigeons(HANGS), "recall", {}, Target("pigeon", "P-1"))
    for _ in range(call_pool.HANGING_MAX + 3):
        with pytest.raises(Refused, match="did not answer"):
            recall()

    assert list(hands_out().values()) == [call_pool.HANGING_MAX]


def test_what_hangs_over_one_connection_is_asked_over_the_others(
    pigeons, hanging, acme, monkeypatch
):
    """Its answers rest on each one's settings: a neighbour of the same connector is not stopped."""
    mine = pigeons(HANGS_NOW)
    other = Connection.objects.create(workspace=acme, name="doves", connector="pigeon")
    elsewhere = Workspace.objects.create(slug="elsewhere", name="Elsewhere")
    theirs = Connection.objects.create(workspace=elsewhere, name=mine.name, connector="pigeon")
    target = Target("pigeon", "P-1")
    with pytest.raises(Refused, match="did not answer"):
        calls.preview(mine, "recall", {}, target)

    monkeypatch.setattr(call_pool, "SECONDS_MAX", 40.0)
    monkeypatch.setattr(sys, "pigeons_hang", False, raising=False)
    for healthy in (other, theirs):
        assert calls.preview(healthy, "recall", {}, target).title == "Recall"
    with pytest.raises(Refused, match="did not answer"):
        calls.preview(mine, "recall", {}, target)


def test_the_hands_that_hang_for_one_workspace_are_bounded(pigeons, hanging, acme, monkeypatch):
    monkeypatch.setattr(call_pool, "SECONDS_MAX", 0.05)
    monkeypatch.setattr(call_pool, "HANGING_ALTOGETHER_MAX", 2)
    pigeons(HANGS_NOW)
    many = [
        Connection.objects.create(workspace=acme, name=f"flock-{n}", connector="pigeon")
        for n in range(4)
    ]
    elsewhere = Workspace.objects.create(slug="elsewhere", name="Elsewhere")
    theirs = Connection.objects.create(workspace=elsewhere, name="flock", connector="pigeon")
    target = Target("pigeon", "P-1")

    for one in many:
        with pytest.raises(Refused, match="did not answer"):
            calls.preview(one, "recall", {}, target)

    assert sum(hands_out().values()) == 2
    monkeypatch.setattr(call_pool, "SECONDS_MAX", 40.0)
    monkeypatch.setattr(sys, "pigeons_hang", False, raising=False)
    assert calls.preview(theirs, "recall", {}, target).title == "Recall"


def test_settings_over_which_it_hangs_are_refused_in_words(pigeons, hanging):
    waits = "\n    def check_settings(self, settings):\n        sys.pigeons_are_back.wait(60)\n"

    with pytest.raises(connections.BadSettings, match="pigeon did not answer"):
        pigeons(HANGS + waits)


def test_what_is_no_answer_says_nothing_of_what_happened(pigeons):
    """An author forgot to return something: then nobody knows, and nothing is as it should be."""
    forgets = "".join(f"\n    def {name}(self, call): pass\n" for name in ANSWERING)
    connection = pigeons(PIGEON + forgets)
    target = Target("pigeon", "P-1")

    assert calls.apply(connection, "recall", {}, target, key="k").outcome == "unknown"
    assert calls.probe(connection, "recall", {}, target, key="k").found == "cannot_tell"
    for read in (calls.observe, calls.verify):
        with pytest.raises(CannotRead, match="no answer of its kind"):
            read(connection, "recall", {}, target)
