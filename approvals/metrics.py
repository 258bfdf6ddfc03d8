"""What Prometheus counts of people's answers, in the process where they are given."""

from prometheus_client import Counter, Histogram

# From a click without reading to a day.
BUCKETS = (2, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)

answers = Counter(
    "amends_approval_answers", "Answers that people gave to approvals.", ["answer", "risk"]
)
decide_seconds = Histogram(
    "amends_approval_decide_seconds",
    "From asking people to their last answer.",
    ["end"],
    buckets=BUCKETS,
)
