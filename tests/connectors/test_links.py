"""The address at which a person finds a record: an administrator's template, and what agents say
stands in it encoded.
"""

import pytest

from connectors import connections, links
from connectors.connections import BadSettings
from connectors.models import Connection
from ledger import desk_events
from ledger.models import Event

PAY = "https://pay.example/charges/{id}"
BAD = {
    "javascript:alert({id})": "no web address",
    "ftp://pay.example/{id}": "no web address",
    "http://pay.example/{id}": "begins with https",
    "https://{id}.example/": "Its host has to stand",
    "https://pay.example@{id}/": "Its host has to stand",
    "https://{name}@pay.example/{id}": "Its host has to stand",
    "https://pay.example/charges": "where the record stands",
    "https://pay.example/{type}": "where the record stands",
    "https://pay.example/{charge}": "There is no {charge}",
    "https://pay.example/{id} {key}": "no web address",
    "https://pay.example/{id}" + "a" * 500: "500 characters",
    "/charges/{id}": "no web address",
}


@pytest.mark.parametrize("pattern", BAD)
def test_what_is_no_template_of_an_address_is_refused_in_words(pattern):
    assert BAD[pattern] in links.mistake(pattern)


@pytest.mark.parametrize(
    ("pattern", "target", "url"),
    [
        (PAY, "ch_1", "https://pay.example/charges/ch_1"),
        (PAY, "main/T-182?x=1#y", "https://pay.example/charges/main%2FT-182%3Fx%3D1%23y"),
        (PAY, "ending 0077", "https://pay.example/charges/ending%200077"),
        ("https://x.example/{type}/{name}?k={key}", "main/T-182", "https://x.example/t/T-182?k=k%2B1"),
        ("http://127.0.0.1:8320/{id}", "<b>", "http://127.0.0.1:8320/%3Cb%3E"),
    ],
)  # fmt: skip
def test_what_an_agent_named_changes_neither_host_nor_path(pattern, target, url):
    assert links.mistake(pattern) == ""
    found = links.link(pattern, "pay", target_type="t", target_id=target, key="k+1")
    assert found.url == url
    assert found.words.startswith("Look in pay (")


@pytest.mark.parametrize("target", ["", "..", ".", "a" * 301])
def test_what_would_lead_elsewhere_leads_nowhere(target):
    assert links.link(PAY, "pay", target_type="t", target_id=target) is None
    assert links.link("", "pay", target_type="t", target_id="ch_1") is None


@pytest.mark.django_db
def test_a_link_is_kept_told_with_what_was_before_and_voids_nothing(acme, ada):
    release = {"release_licence": {"title": "Release {target}", "leaves": {"state": "released"}}}
    settings = {"url": "https://licences.example/amends", "operations": release}
    one = connections.create(acme, "licences", "webhook", settings, by=ada)
    digest = one.settings_digest

    connections.update(one, settings, by=ada, revision=1, link=PAY)
    with pytest.raises(BadSettings, match="Link for people: It begins with https"):
        connections.update(one, settings, by=ada, revision=2, link="http://pay.example/{id}")
    connections.update(one, settings, by=ada, revision=2)

    kept = Connection.objects.get()
    assert (kept.link, kept.settings_digest) == (PAY, digest)
    desk_events.take_in()
    told = Event.objects.filter(type="connection.updated").order_by("place")
    assert [one.data.get("was") for one in told] == [{"link": ""}, None]
