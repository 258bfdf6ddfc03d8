"""Both clients and the desk mean the same by a value: written, masked, named, judged and proven."""

import json
import random
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from amends.client import default_spool
from amends.policy import is_gated
from amends.protocol.canonical import canonical, idempotency_key
from amends.protocol.masking import MaskingKey, masked
from tests.ports import answering
from tests.sdk import trees
from tests.sdk.test_proofs import EVENT, SALT, download, log  # noqa: F401 - a fixture

HERE = Path(__file__).parent
DATA = json.loads((HERE.parents[0] / "data" / "masking.json").read_text("utf-8"))
JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-(10**40), 10**40)
    | some.floats(allow_nan=False, allow_infinity=False) | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=JSON)
def test_a_value_is_written_alike(client, value):
    assert client("canonical", value=value) == {"answer": canonical(value).decode()}


@pytest.mark.parametrize(
    "value",
    [2**53, 2**53 + 1, 10**21, 10**21 + 1, -(2**60), 10**400, 1e21, 5e-324, 1.7976931348623157e308,
     -0.0, 1e-7, {"\U0001f600": 1, "\ufb33": 2, "\u20ac": 3, "__proto__": {"1": 2, "0": 3}}],
)  # fmt: skip
def test_strange_numbers_and_names_are_written_alike(client, value):
    assert client("canonical", value=value) == {"answer": canonical(value).decode()}


@pytest.mark.parametrize("vector", DATA["vectors"] + DATA["marked"], ids=lambda one: one["name"])
def test_the_shared_vectors_of_masking(client, vector):
    asked = {"value": vector["in"], "paths": vector.get("paths", []),
             "last4": vector.get("last4", False)}  # fmt: skip
    if vector in DATA["marked"]:
        asked["key"] = DATA["key"]
    wanted = canonical(vector["out"]).decode()
    assert client("masked", **asked) == {"answer": {"found": wanted, "again": wanted}}


NAMED = some.sampled_from([
    "iban", "I-B-A-N", "\u0130BAN", "Card Number", "to\u212aen", "pa\u017f\u017fword", "cvv",
    "cookie", "tokenCount", "__proto__", "constructor", "to", "before", "effects", "ssn", "e\u0301",
])  # fmt: skip
CARDS = some.sampled_from(["4242424242424242", "378282246310005", "30569309025904"])
ACCOUNT = r"[A-Za-z]{2}[0-9]{2}([ \u00a0\x1c\u200b]?[0-9A-Zsz\u00df\u017f]{4}){3,8}"
HIDDEN = some.one_of(
    CARDS, CARDS.map(int), CARDS.map(float), CARDS.map(lambda one: f"{one[:4]} {one[4:]}"),
    CARDS.map(lambda one: f"2026-11-23 {one} 12/27"), some.integers(10**11, 10**19),
    CARDS.map(lambda one: one.translate({48 + n: 0x660 + n for n in range(10)})),
    some.from_regex(ACCOUNT, fullmatch=True),
    some.sampled_from([
        "\u27e6masked:card\u27e7", f"\u27e6masked:iban:v1:{'0' * 32}:1234\u27e7", "\u27e6masked:",
    ]),
)  # fmt: skip
SECRETS = some.recursive(
    JSON | HIDDEN,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(NAMED, inner, max_size=4),
    max_leaves=12,
)
PATHS = some.lists(some.sampled_from(["args.ssn", "*.iban", "before.*", "__proto__", "*", "", "."]))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=SECRETS, paths=PATHS, last4=some.booleans())
def test_a_secret_is_marked_alike(client, value, paths, last4):
    key = MaskingKey(bytes.fromhex(DATA["key"]), shows_last4=last4)
    wanted = canonical(masked(value, paths, key, nuls=False)).decode()
    found = client("masked", value=value, paths=paths, key=DATA["key"], last4=last4)
    assert found == {"answer": {"found": wanted, "again": wanted}}


def test_a_call_has_the_same_name(client):
    identity: dict[str, Any] = {
        "workspace": "northwind", "run": "run_ü", "tool": "update_flight", "op": "second",
        "targets": [{"type": "reservation", "id": "XEHM4B"}],
    }  # fmt: skip
    assert client("key", **identity) == {"answer": idempotency_key(**identity)}


def test_what_needs_the_desk_is_judged_alike(client):
    chance = random.Random(7)  # noqa: S311 - a seed to find it again by
    globs = ["*", "charge_*", "charge_card", "note.?", "note.w"]
    words = {"risk": [None, "LOW", "high", "odd"], "approval": [None, "AUTO", "manual", "DENY"],
             "when": [None, None, "amount > 3"], "class": [None, "read_only", "odd",
                                                          "external_irreversible"]}  # fmt: skip

    def some_of(*names):
        chosen = {name: chance.choice(words[name]) for name in names}
        return {name: one for name, one in chosen.items() if one is not None}

    for _ in range(400):
        picked = chance.sample(globs, 3)
        safety = {
            "policies": {glob: chance.choice([some_of("risk", "approval", "when"), [
                some_of("risk", "approval", "when"), some_of("approval", "when")]])
                for glob in picked},
            "tools": {glob: some_of("class", "risk") for glob in chance.sample(globs, 2)},
            "always": {glob: {"when": "rejected_before", "approval": "MANUAL"}
                for glob in chance.sample(globs, chance.choice([0, 0, 1]))},
            "unknownTools": chance.choice(["ASK", "ALLOW", None]),
        }  # fmt: skip
        document = chance.choice([{"agentSafety": safety}] * 9 + [None, {}])
        call = {"tool": chance.choice(["charge_card", "note.w", "other"]),
                "risk": chance.choice([None, "low", "critical"])}  # fmt: skip
        kind = chance.choice(["read_only", "internal_update", "external_reversible", "odd"])
        wanted = is_gated(document, effect_class=kind, **call)
        found = client("gated", document=document, effectClass=kind, **call)
        assert found == {"answer": wanted}, (document, call, kind)


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("new Date(0)", '"1970-01-01T00:00:00.000Z"'),
        ("[NaN, Infinity, undefined, 5n]", '["NaN","Infinity",null,5]'),
        ("({a: undefined, b: new Map([['c', new Set([1])]])})", '{"b":{"c":[1]}}'),
        ("new Uint8Array([1, 2])", '"AQI="'),
        (r"'a\u0000b\ud800'", '"a\ufffdb\ufffd"'),
        ("({toJSON: () => ({id: 9007199254740993n})})", '{"id":9007199254740993}'),
        ("new URLSearchParams('to=eve&tag=a&tag=b')", '{"tag":["a","b"],"to":"eve"}'),
        ("[new Number(5), new Boolean(true), Object.create(null)]", "[5,true,{}]"),
    ],
)
def test_what_json_does_not_know_becomes_its_text(client, script, wanted):
    assert client("plain", script=script) == {"answer": wanted}


def test_a_number_that_may_have_lost_digits_is_refused_in_words(client):
    found = client("plain", script="({amount: [9007199254740993]})")
    assert found["isUnfit"]
    assert "it.amount.0 is a number of JavaScript above 2^53" in found["words"]
    assert "BigInt" in found["words"]
    assert client("plain", script="(function deep() { const a = {}; a.a = a; return a })()")[
        "words"
    ].endswith("nested deeper than 32 levels")


@pytest.mark.parametrize(
    "script",
    ["new (class { #iban = 'DE89' })()", "Promise.resolve(1)", "new Blob(['x'])", "/eve/",
     "new Map([[{a: 1}, 1], [{a: 2}, 2]])"],
)  # fmt: skip
def test_what_tells_nothing_of_itself_is_refused_in_words(client, script):
    """Two of them were one `{}`: the one was approved, and the other could run."""
    found = client("plain", script=f"({{to: {script}}})")
    assert found["isUnfit"], found
    assert found["words"].startswith("it.to ")


@pytest.mark.parametrize(
    "script",
    ["new (class { currency = 'EUR'; #sum = 5; get sum() { return this.#sum } })()",
     "new (class extends (class { #sum; get sum() { return this.#sum } }) { to = 'eve' })()",
     "new Map([[{a: 1}, 1]])", "() => 5", "new Map([[() => 5, 1]])", "Symbol('a')",
     "(() => { const one = {}; one.a = one.b = one; return one })()",
     r"'a\u0000b'", r"'a\ud800'", r"new Set(['a\u0000'])", r"({'a\ud800': 1})"],
)  # fmt: skip
def test_an_argument_that_is_told_in_part_is_refused_in_words(client, script):
    """The second payment was answered with the first one's result, whatever its sum was."""
    found = client("shown", script=f"({{to: [{script}]}})")
    assert found.get("isUnfit"), found
    assert found["words"].startswith("pay.args.to.0")


@pytest.mark.parametrize(
    "script",
    ["new (class { currency = 'EUR'; #round() { } sum() { return this.#round() } })()",
     "new (class { #sum = 5; toJSON() { return {sum: this.#sum} } })()",
     "new URLSearchParams('to=eve')", "new Headers({to: 'eve'})", "new Date(0)", "Buffer.from('a')",
     "new URL('https://a.example/#a')", "[null, undefined, 5n, new Map([['a', 1]])]"],
)  # fmt: skip
def test_an_argument_that_is_told_whole_is_asked_for(client, script):
    assert client("shown", script=f"({{to: {script}}})") == {"answer": "shown"}


@pytest.mark.parametrize(
    ("url", "key", "words"),
    [
        ("http://ada:secret@desk.example/", "amends_x", "holds no name and password"),
        ("http://desk.example/", "amends_secret\n", "copy it anew"),
        ("http://desk.example/?key=secret", "amends_x", "nothing behind ? or #"),
    ],
)
def test_what_is_no_address_or_no_key_is_refused_without_telling_it(client, url, key, words):
    found = client("address", url=url, key=key)
    assert words in found["words"]
    assert "secret" not in found["words"]


@pytest.mark.parametrize("pasted", ["", "/", "/api/v1", "//api/v1/\n"])
def test_an_address_as_people_paste_it_leads_to_the_desk(client, pasted):
    found = client("address", url=f"https://desk.example/here{pasted}")
    assert found["answer"] == "https://desk.example/here/api/v1/"


def test_a_correction_is_proven_offline(client, log):  # noqa: F811
    text, keys = download(log), [str(log.key)]
    found = client("proven", text=text, keys=keys)["answer"]
    assert (found["index"], found["size"], found["hasEvent"]) == ("2", "5", True)
    assert found["leaf"]["type"] == EVENT["type"]
    assert client("proven", text=log.proof(2), keys=keys)["answer"]["hasEvent"] is False


def test_what_is_not_as_it_was_recorded_is_not_proven(client, log):  # noqa: F811
    keys = [str(log.key)]
    other = str(trees.Log(log.origin, log.leaves).key)
    changed = {**EVENT, "data": {"changed": "nothing"}}
    cut = log.proof(2).replace(log.proof(2).split("\n")[4] + "\n", "", 1)
    twice = download(log).replace('{"event"', '{"salt": "00", "event"', 1)
    for text, said in (
        (download(log, event=changed), "the event is not the one"),
        (download(log, salt=(SALT + b"{").hex()), "32 bytes"),
        (download(log, facts={"a": 1}, facts_salt=SALT.hex()), "no digest of the facts"),
        (cut, "not in the log where the proof says"),
        (twice, "stands twice"),
        (log.proof(0), "not one of Amends"),
        ("{}", "no event, salt and proof"),
        ("nonsense", "does not start with"),
    ):
        found = client("proven", text=text, keys=keys)
        assert (found.get("error"), said in found.get("words", "")) == ("NotProven", True), found
    found = client("proven", text=download(log), keys=[other])
    assert "no known key of this log has signed" in found["words"]


def test_the_arguments_of_a_call_have_one_mark_in_both(client):
    value = {"card": "4242 4242 4242 4242", "amount": 5, "to": ["DE1", None]}
    wanted = MaskingKey(bytes.fromhex(DATA["key"])).mark("arguments", value)

    assert client("mark", key=DATA["key"], value=value) == {"answer": wanted}


@pytest.mark.parametrize("behind", ["", "/", "/api/v1/"])
def test_a_spool_lies_where_the_other_client_has_it(client, behind):
    url = f"https://desk.example{behind}"

    assert client("spool", url=url) == {"answer": str(default_spool(url, "amends_x"))}


def test_what_is_large_has_the_time_that_a_slow_line_takes_to_send_it(client):
    """A snapshot of 8 MiB never went over one, and no call to which it belongs was made. What is
    sent is bytes, of which a character has up to four.
    """

    class TakesLong(BaseHTTPRequestHandler):
        def do_PUT(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(0.9)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    with answering(TakesLong) as url:
        assert client("put", url=url, body="語" * 5_000, answerSeconds=0.2) == {"answer": {}}
        assert "no end within 1 s" in client("put", url=url, body="x", answerSeconds=0.2)["words"]
