"""The API's page tells of every endpoint, also of those that are served in front of Django."""

import re

import pytest

from config.edge import Edge
from ledger.schemas import AGENT_TYPES

pytestmark = pytest.mark.django_db


@pytest.fixture
def document(client):
    return client.get("/api/v1/openapi.json").json()


def test_every_hot_endpoint_is_described(document):
    served = {
        (route.method.lower(), route.path.pattern)
        for route in Edge(None)._routes
        if route.path.pattern.startswith(("/api", "/aap", "/aais"))
    }
    described = {
        (method, path) for path, methods in document["paths"].items() for method in methods
    }
    for method, pattern in served:
        assert any(
            known == method and re.fullmatch(pattern, sample(path)) for known, path in described
        ), f"{method} {pattern} is not on the page"


def test_what_the_page_says_of_a_request_is_what_reads_it(document):
    begin = document["paths"]["/api/v1/actions/begin"]["post"]
    body = begin["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schemas = document["components"]["schemas"]
    known = schemas[body.rpartition("/")[2]]

    assert set(known["required"]) == {"run", "action", "attempt", "data"}
    assert known["properties"]["data"] == {"$ref": "#/components/schemas/ActionPlanned"}
    assert schemas["ActionPlanned"]["properties"]["tool"]["maxLength"] == 200
    assert schemas["Envelope"]["properties"]["type"]["enum"] == sorted(AGENT_TYPES)


def sample(path: str) -> str:
    if path.startswith("/aap"):
        return re.sub(r"\{(request|receiver)\}", "b29a43a7-1949-4b9f-9d61-b7ae66f85d31", path)
    known = {"{sha256}": "a" * 64, "{approval}": "7", "{request}": "7", "{run}": "run_1"}
    for name, value in known.items():
        path = path.replace(name, value)
    return path


def test_every_parameter_has_a_name_that_people_read_and_says_what_it_is(document):
    told = {
        (path, one["name"]): one.get("description", "")
        for path, methods in document["paths"].items()
        for operation in methods.values()
        for one in operation.get("parameters", ())
    }

    assert "The number of the case" in told["/api/v1/cases/{case}/preview", "case"]
    assert [path for path in document["paths"] if re.search(r"\{(pk|id)\}", path)] == []
    assert [where for where, words in told.items() if not words] == []
    for path, name in told:
        assert name not in {"pk", "id"}, path


def test_the_address_that_people_know_leads_there(client):
    assert client.get("/api/docs").url == "/api/v1/docs"


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_path_that_is_none_is_a_problem_that_a_program_can_read(client, method):
    answer = getattr(client, method)("/api/v1/event")

    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert "event" in answer.json()["detail"]
