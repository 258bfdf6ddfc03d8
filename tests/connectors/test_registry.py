"""Somebody else's package brings a connector; a broken one harms nobody."""

import subprocess
import sys

import pytest
from django.core.checks import run_checks

from connectors import calls, registry
from connectors.contract import Refused, Target
from connectors.models import Connection
from recovery.models import Step

GOOD = """
from connectors.contract import *

class Pigeon(Connector):
    name = "pigeon"
    version = "0.1"
    title = "Carrier pigeons"
    operations = {
        "recall": Operation(
            name="recall", title="Recall a pigeon", args_schema=NothingSchema,
            reversibility="compensable", idempotency="natural_key",
        )
    }

    def preview(self, call):
        return Preview(kind="http", title=f"Recall {call.target.id}")

    def observe(self, call):
        return Observation(found=True, state={})

    def apply(self, call):
        return Answer(outcome="applied")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a package with one entry point on the path, as pip would."""

    def put(name, module, source):
        (tmp_path / f"{module}.py").write_text(source)
        dist = tmp_path / f"{module}-1.0.dist-info"
        dist.mkdir()
        (dist / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (dist / "entry_points.txt").write_text(f"[amends.connectors]\n{name} = {module}:Pigeon\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        registry.forget()

    yield put
    registry.forget()
    for module in ("pigeons", "broken", "halfway", "usurper"):
        sys.modules.pop(module, None)


def test_a_built_in_connector_that_cannot_be_loaded_is_no_plug_in_to_be_left_out(monkeypatch):
    monkeypatch.setattr(registry, "BUILT_IN", {"pigeon": "connectors.builtin.gone:Pigeon"})
    registry.forget()

    try:
        with pytest.raises(ModuleNotFoundError, match=r"connectors\.builtin\.gone"):
            registry.get("smtp")
    finally:
        registry.forget()


# A worker names its tasks before Django has loaded the models.
STARTS = """
from config.celery import app
app.loader.import_default_modules()
from connectors import registry
print(*registry.names())
"""


def test_a_worker_has_every_built_in_connector_although_it_asks_before_the_models_are_loaded():
    said = subprocess.run(
        [sys.executable, "-c", STARTS], capture_output=True, text=True, check=True, timeout=60
    )

    assert set(said.stdout.split()) >= set(registry.BUILT_IN)


def test_a_package_brings_its_connector(install):
    install("pigeon", "pigeons", GOOD)

    assert registry.get("pigeon").title == "Carrier pigeons"
    assert registry.registry().faults == ()


@pytest.mark.parametrize("sent", ['{"was": call.before}', '{"was": [(call.before,)]}'])
def test_a_plug_in_sends_no_mask_for_what_was_there(install, sent):
    """It was approved and written into the system, and then read back as restored."""
    title = 'title=f"Recall {call.target.id}"'
    install("pigeon", "pigeons", GOOD.replace(title, f"{title}, will_send={sent}"))
    pigeons = Connection(connector="pigeon", name="pigeons", settings={})

    def drawn(ring):
        of = Target("pigeon", "p-1")
        return calls.preview(pigeons, "recall", {}, of, before={"ring": ring})

    with pytest.raises(Refused, match="holds a masked value, which nobody here knows"):
        drawn(f"⟦masked:secret:v1:{'0' * 64}⟧")
    assert "A-1" in str(drawn("A-1").will_send)


LONG = """
    def version_with(self, settings):
        return "0.1+" + "x" * 200 + settings.sort
"""


def test_a_version_that_is_too_long_for_its_column_is_told_by_a_digest(install):
    """A step could not be kept, and so nothing be undone over it."""
    sort = "class Sort(msgspec.Struct):\n    sort: str\n\n"
    source = GOOD.replace("class Pigeon", f"{sort}class Pigeon")
    schema = '    version = "0.1"\n    settings_schema = Sort\n'
    source = source.replace('    version = "0.1"\n', schema)
    install("pigeon", "pigeons", f"import msgspec\n{source}{LONG}")
    column = Step._meta.get_field("connector_version")

    versions = [
        calls.connector_version(Connection(connector="pigeon", name="loft", settings={"sort": one}))
        for one in ("a", "b", "\0", "a")
    ]

    assert {len(one) <= column.max_length and one.isprintable() for one in versions} == {True}
    assert len(set(versions)) == 3, "another version is another one still"
    assert versions[0].startswith("pigeon@0.1+x")


@pytest.mark.parametrize(
    ("name", "module", "source", "why"),
    [
        ("pigeon", "broken", "raise RuntimeError('no pigeons today')", "no pigeons today"),
        ("pigeon", "halfway", GOOD.replace("def apply", "def _apply"), "does not implement apply"),
        ("dove", "pigeons", GOOD, "calls itself 'pigeon'"),
        ("sql", "usurper", GOOD.replace('"pigeon"', '"sql"'), "has this name already"),
        ("pigeon", "pigeons", GOOD.replace('="natural_key"', '="native_key"'), "needs the window"),
    ],
)
def test_a_broken_one_is_left_out_and_told_of_at_start(install, name, module, source, why):
    install(name, module, source)

    told = [one for one in run_checks(tags=["connectors"]) if why in one.msg]

    assert len(told) == 1
    assert set(registry.BUILT_IN) <= set(registry.names())
    assert registry.get("sql").title == "PostgreSQL"


def test_what_is_not_installed_is_named():
    with pytest.raises(registry.UnknownConnector, match="pigeon"):
        registry.get("pigeon")
