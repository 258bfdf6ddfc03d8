"""A connector that does nothing, so that what is measured is the engine."""

from typing import Any, ClassVar

import msgspec

from connectors.contract import (
    Answer,
    Call,
    Check,
    Connector,
    Finding,
    Observation,
    Operation,
    Preview,
)


class Args(msgspec.Struct):
    id: str
    to: dict[str, Any] | None = None


class Noop(Connector):
    name = "noop"
    version = "1.0"
    title = "Nothing"
    operations: ClassVar = {
        "restore": Operation(
            name="restore",
            title="Restore",
            args_schema=Args,
            reversibility="exact",
            idempotency="natural_key",
            probe="strong",
        )
    }

    def preview(self, call: Call) -> Preview:
        fields = call.args["to"] or {}
        return Preview(
            kind="http", title="Nothing", must_be_true={"exists": True, "fields": fields}
        )

    def observe(self, call: Call) -> Observation:
        state = call.wrote
        return Observation(found=True, state=state)

    def apply(self, call: Call) -> Answer:
        return Answer(outcome="applied")

    def probe(self, call: Call) -> Finding:
        return Finding(found="present")

    def verify(self, call: Call) -> Check:
        return Check(ok=True, checks=[{"name": "v", "expected": 1, "actual": 1, "ok": True}])
