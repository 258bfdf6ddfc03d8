"""The connector of the tests' outside system, installed like anybody's package.

Each operation does the same thing under another promise, so that a test can choose what is known
after a lost answer.
"""

import json
import os
import signal
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from connectors.contract import (
    Answer,
    Call,
    CannotRead,
    Connector,
    Finding,
    Observation,
    Operation,
    Preview,
    Refused,
)

LIMIT_SECONDS = float(os.environ.get("OUTSIDE_LIMIT_SECONDS", "20"))
"""A call on a busy machine takes less; a story about the limit sets its own."""


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    url: str


class Args(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    to: dict[str, Any] | None = None


def operation(name: str, **promises: Any) -> Operation:
    return Operation(
        name=name,
        title=name.capitalize(),
        args_schema=Args,
        limit_seconds=LIMIT_SECONDS,
        **{"reversibility": "exact", "idempotency": "natural_key", "probe": "strong"} | promises,
    )


OPERATIONS = (
    operation("restore"),
    operation("conditional", idempotency="conditional"),
    operation("marked", idempotency="marker"),
    operation("refund", idempotency="native_key", window_seconds=60, reversibility="compensable"),
    operation(
        "refund_unseen",
        idempotency="native_key",
        window_seconds=60,
        probe="none",
        reversibility="compensable",
        observes=False,
        reads_back=False,
    ),
    operation("slowly", probe="eventual", horizon_seconds=2),
    operation(
        "mail",
        idempotency="none",
        probe="none",
        reversibility="irreversible",
        observes=False,
        reads_back=False,
    ),
    operation(  # a look finds the thing, and nothing of what was sent about it
        "note", idempotency="none", probe="none", reversibility="irreversible", reads_back=False
    ),
    operation("charge_blindly", idempotency="none", probe="strong", reversibility="compensable"),
)


class Outside(Connector):
    name = "outside"
    version = os.environ.get("OUTSIDE_VERSION", "1.0")
    title = "The outside world of the tests"
    settings_schema = Settings
    operations: ClassVar = {one.name: one for one in OPERATIONS}

    def preview(self, call: Call) -> Preview:
        args: Args = call.operation.check_args(call.args)
        wanted = {"exists": args.to is not None, "fields": args.to or {}}
        if not call.operation.reads_back:
            wanted = {}
        verb = "Set" if args.to is not None else "Remove"
        return Preview(kind="http", title=f"{verb} {args.id}", must_be_true=wanted)

    def observe(self, call: Call) -> Observation:
        if "poison" in call.args["id"]:
            os.kill(os.getpid(), signal.SIGKILL)  # a connector that takes its process down
        answer = call.connection.outbound.request("GET", self._url(call))
        if answer.status == 404:
            return Observation(found=False, state=None)
        if answer.status != 200:
            raise CannotRead(f"The service answered {answer.status}.")
        return Observation(found=True, state=answer.json(), version=answer.headers["etag"])

    def apply(self, call: Call) -> Answer:
        args: Args = call.operation.check_args(call.args)
        headers = {"idempotency-key": call.key}
        if call.operation.idempotency == "conditional" and call.observed and call.observed.version:
            headers["if-match"] = call.observed.version
        honours = "?honours=key" if call.operation.idempotency == "native_key" else ""
        answer = call.connection.outbound.request(
            "DELETE" if args.to is None else "PUT",
            self._url(call) + honours,
            headers=headers,
            content=json.dumps(args.to or {}).encode(),
        )
        if answer.status in {412, 422}:
            raise Refused(f"The service refused: {answer.status}.")
        if answer.status != 200:
            return Answer(outcome="unknown", detail=f"The service answered {answer.status}.")
        return Answer(outcome="applied", evidence=answer.json())

    def probe(self, call: Call) -> Finding:
        url = f"{call.connection.settings.url}/keys/{quote(call.key)}"
        answer = call.connection.outbound.request("GET", url)
        if answer.status != 200:
            return Finding(found="cannot_tell")
        found = answer.json()["found"]
        return Finding(found="present" if found else "absent", evidence={"key": call.key})

    def _url(self, call: Call) -> str:
        return f"{call.connection.settings.url}/things/{quote(call.args['id'], safe='')}"
