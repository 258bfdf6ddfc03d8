"""`http`: an API described by a manifest, without a line of code.

A manifest says how the target is read, what is sent, what each answer means, and how a lost try is
found again (`connectors/manifest.py` has its form). An answer that no rule names is unknown. The
address is a connection's setting and never a template; secrets go into the headers and nowhere
else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import msgspec

from amends.protocol.masking import holds_mask
from connectors.contract import (
    UNSET,
    Answer,
    Call,
    CannotRead,
    Check,
    Connector,
    DiffRow,
    Finding,
    Money,
    NothingSchema,
    Observation,
    Operation,
    Preview,
    Refused,
    Session,
    State,
    Target,
    found_by_state,
    meaning,
)
from connectors.manifest import (
    Described,
    Manifest,
    Read,
    Request,
    Rule,
    facts_of,
    filled,
    fingerprint_of,
    lacking,
    looked_up,
    manifests,
    operation_of,
    path,
    placeholders,
    written,
)
from connectors.outbound import OK, Response, account_of, address_under, basic_auth
from ledger.canonical import same


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """`manifest`: the name of one; `base_url`: scheme, host and port, and a path if the API has
    one.
    """

    manifest: Annotated[
        str, meaning("The name of the file that describes the API; docs/connectors.md has its form")
    ]
    base_url: Annotated[
        str,
        meaning("Scheme, host and port, and a path if the API has one: https://api.example.com"),
    ]
    values: Annotated[
        dict[str, Any], meaning("What the manifest asks for, a line each: account: acct_17")
    ] = {}


class Token(msgspec.Struct, forbid_unknown_fields=True):
    """`token` for bearer and header, `user` and `password` for basic authentication."""

    token: Annotated[str, meaning("For a manifest that sends a bearer token or a header")] = ""
    user: Annotated[str, meaning("For a manifest with basic authentication")] = ""
    password: Annotated[str, meaning("For a manifest with basic authentication")] = ""


ASKING = Operation(
    name="account",
    title="Ask whose account it is",
    args_schema=NothingSchema,
    reversibility="exact",
    idempotency="natural_key",
)


class Http(Connector):
    name = "http"
    version = "1.1"
    title = "HTTP API (by manifest)"
    summary = "Undoes over an API that a file describes, such as payments; no code is needed."
    settings_schema = Settings
    credential_schema = Token
    where = frozenset({"base_url", "manifest", "values"})

    def offered(self) -> Mapping[str, Sequence[str]]:
        return {"manifest": sorted(manifests())}

    def operations_for(self, settings: Any) -> Mapping[str, Operation]:
        described = manifest_of(settings).operations
        return {name: operation_of(name, one) for name, one in described.items()}

    def version_with(self, settings: Any) -> str:
        """The manifest says what is sent, so what people approve holds for it as it was then."""
        return f"{self.version}+{fingerprint_of(manifest_of(settings))}"

    def place(self, settings: Any) -> str:
        base_url: str = settings.base_url
        return base_url

    def account(self, settings: Any, credentials: Any) -> str | None:
        kind = manifest_of(settings).auth.kind
        named = {"basic": account_of(credentials.user, credentials.password), "none": ""}
        return named.get(kind)

    def asked_account(self, session: Session) -> str | None:
        told = manifest_of(session.settings).account
        if told is None:
            return None
        call = Call(operation=ASKING, args={}, target=Target("", ""), key="", connection=session)
        answer = send(call, told.request)
        if answer.status not in OK:
            raise CannotRead(f"The service answered {answer.status}.")
        found = looked_up(answer.json(), told.at)
        return str(found) if type(found) in {str, int} else None  # that it is true tells nobody

    def check_settings(self, settings: Any) -> None:
        parts = urlsplit(settings.base_url)
        if parts.scheme not in {"https", "http"} or not parts.hostname:
            raise ValueError("The base_url has to begin with https:// and name a host.")
        if parts.username or parts.query or parts.fragment:
            raise ValueError("The base_url holds scheme, host, port and path, and nothing else.")
        missing = sorted(set(manifest_of(settings).values) - set(settings.values))
        if missing:
            raise ValueError(f"The manifest also needs values for {', '.join(missing)}.")

    def preview(self, call: Call) -> Preview:
        described, facts = _described(call), facts_of(call)
        args = call.operation.check_args(call.args)
        money = _money(described, call)
        sent = _approvable(call, facts)
        general = filled(manifest_of(call.connection.settings).headers, facts)
        if holds_mask([sent, general]):  # the mark of it would stand there
            raise Refused("What would be sent holds a masked value, which nobody here knows.")
        left = _left(described, facts)
        facts["money"] = str(money) if money else _amount_words(described, facts)
        return Preview(
            kind=described.kind,
            title=filled(described.title, facts),
            rows=[("Request", f"{described.apply.method} {sent['path']}"), *_rows(args)],
            will_send=sent,
            must_be_true=left,
            diff=[
                DiffRow(name, value, call.wrote.get(name), call.now.get(name))
                for name, value in left.get("fields", {}).items()
            ],
            money=money,
        )

    def observe(self, call: Call) -> Observation:
        read = _described(call).read
        if read is None:
            raise CannotRead("The manifest does not say how this is read.")
        answer = send(call, read.request)
        if answer.status in read.gone:
            return Observation(found=False, state=None)
        if answer.status not in OK:
            raise CannotRead(f"The service answered {answer.status}.")
        said = answer.json()
        if (read.absent and fits(read.absent, said)) or not _listed(call, read):
            return Observation(found=False, state=None)
        return Observation(found=True, state=state_of(read, said), version=version_of(read, answer))

    def apply(self, call: Call) -> Answer:
        described = _described(call)
        if described.idempotency in {"conditional", "natural_key"} and described.read:
            call = call if call.observed else replace(call, observed=self.observe(call))
            if call.observed and self.satisfied(call, call.observed):
                return Answer(outcome="applied", evidence={"already": True})
        if described.idempotency == "conditional":
            self._insist_on_the_state(call)
        _approvable(call, facts_of(call))
        answer = send(call, described.apply)
        rule = rule_for(described, answer)
        if rule is None or rule.outcome == "unknown":
            return Answer(outcome="unknown", detail=f"The service answered {answer.status}.")
        if rule.outcome == "refused":
            raise Refused(f"The service refused: {answer.status} {complaint(answer)}")
        return Answer(
            outcome="applied", evidence={"status": answer.status, **_known(_said(answer))}
        )

    def _insist_on_the_state(self, call: Call) -> None:
        """A conditional write rests on what was read; raises Refused where that has changed."""
        if call.observed is None or call.observed.version is None:
            raise Refused("The target has no version that the write could be conditional on.")
        # What was masked was held against its mark at the read that gave the version.
        if any(not holds_mask(one.expected) for one in self.drifted(call, call.observed)):
            raise Refused("The target is not as the agent left it.")

    def probe(self, call: Call) -> Finding:
        described, facts = _described(call), facts_of(call)
        if described.trace is None:
            return found_by_state(self, call)
        answer = send(call, described.trace.request)
        if answer.status not in OK:
            return Finding(found="cannot_tell", evidence={"status": answer.status})
        said = answer.json()
        if unknown := lacking(described.trace.where, facts):  # without it, any item would be ours
            return Finding(found="cannot_tell", evidence={"not_known": unknown})
        wanted = filled(described.trace.where, facts)
        items = _items(said, described.trace.items)
        ours = [item for item in items if _tells_of(wanted, item)]
        for item in ours:
            if not any(fits(failed, item) for failed in described.trace.failed):
                return Finding(found="present", evidence=_known(item))
        more = described.trace.more and looked_up(said, described.trace.more)
        if more or NEXT_PAGE.search(answer.headers.get("link", "")):
            return Finding(found="cannot_tell", evidence={"more": True})
        return Finding(found="absent", evidence={"failed": len(ours), "looked_at": len(items)})

    def verify(self, call: Call) -> Check:
        """By the trace of our own try where there is one, else by what the target looks like."""
        if _described(call).trace is None:
            return super().verify(call)
        finding = self.probe(call)
        if finding.found == "present":
            check = {"name": "found again by its key", "expected": True, "actual": True, "ok": True}
            return Check(ok=True, checks=[check | {"evidence": finding.evidence}])
        if _described(call).leaves is not None:
            return super().verify(call)
        if finding.found == "cannot_tell":
            raise CannotRead("The service does not tell whether it was done.")
        # That the target is there says nothing of what was to be done to it.
        check = {"name": "found again by its key", "expected": True, "actual": False, "ok": False}
        return Check(ok=False, checks=[check])


def _listed(call: Call, read: Read) -> bool:
    """Whether the target is in the list in which it has to be; True where none is named."""
    if read.listed is None:
        return True
    answer = send(call, read.listed.request)
    if answer.status not in OK:
        raise CannotRead(f"The service answered {answer.status}.")
    return bool(_items(answer.json(), read.listed.items))


def _items(said: Any, dotted: str) -> list[Any]:
    """The list in an answer. One without it is none, whatever its status: it proves no absence."""
    items = looked_up(said, dotted)
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise CannotRead("The answer does not hold the list that the manifest looks for.")
    return items


NEXT_PAGE = re.compile(r"""\brel\s*=\s*("[^"]*\bnext\b|next\b)""", re.IGNORECASE)
"""What a list says of itself that goes on elsewhere (RFC 8288), whatever its manifest knows."""


def _tells_of(wanted: Mapping[str, Any], item: State) -> bool:
    """Whether a trace's item is what is looked for; of services that give numbers as texts, too:
    taken for nobody's, it would be made once more.
    """
    found = {dotted: looked_up(item, dotted) for dotted in wanted}
    return all(
        same(value, found[dotted])
        or (
            _is_plain(value)
            and _is_plain(found[dotted])
            and written(value) == written(found[dotted])
        )
        for dotted, value in wanted.items()
    )


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _described(call: Call) -> Described:
    return manifest_of(call.connection.settings).operations[call.operation.name]


def _left(described: Described, facts: Mapping[str, Any]) -> State:
    if described.leaves is None:
        return {}
    if described.leaves == "gone":
        return {"exists": False}
    fields = filled(described.leaves, facts)
    # Of no field at all everything would be as it should be already.
    if not isinstance(fields, dict) or (described.leaves and not fields):
        raise Refused("What the operation should leave behind was not recorded.")
    return {"exists": True, "fields": fields}


def _money(described: Described, call: Call) -> Money | None:
    """The amount that is named, else that of the charge as it was recorded."""
    if described.money is None:
        return None
    facts = facts_of(call)
    amount, currency = (
        looked_up(facts, described.money.amount),
        looked_up(facts, described.money.currency),
    )
    if amount in (None, UNSET):
        amount = call.wrote.get("amount")
    if not isinstance(currency, str):
        currency = call.wrote.get("currency")
    return Money.of(amount, currency)


def _amount_words(described: Described, facts: Mapping[str, Any]) -> str:
    """Of an amount that is not known as money: as it is sent, where one is named."""
    named = looked_up(facts, described.money.amount) if described.money else UNSET
    return "the whole amount" if named in (None, UNSET) else written(named)


def _rows(args: Any) -> list[tuple[str, str]]:
    given = {k: v for k, v in msgspec.to_builtins(args).items() if v is not None}
    return [(name, written(value)) for name, value in given.items()]


def _said(answer: Response) -> Any:
    """The JSON of an answer that need not have any; None where it has none."""
    try:
        return answer.json()
    except ValueError:
        return None


def _known(item: Any) -> State:
    """The few fields of an answer that are evidence."""
    names = ("id", "object", "status", "amount", "currency", "created")
    return {name: item[name] for name in names if isinstance(item, dict) and name in item}


# One exchange: the request as it is built, the answer as it is read.


def manifest_of(settings: Settings) -> Manifest:
    try:
        return manifests()[settings.manifest]
    except KeyError:
        known = ", ".join(sorted(manifests()))
        raise ValueError(f"There is no manifest “{settings.manifest}”; known: {known}.") from None


def built(request: Request, facts: Mapping[str, Any]) -> State:
    """A request as it will be sent, credentials apart."""
    made: State = {
        "method": request.method,
        "path": path(request.path, facts),
        "headers": _headers(request.headers, facts),
    }
    if request.form is not None:
        made["form"] = dict(_flat(filled(request.form, facts)))
    if request.json is not None:
        body = filled(request.json, facts)
        if body is UNSET:
            raise Refused("The body of the request was not recorded.")
        made["json"] = body
    return made


LATER = (
    "The manifest sends what stands there at that moment, which nobody has approved: it may send"
    " args, before and expected, and of what is observed the version."
)


def _approvable(call: Call, facts: Mapping[str, Any]) -> State:
    """What is to be done, as it will be sent; raises Refused where the manifest leaves it open."""
    described, general = _described(call), manifest_of(call.connection.settings).headers
    spoken_of = placeholders([msgspec.to_builtins(described.apply), general])
    if any(one.startswith("observed") and one != "observed.version" for one in spoken_of):
        raise Refused(LATER)
    return built(described.apply, facts)


def _headers(templates: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, str]:
    """A number is written out: left out, the condition of a write would be gone with it."""
    found = filled(templates, facts)
    return {name: written(value) for name, value in found.items() if value is not None}


def send(call: Call, request: Request) -> Response:
    settings: Settings = call.connection.settings
    facts = facts_of(call)
    made = built(request, facts)
    general = _headers(manifest_of(settings).headers, facts)
    headers = {**general, **made["headers"], **_authority(call)}
    content = b""
    if "form" in made:
        content = urlencode(made["form"]).encode()
        headers["content-type"] = "application/x-www-form-urlencoded"
    elif "json" in made:
        content = msgspec.json.encode(made["json"])
        headers["content-type"] = "application/json"
    url = address_under(settings.base_url, made["path"])
    return call.connection.outbound.request(request.method, url, headers=headers, content=content)


def _authority(call: Call) -> dict[str, str]:
    auth = manifest_of(call.connection.settings).auth
    token: Token = call.connection.credentials
    if auth.kind == "bearer":
        return {"authorization": f"Bearer {token.token}"}
    if auth.kind == "basic":
        return basic_auth(token.user, token.password)
    return {auth.header: token.token} if auth.kind == "header" else {}


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested fields as forms write them: `metadata[amends_key]`."""
    for name, inner in value.items():
        key = f"{prefix}[{name}]" if prefix else name
        if isinstance(inner, Mapping):
            yield from _flat(inner, key)
        elif inner is not None:  # a form has no null
            yield key, written(inner)


def rule_for(described: Described, answer: Response) -> Rule | None:
    said = _said(answer)
    for rule in described.answers:
        if answer.status in rule.status and fits(rule.where, said):
            return rule
    return None


def fits(where: Mapping[str, Any], said: Any) -> bool:
    return all(same(value, looked_up(said, dotted)) for dotted, value in where.items())


def state_of(read: Read, said: Any) -> State:
    if isinstance(read.state, str):
        state = looked_up(said, read.state) if read.state else said
        if not isinstance(state, dict):
            raise CannotRead("The answer does not hold what the manifest looks for.")
        return state
    found = {name: looked_up(said, dotted) for name, dotted in read.state.items()}
    state = {name: value for name, value in found.items() if value is not UNSET}
    if not state:
        raise CannotRead("The answer holds nothing that the manifest looks for.")
    return state


def version_of(read: Read, answer: Response) -> str | None:
    kind, _, name = read.version.partition(":")
    if kind == "header":
        return answer.headers.get(name.lower())
    value = looked_up(answer.json(), read.version) if read.version else None
    return None if value is None or value is UNSET else str(value)


def complaint(answer: Response) -> str:
    said = _said(answer)
    for dotted in ("error.message", "error.msg", "error", "detail", "title", "message"):
        value = looked_up(said, dotted)
        if isinstance(value, str):
            return value
    return ""
