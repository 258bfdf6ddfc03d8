"""What watches a desk from outside asks for figures that there are; every alarm has its page."""

import asyncio
import json
import re

import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from approvals.gate import waiting
from config import edge, health
from config.local.places import ROOT
from edge.asgi import answer, route
from recovery.prometheus import DeskMetrics
from workspaces import periodic

RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "amends.json"
LATER = {"amends_compensation_success_ratio"}
"""A share has no sample before something ended."""
ROWS = {"amends_steps_last_hour", "amends_connection_breaker"}
"""One sample for each row: of an empty desk there is none, and so no label."""


def rules():
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions():
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [one["expr"] for one in rules()] + [
        target["expr"] for panel in panels for target in panel["targets"]
    ]


@pytest.fixture
def told(transactional_db):
    """What `/metrics` tells: by family, the labels that it has."""
    assert edge.hot_seconds
    assert waiting.waiting_agents, "what is counted in a process is told where it is loaded"
    periodic.beat("ledger.seal", every_seconds=0.2)
    for what in periodic.DONE:
        periodic.done(what)
    found = {
        family.name: set(getattr(collector, "_labelnames", ()))
        for collector in list(REGISTRY._collector_to_names)
        if isinstance(collector, MetricWrapperBase)
        for family in collector.describe()
    }
    for family in text_string_to_metric_families(health.figures().decode()):
        for sample in family.samples:
            found.setdefault(family.name, set()).update(sample.labels)
    for family in DeskMetrics().collect():
        found.setdefault(family.name, set())
    return found


def test_rules_and_dashboard_ask_for_figures_and_labels_that_the_desk_tells(told):
    for expression in expressions():
        names = re.findall(r"\bamends_[a-z_]+", expression)
        families = [re.sub(r"_(bucket|total)$", "", name) for name in names]
        assert families, expression
        assert set(families) - told.keys() <= LATER, expression
        asked = {
            label
            for group in re.findall(r"by \(([a-z, ]+)\)", expression)
            for label in group.split(", ")
        } | set(re.findall(r"[{,]([a-z]+)[=!]", expression))
        has = set().union(*(told.get(family, set()) for family in families)) | {"le"}
        rests_on_rows = any(family in ROWS for family in families)
        assert asked <= has or rests_on_rows, f"{expression}: {asked - has}"


def test_every_alarm_has_its_page_and_no_page_is_left_over():
    pages = re.findall(
        r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text("utf-8"), re.MULTILINE
    )
    alarms = [rule["alert"] for rule in rules()]

    assert pages == alarms
    assert len(set(alarms)) == len(alarms)
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_a_request_is_counted_when_its_answer_is_on_the_way(monkeypatch):
    told, scope = [], {"method": "GET", "path": "/"}
    monkeypatch.setattr(edge, "count", lambda _route, status, _seconds: told.append(status))

    async def served(_scope, _receive, send):
        await answer(send, 418, {})

    async def send(message):
        told.append(message["type"])

    async def visit():
        await edge.watched(route("GET", "/", served), scope, None, send)
        before = list(told)
        await asyncio.sleep(0)
        return before

    assert asyncio.run(visit()) == ["http.response.start", "http.response.body"]
    assert told[2:] == [418]
