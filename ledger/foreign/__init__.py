"""What others tell in formats of their own, as events of ours: `transcripts`, `traces` (OTLP) and
`cloud_events`. Each is a reader; what they read is recorded as all other events are.
"""

from edge.asgi import answering, route
from ledger.foreign import cloud_events, traces

routes = [
    route(
        "POST",
        r"/api/v1/cloudevents",
        answering(cloud_events.cloud_events),
        cloud_events.OPERATION,
    ),
    route("POST", r"/v1/traces", answering(traces.traces), traces.OPERATION),
]
