"""Reviews: calls that ran without asking anybody and look unlike what their agent did before.

The policy says under `review` what is worth a second look. Such a call goes on; what was found is
kept with it, and once it has taken effect its run is a case of low risk, for a person to look at.
What cannot be told opens none: people would look at nothing, again and again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from approvals.models import Review
from approvals.policy import Policy, ToolCall, fitting_rules
from ledger.append.statements import Statement
from ledger.models import Run

WORDS_CHARACTERS_MAX = 300
OF_A_CALL_MAX = 5

KEEP = """
INSERT INTO approvals_review (workspace_id, run_ref, action, glob, words, at)
SELECT %b, %b, %b, u.glob, u.words, clock_timestamp()
FROM unnest(%b::text[], %b::text[]) AS u (glob, words)
ON CONFLICT (workspace_id, run_ref, action, words) DO NOTHING"""


class ReviewReason(NamedTuple):
    """What is worth a look: by which rule, and in words that name no value of the call."""

    glob: str
    words: str


def applies(policy: Policy, tool: str) -> bool:
    """Whether a call of this tool may be worth a look."""
    return bool(policy.of_tool(tool).review)


def of_call(policy: Policy, call: ToolCall) -> list[ReviewReason]:
    """What the policy finds worth a look about a call, with what was gathered for it."""
    if not applies(policy, call.tool):
        return []
    facts = fitting_rules(policy, call)[1]
    met = [rule for rule in policy.of_tool(call.tool).review if rule.met(facts, "AUTO")]
    return [
        ReviewReason(rule.glob, (rule.words or rule.in_words())[:WORDS_CHARACTERS_MAX])
        for rule in met[:OF_A_CALL_MAX]
    ]


def kept(workspace_id: int, run: str, action: str, found: Sequence[ReviewReason]) -> Statement:
    """What remembers it, in the transaction in which the call proceeds."""
    globs, words = [one.glob for one in found], [one.words for one in found]
    return KEEP, [workspace_id, run, action, globs, words]


def of_runs(runs: Iterable[Run]) -> Mapping[int, Sequence[tuple[str, str]]]:
    """What is worth a look in each of these runs: the action, and why."""
    by_name = {(run.workspace_id, run.run): run.pk for run in runs}
    rows: Any = Review.objects.filter(
        workspace__in={pk for pk, _ in by_name}, run_ref__in={name for _, name in by_name}
    )
    found: dict[int, list[tuple[str, str]]] = {}
    for here, run, action, words in rows.order_by("pk").values_list(
        "workspace_id", "run_ref", "action", "words"
    ):
        if (here, run) in by_name:
            found.setdefault(by_name[here, run], []).append((action, words))
    return found
