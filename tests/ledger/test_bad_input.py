"""Bad input at the hot door: each kind has its own clear problem, and its neighbour is kept."""

import gzip
import json
import zlib

import httpx
import pytest

from ledger import wire
from ledger.models import Effect, Event
from tests.ledger.conftest import bearer, event, post

pytestmark = pytest.mark.django_db(transaction=True)

RUN = '{"id": "a", "type": "run.started", "run": "r", '
ACTION = '{"id": "a", "type": "action.%s", "run": "r", "action": "x", "data": '
DONE = ACTION % "succeeded" + '{"target": {"type": "t", "id": "1"}, "undo_until": "%s"}}'
BAD: dict[str, tuple[str, str | bytes]] = {
    "not an object": ("schema", "7"),
    "no type": ("schema", '{"id": "a", "run": "r"}'),
    "a name twice": ("duplicate-name", RUN + '"data": {"x": 1, "x": 2}}'),
    "an empty name twice": ("duplicate-name", RUN + '"data": {"": 1, "": 2}}'),
    "a name twice, spaced": ("duplicate-name", RUN + '"data": {"x" : 1, "x":2}}'),
    "a name twice beside its like in a text": (
        "duplicate-name",
        RUN + '"data": {"x" : "\\":", "x":2}}',
    ),
    "a name twice under a secret": ("duplicate-name", RUN + '"data": {"token": {"x": 1, "x": 2}}}'),
    "an id twice": ("duplicate-name", RUN + '"id": "b", "data": {}}'),
    "NaN": ("malformed", RUN + '"data": {"x": NaN}}'),
    "minus infinity": ("malformed", RUN + '"data": {"x": -Infinity}}'),
    "a float beyond all": ("schema", RUN + '"data": {"x": 1e400}}'),
    "an integer without end": ("unfit", RUN + '"data": {"x": 1%s}}' % ("0" * 1000)),
    "a decimal that no double holds": ("unfit", RUN + '"data": {"x": 0.1234567890123456789}}'),
    "one in a list, beside a secret's name": (
        "unfit", RUN + '"data": {"token": [{"x": [1, 0.1234567890123456789]}]}}',
    ),
    "one in the trace alone": (
        "unfit", RUN + '"trace": {"x": 0.1234567890123456789}, "data": {}}',
    ),
    "a whole number that no double holds": ("unfit", RUN + '"data": {"x": 9007199254740993.0}}'),
    "a number too small": ("unfit", RUN + '"data": {"x": 1e-400}}'),
    "a lone surrogate, escaped": ("malformed", RUN + '"data": {"x": "\\ud800"}}'),
    "a lone surrogate in bytes": (
        "malformed",
        RUN.encode() + b'"data": {"x": "\xed\xa0\x80"}}',
    ),
    "bytes that are not UTF-8": ("malformed", RUN.encode() + b'"data": {"x": "\xff"}}'),
    "NUL": ("unfit", RUN + '"data": {"x": "\\u0000"}}'),
    "NUL in a name": ("unfit", RUN + '"data": {"\\u0000": 1}}'),
    "an attempt with what parts texts": ("unfit", ACTION % "started" + '{"attempt": "\\ufdd0"}}'),
    "NUL in the id": ("schema", '{"id": "a\\u0000", "type": "run.started", "run": "r"}'),
    "too deep": ("unfit", RUN + '"data": ' + '{"a":' * 40 + "1" + "}" * 41),
    "a depth bomb of lists": ("schema", RUN + '"data": ' + "[" * 30000 + "]" * 30000 + "}"),
    "a depth bomb of objects": ("unfit", RUN + '"data": ' + '{"a":' * 9000 + "1" + "}" * 9001),
    "a depth bomb in it": ("unfit", RUN + '"data": {"x": ' + "[" * 30000 + "]" * 30000 + "}}"),
    "a little too large": ("too-large", RUN + '"data": {"x": "' + "y" * 65_536 + '"}}'),
    "a text of a megabyte": ("too-large", RUN + '"data": {"x": "' + "y" * 1_000_000 + '"}}'),
    "a foreign member": ("schema", RUN + '"data": {}, "workspace": "other"}'),
    "an unknown type": ("unknown-type", '{"id": "a", "type": "run.flew", "run": "r"}'),
    "the desk's word": ("desk-only", ACTION % "approved" + "{}}"),
    "a run named like a plan's": (
        "reserved",
        '{"id": "a", "type": "run.started", "run": "desk-plan-7"}',
    ),
    "a fence of its own": ("reserved", ACTION % "started" + '{"fence": 3}}'),
    "no time": ("schema", RUN + '"time": "yesterday"}'),
    "a time without offset": ("schema", RUN + '"time": "2026-01-01T00:00:00"}'),
    "a time in another spelling": ("schema", RUN + '"time": "20260101T000000Z"}'),
    "a time before time": ("schema", RUN + '"time": "0001-01-01T00:00:00+14:00"}'),
    "a time after time": ("schema", RUN + '"time": "9999-12-31T23:59:59-14:00"}'),
    "an undo window before time": ("schema", DONE % "0001-01-01T00:00:00+14:00"),
    "an undo window after time": ("schema", DONE % "9999-12-31T23:59:59-14:00"),
    "n too large": ("schema", RUN + '"n": 99999999999}'),
    "an id with spaces": ("schema", '{"id": "a b", "type": "run.started", "run": "r"}'),
    "an id too long": ("schema", '{"id": "%s", "type": "run.started", "run": "r"}' % ("a" * 65)),
    "an id that no address holds": ("schema", '{"id": "a/..", "type": "run.started", "run": "r"}'),
    "a run that no address holds": ("schema", '{"id": "a", "type": "run.started", "run": ".."}'),
    "an action without one": ("schema", '{"id": "a", "type": "action.started", "run": "r"}'),
    "a wrong type": ("schema", ACTION % "planned" + '{"tool": 7}}'),
    "cut off": ("malformed", RUN + '"data": {"x": '),
}  # fmt: skip


def each_beside_a_good_one() -> bytes:
    good = [json.dumps(event("run.started")).encode() for _ in BAD]
    bad = [raw if isinstance(raw, bytes) else raw.encode() for _, raw in BAD.values()]
    return b"\n".join(line for pair in zip(bad, good, strict=True) for line in pair)


def assert_each_is_refused_alone(answer: httpx.Response) -> None:
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    for (name, (kind, _)), result, neighbour in zip(
        BAD.items(), results[::2], results[1::2], strict=True
    ):
        assert result["status"] == "rejected", name
        assert result["problem"]["type"] == f"urn:amends:problem:{kind}", name
        assert 400 <= result["problem"]["status"] < 500, name
        assert result["problem"]["title"], name
        assert neighbour["status"] == "accepted", name
    assert Event.objects.filter(actor_kind="agent").count() == len(BAD)


def test_each_bad_event_has_its_problem_and_its_neighbour_is_kept(call, token):
    headers = bearer(token, "application/x-ndjson")
    (answer,) = call(post(each_beside_a_good_one(), headers=headers))

    assert_each_is_refused_alone(answer)


def test_a_refusal_says_what_would_do(call, token):
    told = {
        '{"id": "a", "type": "run.start", "run": "r"}': "run.start is none of run.started, ",
        '{"id": "b", "type": "action.started", "run": "r"}': "“action”, an id of yours",
        ACTION % "planned" + '{"tool": "t", "class": "readonly"}}': "it is one of read_only, ",
        ACTION % "planned" + '{"tool": "t", "saga": "last"}}': "it is one of pivot, retriable",
        ACTION % "failed" + '{"outcome": "none"}}': "it is one of no_effect, unknown",
        RUN + '"args": {}}': "`args`: what an event tells stands in `data`",
    }
    headers = bearer(token, "application/x-ndjson")
    (answer,) = call(post("\n".join(told).encode(), headers=headers))

    for result, words in zip(answer.json()["results"], told.values(), strict=True):
        assert words in result["problem"]["detail"]


def test_a_web_process_and_those_that_it_gives_large_batches_to_stay_up(processes, token):
    """The same through a socket, with the bodies that are refused as a whole before it."""
    web = processes.kept_web()
    headers = bearer(token, "application/x-ndjson")
    with httpx.Client(base_url=web.url, timeout=60) as client:
        for name, (status, kind, body, more) in bad_bodies(token).items():
            refused = client.post("/api/v1/events", content=body, headers=more)
            assert refused.status_code == status, name
            assert refused.json()["type"] == f"urn:amends:problem:{kind}", name
        for _ in range(3):  # a thread finds out that its connection was cut with the story before
            lines = each_beside_a_good_one()
            answer = client.post("/api/v1/events", content=lines, headers=headers)
            if answer.status_code != 503:
                break

    assert_each_is_refused_alone(answer)
    assert "Traceback" not in web.said()


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body)


GZIP_HEADER = b"\x1f\x8b\x08" + bytes(5) + b"\x02\xff"  # RFC 1952


def bomb() -> bytes:
    """Two gigabytes of blanks in two megabytes: one packed megabyte, again and again.

    The sum at its end is wrong, for whoever came as far would have been hurt already.
    """
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    megabyte = packer.compress(b" " * 1024 * 1024) + packer.flush(zlib.Z_FULL_FLUSH)
    return GZIP_HEADER + megabyte * 2048 + packer.flush() + bytes(8)


def bad_bodies(token: str) -> dict[str, tuple[int, str, bytes, dict[str, str]]]:
    """Status, kind of problem, body, headers."""
    fine, packed = bearer(token), bearer(token) | {"content-encoding": "gzip"}
    return {
        "no body": (400, "malformed", b"", fine),
        "not JSON": (400, "malformed", b"{not json", fine),
        "one object": (400, "malformed", b'{"id": "1"}', fine),
        "a depth bomb": (400, "malformed", b"[" * 100_000, fine),
        "too many events": (413, "too-many", json.dumps([0] * 1001).encode(), fine),
        "nine megabytes": (413, "too-large", b" " * 9 * 1024 * 1024, fine),
        "a gzip bomb": (413, "too-large", bomb(), packed),
        "cut gzip": (400, "encoding", gzipped(b"[]")[:-4], packed),
        "two gzip members": (400, "encoding", gzipped(b"[]") + gzipped(b"[]"), packed),
        "not gzip": (400, "encoding", b"[]", packed),
        "an unknown encoding": (415, "encoding", b"[]", fine | {"content-encoding": "br"}),
        "lines that are not said": (400, "malformed", b"{}\n{}", fine),
    }  # fmt: skip


def test_a_bad_body_is_refused_as_a_whole_with_a_problem(call, token):
    cases = bad_bodies(token)
    answers = call(*(post(body, headers=headers) for _, _, body, headers in cases.values()))

    for (name, (status, kind, _, _)), answer in zip(cases.items(), answers, strict=True):
        assert answer.status_code == status, name
        assert answer.headers["content-type"] == "application/problem+json", name
        assert answer.json()["type"] == f"urn:amends:problem:{kind}", name
    assert not Event.objects.filter(actor_kind="agent").exists()


def test_an_event_of_a_clock_far_off_is_kept_with_a_warning(call):
    said = {
        "2126-11-21T10:02:15.120Z": "ahead",
        "1999-01-01T00:00:00Z": "behind",
        "2999-12-31T23:59:59.999999Z": "ahead",
        None: "",
    }
    events = [
        event("run.started", run=f"run_{n}", **({"time": time} if time else {}))
        for n, time in enumerate(said)
    ]
    (answer,) = call(post(events))

    for result, word in zip(answer.json()["results"], said.values(), strict=True):
        assert result["status"] == "accepted"
        warning = result.get("warning")
        assert (word in warning["title"]) if word else warning is None
    assert Event.objects.filter(time__year=2126).exists()


def test_a_window_in_any_spelling_of_rfc_3339_is_read(call):
    done = event("action.succeeded", action="x", data={
        "target": {"type": "t", "id": "1"}, "undo_until": "2026-12-01t10:00:00.5z"})  # fmt: skip
    (answer,) = call(post([done]))

    assert answer.json()["results"][0]["status"] == "accepted"
    assert Effect.objects.get().undo_until.isoformat() == "2026-12-01T10:00:00.500000+00:00"


def test_what_nobody_reads_is_kept_and_said_beside_what_was_probably_meant(call):
    who = {"id": "mia", "nam": "Mia Li"}
    many = {f"{n}{'x' * 60}": n for n in range(9)}
    done = {"target": {"type": "t", "id": "1"}, "affter": {"a": 1}}
    events = [
        event("run.started", run="run_1", data={"reqest": "Book", "on_behalf_of": who}),
        event("action.succeeded", run="run_2", action="x", data={"effects": [done]}),
        event("run.completed", run="run_3", data=many),
        event("run.started", run="run_4", data={"request": "Book", "labels": {"reqest": 1}}),
    ]
    results = call(post([*events, {**events[3], "id": "e-9", "rnu": "run_5"}]))[0].json()["results"]

    told = [one.get("warning", {}).get("detail", "") for one in results]
    assert [one["status"] for one in results] == ["accepted"] * 4 + ["rejected"]
    assert told[0] == (
        "“reqest” (did you mean “request”?), “nam” (did you mean “name”?). Kept as said."
    )
    assert told[1] == "“affter” (did you mean “after”?). Kept as said."
    assert told[2].endswith("…”, and more. Kept as said.")
    assert len(told[2]) < 200
    assert told[3] == ""
    assert results[4]["problem"]["detail"].endswith("did you mean `run`?")
    assert Event.objects.get(run="run_1").data["reqest"] == "Book"


def test_a_name_that_stands_twice_is_found_among_very_many():
    """One of 8 MiB kept the process at it for hours, where each name was looked for in all."""
    names = [f'"{n}":0' for n in range(400_000)]
    raw = f"{{{','.join([*names, names[-1]])}}}".encode()

    assert wire.repeated(raw) == "399999"
