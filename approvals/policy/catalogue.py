"""The catalogue: what a workspace itself says of its tools, and how their calls are shown."""

from typing import Any

from approvals.policy import globs
from approvals.policy.document import Tool
from approvals.policy.fields import Form
from approvals.policy.problems import Path
from approvals.policy.words import CLASSES, RISKS

MANIFEST_FIELDS = ("kind", "title", "rows", "amount", "currency", "recipients")
MANIFEST_FACTS = frozenset({"tool", "args", "target", "targets"})
KINDS = ("row", "money", "mail", "http", "calendar")


def tools(form: Form, value: Any, path: Path) -> list[Tool]:
    found = []
    for glob, given in form.mapping(value, path).items():
        at = (*path, glob)
        if mistake := globs.mistake(glob):
            form.wrong(at, mistake)
        tool = form.mapping(given, at, ("class", "risk", "target", "title", "preview"))
        found.append(
            Tool(
                glob=glob,
                action_class=form.choice(tool.get("class"), (*at, "class"), CLASSES),
                risk=form.choice(tool.get("risk"), (*at, "risk"), RISKS),
                target=form.text(tool.get("target"), (*at, "target"), 120),
                title=form.text(tool.get("title"), (*at, "title")),
                preview=_manifest(form, tool.get("preview"), (*at, "preview")),
            )
        )
    return found


def _manifest(form: Form, value: Any, at: Path) -> dict[str, Any]:
    """How a call of the tool is shown: a kind, and CEL over `args`, `target`, `targets`, `tool`."""
    given = form.mapping(value, at, MANIFEST_FIELDS)
    found: dict[str, Any] = {
        name: form.expression(given[name], (*at, name), MANIFEST_FACTS)
        for name in ("title", "amount", "currency", "recipients")
        if name in given
    }
    rows = form.mapping(given.get("rows"), (*at, "rows"))
    found["rows"] = {
        form.text(label, (*at, "rows"), 120): form.expression(
            one, (*at, "rows", label), MANIFEST_FACTS
        )
        for label, one in rows.items()
    }
    if kind := form.choice(given.get("kind"), (*at, "kind"), KINDS):
        found["kind"] = kind
    return found if given else {}
