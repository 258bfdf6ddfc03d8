"""Approvals over HTTP, to read: each as documents that programs of others understand."""

from typing import Any

from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Router

from approvals.interchange import aais
from approvals.models import Approval
from ledger import disclosure
from workspaces.access import require
from workspaces.keys import ByPerson, caller_of

router = Router(auth=ByPerson(), tags=["approvals"])


@router.get("/approvals/{int:pk}/documents", summary="The names of its documents, the newest last")
def list_documents(request: HttpRequest, pk: int) -> dict[str, Any]:
    return {"documents": aais.names(_approval(request, pk))}


@router.get("/approvals/{int:pk}/documents/{name}", summary="One of them (AAIS 1.0)")
def read_document(request: HttpRequest, pk: int, name: str) -> dict[str, Any]:
    """`requested`, `decided` or `resolved`. Arguments are for whoever holds `view_sensitive`; each
    reveal is on the record.
    """
    approval = _approval(request, pk)
    caller = caller_of(request)
    if name not in aais.names(approval):
        raise Http404("There is no such document of it by now.")
    person = caller.person
    sees = person is not None and disclosure.reveals(
        person, caller.workspace, approval=approval.pk, run=approval.run_ref
    )
    return aais.of(approval, name, sees=sees)


def _approval(request: HttpRequest, pk: int) -> Approval:
    caller = caller_of(request)
    if caller.person is not None:
        require(caller.person, "view", caller.workspace)
    rows = Approval.objects.select_related("workspace", "agent", "closed_by")
    return get_object_or_404(rows, workspace=caller.workspace, pk=pk)
