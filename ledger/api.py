"""The ledger over HTTP, to read: runs, actions, tree heads and proofs."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Router

from ledger import disclosure, logkeys, notes, proofs, reading
from ledger.models import Action, Run
from ledger.settlements import settlements_of
from workspaces.access import require
from workspaces.callers import ByAgent, ByPerson, Caller, caller_of

READERS = [ByAgent("read"), ByPerson()]
TEXT = "text/plain; charset=utf-8"

router = Router(tags=["ledger"])


@router.get("/runs/{run}", auth=READERS, summary="A run with its actions and checkpoints")
def read_run(request: HttpRequest, run: str) -> dict[str, Any]:
    """An agent reads its own runs. A person without `view_sensitive` reads them without payloads;
    each reveal is on the record.
    """
    caller = caller_of(request)
    found = _run(caller, run)
    return reading.run_as_json(found, sensitive=_reveals(caller, found.run))


@router.get("/runs/{run}/actions/{action}", auth=READERS, summary="One action")
def read_action(request: HttpRequest, run: str, action: str) -> dict[str, Any]:
    caller = caller_of(request)
    row = _run(caller, run)
    found = Action.objects.filter(run=row, action=action).first()
    if found is None:
        raise Http404("There is no such action in this run.")
    settled = settlements_of(row, [found]).get(action)
    return reading.action_as_json(found, settled, sensitive=_reveals(caller, row.run, action))


@router.get("/ledger/key", auth=READERS, summary="The log's public keys, the living one first")
def read_keys(request: HttpRequest) -> HttpResponse:
    return text("".join(f"{key}\n" for key in logkeys.published(_reader(request).workspace)))


@router.get("/ledger/head", auth=READERS, summary="The newest signed tree head (C2SP checkpoint)")
def read_head(request: HttpRequest) -> HttpResponse:
    head = proofs.newest_head(_reader(request).workspace)
    if head is None:
        raise Http404("Nothing is sealed yet.")
    return text(head.note)


@router.get("/ledger/proof/{event}", auth=READERS, summary="Inclusion of an event (tlog-proof)")
def read_proof(request: HttpRequest, event: str) -> HttpResponse:
    """404 if there is no such event or it is not sealed yet; 409 if its row was tampered with."""
    try:
        found = proofs.proof_of(_reader(request).workspace, event)
    except proofs.Tampered as tampered:
        return text(f"{tampered}\n", status=409)
    if found is None:
        raise Http404("There is no such event, or it is not sealed yet.")
    return text(found)


@router.get("/ledger/consistency", auth=READERS, summary="That one tree grew out of another")
def read_consistency(request: HttpRequest, old: int, new: int) -> HttpResponse | dict[str, Any]:
    """`old` and `new` are sizes of signed heads; hashes in base64, as in RFC 9162, 2.1.4.
    409 if the stored tree has holes.
    """
    workspace = _reader(request).workspace
    head = proofs.newest_head(workspace)
    if head is None or not 0 < old <= new <= head.size:
        return text("old and new must be sizes of this log: 0 < old <= new\n", status=422)
    try:
        found = proofs.consistency(workspace, old, new)
    except proofs.Tampered as tampered:
        return text(f"{tampered}\n", status=409)
    return {"old": old, "new": new, "proof": [notes.base64_text(one) for one in found]}


def text(body: str, status: int = 200) -> HttpResponse:
    return HttpResponse(body, content_type=TEXT, status=status)


def _reader(request: HttpRequest) -> Caller:
    caller = caller_of(request)
    if caller.person is not None:
        require(caller.person, "view", caller.workspace)
    return caller


def _run(caller: Caller, run: str) -> Run:
    if caller.person is not None:
        require(caller.person, "view", caller.workspace)
    found = Run.objects.select_related("agent").filter(workspace=caller.workspace, run=run)
    if caller.agent is not None:
        found = found.filter(agent=caller.agent)
    row = found.first()
    if row is None:
        raise Http404("There is no such run, or it is not yours.")
    return row


def _reveals(caller: Caller, run: str, action: str = "") -> bool:
    """Whether payloads are shown; a person who is shown some is on the record."""
    if caller.person is None:
        return True
    told = {"run": run} | ({"action": action} if action else {})
    return disclosure.reveals(caller.person, caller.workspace, **told)
