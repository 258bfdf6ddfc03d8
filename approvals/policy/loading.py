"""From a document to a Policy: read field by field, every mistake gathered with its place."""

from collections.abc import Mapping
from typing import Any, get_args

from amends.protocol.vocabulary import CLASSES, RISKS, Risk
from approvals import signing_keys
from approvals.policy.condition_types import SENSITIVITIES
from approvals.policy.conditions import LISTED
from approvals.policy.decisions import (
    COMPENSATIONS,
    CONDITION_FACTS,
    TWIN_FACTS,
    VERDICTS,
    VERIFIES,
    Asking,
    Escalation,
    RequiredApprovers,
    Rule,
)
from approvals.policy.document import (
    DUE_SECONDS,
    Audit,
    AutoCompensation,
    BreakGlass,
    Policy,
    Tool,
    Twin,
    TwinCall,
)
from approvals.policy.form import Form, check_lists, check_tools, hours_of, lists_of, one_or_many
from approvals.policy.reading import Invalid, LocatedDocument, Path, read
from connectors.contract import Kind
from ledger.canonical import digest

# The catalogue: what a workspace itself says of its tools, and how their calls are shown.

MANIFEST_FIELDS = ("kind", "title", "rows", "amount", "currency", "recipients")
CALL_FACTS = frozenset({"tool", "args", "target", "targets"})
KINDS = get_args(Kind)
TOOL_FIELDS = ("class", "risk", "target", "title", "reads_untrusted", "sensitivity", "preview")


def tools(form: Form, value: Any, path: Path) -> list[Tool]:
    found = []
    for glob, given, at in form.by_glob(value, path):
        tool = form.mapping(given, at, TOOL_FIELDS)
        untrusted = form.claim(tool.get("reads_untrusted"), (*at, "reads_untrusted"))
        level, by_argument = _sensitivity(form, tool.get("sensitivity"), (*at, "sensitivity"))
        found.append(
            Tool(
                glob=glob,
                action_class=form.choice(tool.get("class"), (*at, "class"), CLASSES),
                risk=form.choice(tool.get("risk"), (*at, "risk"), RISKS),
                target=form.text(tool.get("target"), (*at, "target"), 120),
                title=form.text(tool.get("title"), (*at, "title")),
                reads_untrusted=untrusted or False,
                sensitivity=level,
                sensitive_args=by_argument,
                preview=_manifest(form, tool.get("preview"), (*at, "preview")),
            )
        )
    return found


def _sensitivity(form: Form, value: Any, at: Path) -> tuple[str, dict[str, str]]:
    """One level for the tool, or levels by the names of arguments, with `tool` for the tool."""
    if not isinstance(value, dict):
        return form.choice(value, at, SENSITIVITIES) or "", {}
    levels = {
        form.text(name, at, 120): form.choice(level, (*at, name), SENSITIVITIES) or ""
        for name, level in value.items()
    }
    return levels.pop("tool", ""), levels


def _manifest(form: Form, value: Any, at: Path) -> dict[str, Any]:
    """How a call of the tool is shown: a kind, and CEL over `args`, `target`, `targets`, `tool`."""
    given = form.mapping(value, at, MANIFEST_FIELDS)
    found: dict[str, Any] = {
        name: form.expression(given[name], (*at, name), CALL_FACTS)
        for name in ("title", "amount", "currency", "recipients")
        if name in given
    }
    rows = form.mapping(given.get("rows"), (*at, "rows"))
    found["rows"] = {
        form.text(label, (*at, "rows"), 120): form.expression(one, (*at, "rows", label), CALL_FACTS)
        for label, one in rows.items()
    }
    if kind := form.choice(given.get("kind"), (*at, "kind"), KINDS):
        found["kind"] = kind
    return found if given else {}


RULES_MAX = 2_000
ENTRIES_MAX = 200
PEOPLE_MAX = 10  # a rule that wants more people than this is a typing mistake
DAY = 86400
USES_MAX = 1_000  # of a bounded grant; they are counted anew at each use
AMOUNT_MAX = 10**15
SECTIONS = (
    "policies", "always", "review", "tools", "twins", "unwind", "audit", "autoCompensation",
    "verify", "due", "stuckAfter", "selfApproval", "order", "expires", "probation", "unknownTools",
    "lists", "hours", "signedFrom", "breakGlass",
)  # fmt: skip
RULE_FIELDS = (
    "when", "risk", "approval", "requires", "expires", "compensation", "selfApproval", "verify",
    "askAffected", "bounded", "escalate", "words",
)  # fmt: skip
CALL_FIELDS = ("connection", "operation", "args")


def load(document: str | Mapping[str, Any]) -> Policy:
    """A Policy from JSON or YAML text, or from values. Raises Invalid with every problem found.

    The document is `{"agentSafety": {...}}` or what stands inside; our additions may be missing.
    """
    policy, form = _read(document)
    if form.problems:
        raise Invalid(form.problems)
    return policy


def load_new(document: str | Mapping[str, Any]) -> Policy:
    """The same of a document that is to be saved: what could never be evaluated is refused, too."""
    policy, form = _read(document)
    if form.problems or form.problems_of_new:
        raise Invalid([*form.problems, *form.problems_of_new])
    return policy


def _read(document: str | Mapping[str, Any]) -> tuple[Policy, Form]:
    text = read(document) if isinstance(document, str) else LocatedDocument(dict(document))
    form = Form(text)
    form.keepable(text.value, ())
    root: Path = ()
    value = form.mapping(text.value, root)
    if "agentSafety" in value:
        form.mapping(value, root, ("agentSafety", "$schema", "version", *SECTIONS))
        for name in SECTIONS:
            if name in value:
                form.wrong((name,), "stands beside agentSafety: it belongs below it")
        root = ("agentSafety",)
        value = value["agentSafety"]
        if value is None:
            form.wrong(root, "an object is wanted here")
    return _policy(form, form.mapping(value, root, SECTIONS), root, text.value), form


def _policy(form: Form, value: dict[str, Any], root: Path, whole: Any) -> Policy:
    known = ("strategy", "onCompensationFailure", "timeout")
    unwind = form.mapping(value.get("unwind"), (*root, "unwind"), known)
    at = (*root, "unwind")
    form.choice(unwind.get("strategy"), (*at, "strategy"), ("LIFO",))
    failure = form.choice(
        unwind.get("onCompensationFailure"),
        (*at, "onCompensationFailure"),
        ("ALERT_AND_CONTINUE", "HALT"),
    )
    expires = form.mapping(value.get("expires"), (*root, "expires"), ("action", "plan"))
    unknown = form.choice(value.get("unknownTools"), (*root, "unknownTools"), ("ALLOW", "ASK"))
    probation = form.seconds(value.get("probation"), (*root, "probation"), 0, 30 * DAY)
    rules = tuple(_rules(form, value.get("policies"), (*root, "policies")))
    always = tuple(_always(form, value.get("always"), (*root, "always")))
    lists = lists_of(form, value.get("lists"), (*root, "lists"))
    review = tuple(_review(form, value.get("review"), (*root, "review")))
    check_lists(form, (*rules, *always, *review), lists)
    hours = hours_of(form, value.get("hours"), (*root, "hours"))
    for rule in (*rules, *always, *review) if hours is None else ():
        if rule.when and "working_hours" in rule.when.names:
            form.wrong((*rule.path, "when"), "“working_hours” needs the section “hours”")
    policy = Policy(
        digest=digest(whole) if not form.problems else "",
        document=whole if isinstance(whole, dict) else {},
        rules=rules,
        always=always,
        review=review,
        named_lists=lists,
        working_hours=hours,
        tools=tuple(tools(form, value.get("tools"), (*root, "tools"))),
        twins=tuple(_twins(form, value.get("twins"), (*root, "twins"))),
        audit=_audit(form, value.get("audit"), (*root, "audit")),
        auto_compensation=_auto(form, value.get("autoCompensation"), (*root, "autoCompensation")),
        halt_on_failure=failure == "HALT",
        call_timeout_seconds=form.seconds(unwind.get("timeout"), (*at, "timeout"), 1, 60),
        stuck_after_seconds=form.seconds(
            value.get("stuckAfter"), (*root, "stuckAfter"), 30, 30 * DAY
        )
        or 900,
        probation_seconds=DAY if probation is None else probation,
        order_law=form.choice(value.get("order"), (*root, "order"), ("WARN", "ASK", "DENY"))
        or "WARN",
        asks_of_unknown=unknown == "ASK",
        verify=form.choice(value.get("verify"), (*root, "verify"), VERIFIES) or "NONE",
        signed_from=_signed_from(form, value.get("signedFrom"), (*root, "signedFrom")),
        break_glass=_break_glass(form, value.get("breakGlass"), (*root, "breakGlass")),
        self_approval=form.claim(value.get("selfApproval"), (*root, "selfApproval")) or False,
        due=_due(form, value.get("due"), (*root, "due")),
        action_expires_seconds=form.seconds(
            expires.get("action"), (*root, "expires", "action"), 60, 30 * DAY
        )
        or 3600,
        plan_expires_seconds=form.seconds(
            expires.get("plan"), (*root, "expires", "plan"), 60, 30 * DAY
        )
        or DAY,
    )
    check_tools(form, (*rules, *always, *review), policy)
    return policy


def _break_glass(form: Form, value: Any, at: Path) -> BreakGlass | None:
    """The section `breakGlass`: `{group, after, upTo}`, each of which may be left out."""
    if value is None:
        return None
    given = form.mapping(value, at, ("group", "after", "upTo"))
    after = form.seconds(given.get("after"), (*at, "after"), 0, 30 * DAY)
    up_to = form.choice(given.get("upTo"), (*at, "upTo"), RISKS)
    return BreakGlass(
        group=form.text(given.get("group"), (*at, "group"), 80),
        after_seconds=BreakGlass().after_seconds if after is None else after,
        up_to=up_to or BreakGlass().up_to,
    )


def _signed_from(form: Form, value: Any, at: Path) -> Risk | None:
    found: Risk | None = form.choice(value, at, RISKS)
    if found and (why := signing_keys.unavailable()):
        form.wrong_of_new(at, why)
    return found


def _rules(form: Form, value: Any, path: Path) -> list[Rule]:
    found: list[Rule] = []
    for glob, given, at in form.by_glob(value, path):
        found += [_rule(form, glob, rule, here) for rule, here in one_or_many(given, at)]
    if len(found) > RULES_MAX:
        form.wrong(path, f"more than {RULES_MAX} rules")
    return found


def _always(form: Form, value: Any, path: Path) -> list[Rule]:
    """Rules that hold beside those that decide: they ask or deny, and let nothing pass."""
    found = _rules(form, value, path)
    for rule in found:
        if rule.approval not in {"MANUAL", "DENY"}:
            words = "under “always” a rule says MANUAL or DENY as its approval"
            form.wrong((*rule.path, "approval"), words)
    return found


def _review(form: Form, value: Any, path: Path) -> list[Rule]:
    """What is worth a second look: under globs, conditions with words, and nothing else."""
    found = []
    for glob, given, at in form.by_glob(value, path):
        for one, here in one_or_many(given, at):
            said = form.mapping(one, here, ("when", "words"))
            if said.get("when") is None:
                form.wrong(here, "“when” is missing: what about a call is worth a look")
            found.append(_rule(form, glob, {**said, "approval": "AUTO"}, here))
    return found


def _rule(form: Form, glob: str, value: Any, at: Path) -> Rule:
    if value is None:
        form.wrong(at, "an object is wanted here")
    given = form.mapping(value, at, RULE_FIELDS)

    def need(one: Any, path: Path) -> RequiredApprovers:
        if isinstance(one, str):
            form.wrong(path, f"a team is named as {{group: {one}}}")
            return RequiredApprovers(None, 1)
        asked = form.mapping(one, path, ("group", "count"))
        team = form.text(asked.get("group"), (*path, "group"), 80)
        return RequiredApprovers(
            team or None, form.number(asked.get("count"), (*path, "count"), 1, PEOPLE_MAX) or 1
        )

    condition = form.condition(given.get("when"), (*at, "when"), CONDITION_FACTS)
    affected, affected_words = _affected(form, given.get("askAffected"), (*at, "askAffected"))
    rule = Rule(
        glob=glob,
        when=condition.of_glob(glob) if condition else None,
        risk=form.choice(given.get("risk"), (*at, "risk"), RISKS),
        approval=form.choice(given.get("approval"), (*at, "approval"), VERDICTS),
        requires=tuple(form.each(given.get("requires"), (*at, "requires"), need, ENTRIES_MAX)),
        expires_seconds=form.seconds(given.get("expires"), (*at, "expires"), 60, 30 * DAY),
        compensation=form.choice(given.get("compensation"), (*at, "compensation"), COMPENSATIONS),
        self_approval=form.claim(given.get("selfApproval"), (*at, "selfApproval")),
        verify=form.choice(given.get("verify"), (*at, "verify"), VERIFIES),
        affected=affected,
        affected_words=affected_words,
        bounded=_bounded(form, given.get("bounded"), (*at, "bounded")),
        escalate=_escalation(form, given.get("escalate"), (*at, "escalate")),
        words=form.text(given.get("words"), (*at, "words")),
        path=at,
    )
    if rule.escalate and rule.escalate.seconds >= (rule.expires_seconds or 31 * DAY):
        form.wrong_of_new((*at, "escalate"), "the question “expires” before that: ask sooner")
    if rule.bounded and rule.affected:
        form.wrong((*at, "bounded"), "the affected person is asked about each call: leave one out")
    more = (
        ("requires", rule.requires),
        ("askAffected", rule.affected),
        ("bounded", rule.bounded),
        ("escalate", rule.escalate),
    )
    for name, asks in more:
        if asks and rule.approval in {"AUTO", "DENY"}:
            form.wrong((*at, name), f"{rule.approval} asks nobody: leave one of the two out")
    return rule


def _escalation(form: Form, value: Any, at: Path) -> Escalation | None:
    """Which team is asked, too, once nobody has decided for how long."""
    if value is None:
        return None
    given = form.mapping(value, at, ("after", "group"))
    for name in ("after", "group"):
        if given.get(name) is None:
            form.wrong(at, f"“{name}” is missing")
    seconds = form.seconds(given.get("after"), (*at, "after"), 60, 30 * DAY)
    team = form.text(given.get("group"), (*at, "group"), 80)
    return Escalation(seconds, team) if seconds and team else None


def _bounded(form: Form, value: Any, at: Path) -> dict[str, Any] | None:
    """How far calls may be granted ahead: for how many and how long, at most how much each and in
    all, and which arguments stay as they are on the card.
    """
    if value is None:
        return None
    given = form.mapping(value, at, ("uses", "for", "amount", "each", "sum", "same", "listed"))
    for name in ("uses", "for"):
        if given.get(name) is None:
            form.wrong(at, f"“{name}” is missing")
    amount = form.expression(given.get("amount"), (*at, "amount"), CALL_FACTS)
    each, total = (
        form.number(given.get(name), (*at, name), 1, AMOUNT_MAX) for name in ("each", "sum")
    )
    if amount is None and (each or total):
        form.wrong(at, "“amount” is missing: what of a call is counted, as args.amount")
    if amount is not None and not total:
        form.wrong(at, "“sum” is missing: how much all of them come to at most")
    listed = _listed(form, given.get("listed"), (*at, "listed"))
    return {
        "uses": form.number(given.get("uses"), (*at, "uses"), 1, USES_MAX) or 1,
        "for": form.seconds(given.get("for"), (*at, "for"), 60, 30 * DAY) or 60,
        "amount": amount.source if amount else "",
        "each": each,
        "sum": total,
        "same": form.each(given.get("same"), (*at, "same"), lambda one, p: _path(form, one, p), 20),
        **({"listed": listed} if listed else {}),
    }


def _listed(form: Form, value: Any, at: Path) -> dict[str, str] | None:
    """`args.iban in lists.payees`: what a grant for a list is bound to."""
    text = form.text(value, at, 200)
    found = LISTED.fullmatch(text)
    if text and (found is None or not found[1].startswith("args.")):
        form.wrong(at, "an argument and a list are wanted here, as args.iban in lists.payees")
    return {"path": found[1], "list": found[2]} if found else None


def _path(form: Form, value: Any, at: Path) -> str | None:
    """`args.currency`: an argument by its names."""
    path = form.text(value, at, 200) or None
    names = path.split(".") if path else []
    if len(names) < 2 or names[0] != "args" or "" in names:  # noqa: PLR2004 - args and a name
        form.wrong(at, "an argument by its names is wanted here, as args.currency")
    return path


def _affected(form: Form, value: Any, at: Path) -> tuple[Asking, str]:
    """`true`, or `{must, words}`: the question that the affected person is asked first."""
    if value is None or isinstance(value, bool):
        return ("ask" if value else ""), ""
    given = form.mapping(value, at, ("must", "words"))
    must = form.claim(given.get("must"), (*at, "must"))
    return ("must" if must else "ask"), form.text(given.get("words"), (*at, "words"))


def _twins(form: Form, value: Any, path: Path) -> list[Twin]:
    found: list[Twin] = []
    for tool, given, at in form.by_glob(value, path):
        found += [_twin(form, tool, twin, here) for twin, here in one_or_many(given, at)]
        types = [twin.target_type for twin in found if twin.tool == tool]
        if len(types) != len(set(types)):
            form.wrong(at, "two twins for the same type of target")
    return found


def _twin(form: Form, tool: str, value: Any, at: Path) -> Twin:
    fields = (*CALL_FIELDS, "target", "reversibility", "probe", "words")
    given = form.mapping(value, at, fields)
    call = _call(form, given, at)
    probe = given.get("probe")
    return Twin(
        connection=call.connection,
        operation=call.operation,
        args=call.args,
        tool=tool,
        target_type=form.text(given.get("target"), (*at, "target"), 120),
        reversibility=form.choice(
            given.get("reversibility"),
            (*at, "reversibility"),
            ("exact", "compensable", "irreversible"),
        ),
        probe=_call(form, form.mapping(probe, (*at, "probe"), CALL_FIELDS), (*at, "probe"))
        if probe is not None
        else None,
        words=form.text(given.get("words"), (*at, "words")),
    )


def _call(form: Form, given: dict[str, Any], at: Path) -> TwinCall:
    for name in ("connection", "operation"):
        if not isinstance(given.get(name), str) or not given[name]:
            form.wrong((*at, name) if name in given else at, f"“{name}” is missing")
    args = form.mapping(given.get("args"), (*at, "args"))
    return TwinCall(
        connection=form.text(given.get("connection"), (*at, "connection"), 120),
        operation=form.text(given.get("operation"), (*at, "operation"), 120),
        args={name: _argument(form, one, (*at, "args", name)) for name, one in args.items()},
    )


def _argument(form: Form, value: Any, path: Path) -> Any:
    """A text is an expression; objects and lists are walked; other values stand for themselves."""
    if isinstance(value, str):
        return form.expression(value, path, TWIN_FACTS)
    if isinstance(value, dict):
        return {name: _argument(form, one, (*path, name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_argument(form, one, (*path, place)) for place, one in enumerate(value)]
    return value


# Members of an event by which the desk goes. A rule for `pay` does not fit a tool that is masked.
NEVER_MASKED = frozenset(
    {
        "args_missing", "attempt", "class", "fence", "key", "ok", "op", "outcome", "retry",
        "risk", "saga", "source", "target", "targets", "tool",
    }
)  # fmt: skip


def _masked_path(form: Form, given: Any, at: Path) -> str | None:
    path = form.text(given, at, 200) or None
    names = path.split(".") if path else [""]
    if "" in names:
        form.wrong_of_new(at, "a path is names with single dots between them, as args.card.*")
    elif names[0] in NEVER_MASKED or names == ["*"]:
        form.wrong_of_new(at, f"“{path}” would hide by what calls are told apart and judged")
    return path


def _audit(form: Form, value: Any, at: Path) -> Audit:
    given = form.mapping(
        value, at, ("captureIntent", "captureSnapshot", "retention", "mask", "showLast4")
    )
    last4 = form.claim(given.get("showLast4"), (*at, "showLast4"))
    intent = form.claim(given.get("captureIntent"), (*at, "captureIntent"))
    snapshot = form.claim(given.get("captureSnapshot"), (*at, "captureSnapshot"))
    retention = form.seconds(given.get("retention"), (*at, "retention"), DAY, 400 * DAY)
    mask = form.each(
        given.get("mask"), (*at, "mask"), lambda one, path: _masked_path(form, one, path), 500
    )
    return Audit(
        capture_intent=intent is not False,
        capture_snapshot=snapshot is not False,
        retention_days=(retention or 90 * DAY) // DAY,
        mask=tuple(mask),
        shows_last4=last4 is True,
    )


def _auto(form: Form, value: Any, at: Path) -> AutoCompensation:
    if value is None or isinstance(value, bool):
        return AutoCompensation(enabled=bool(value))
    given = form.mapping(value, at, ("enabled", "tools", "publish"))
    tools = form.each(
        given.get("tools"), (*at, "tools"), lambda one, path: form.text(one, path, 200) or None, 500
    )
    return AutoCompensation(
        enabled=form.claim(given.get("enabled"), (*at, "enabled")) is not False,
        tools=tuple(tools) or ("*",),
        publish=form.claim(given.get("publish"), (*at, "publish")) or False,
    )


def _due(form: Form, value: Any, at: Path) -> dict[Risk, int]:
    given = form.mapping(value, at, RISKS)
    return {
        risk: form.seconds(given.get(risk), (*at, risk), 60) or seconds
        for risk, seconds in DUE_SECONDS.items()
    }
