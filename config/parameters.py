"""What the API's page says of the parameters: names that people read, and what each means.

Routes name what they take as their code does (`pk`, `id`). On the page a number in a path is called
what it is the number of; the wire knows no names of these, so that nothing else changes.
"""

import re
from typing import Any

OF_FOLDER = {
    "approvals": "approval", "cases": "case", "corrections": "correction", "plans": "plan",
    "residues": "residue", "instances": "receiver", "requests": "request", "grants": "grant",
}  # fmt: skip
"""What a number below a folder of the API is the number of."""
UNNAMED = frozenset({"pk", "id"})
ABOUT = {
    "action": "What the agent calls the action within its run, such as act_1",
    "approval": "The number of the approval, as `begin` answers it and its card has it",
    "case": "The number of the case, as lists and the address of its page have it",
    "correction": "The number of the correction, as its case tells it",
    "event": "The id by which the event was sent, or which the desk gave to its own",
    "grant": "The number of the bounded grant, as the list tells it",
    "plan": "The number of the plan, as its case tells it",
    "receiver": "The id that was answered when the receiver was registered",
    "request": "The id that was answered when it was asked for",
    "residue": "The number of what was left over, as the list tells it",
    "run": "What the agent calls its run",
    "sha256": "The SHA-256 of the bytes, in hexadecimal",
}
"""Of parameters that mean the same wherever they stand."""
HERE = {
    ("/api/v1/lists/{name}", "name"): "What the list is called, as in the policy",
    ("/api/v1/approvals/{approval}/documents/{name}", "name"): "requested, decided or resolved",
    ("/api/v1/ledger/entries", "since"): "The number of the first entry that is wanted",
    ("/api/v1/ledger/entries", "origin"): "Of which log: one that was restored has another",
    ("/api/v1/ledger/consistency", "old"): "The size of the older signed head",
    ("/api/v1/ledger/consistency", "new"): "The size of the newer signed head",
    ("/api/v1/cases", "order"): "How they are sorted, as the queue offers it",
    ("/api/v1/cases", "everything"): "Also those before the recent ones to which a search is cut",
    ("/api/v1/cases/{case}/preview", "verb"): "compensate, resume or close",
    ("/api/v1/cases/{case}/preview", "checkpoint"): "The checkpoint up to which, by its number",
    ("/api/v1/cases/{case}/preview", "choice"): (
        "For targets that have drifted: effect:how, with commas between; rebase, override or skip"
    ),
    ("/api/v1/residues", "state"): "open, done or all",
    ("", "q"): "A query, as in the field above the list",
    ("", "after"): "Where the answer before ended",
    ("", "limit"): "How many at most",
}
"""Of others, by the path and their name; without a path, wherever nothing else is said."""


def named(schema: dict[str, Any]) -> None:
    """Rename and describe every parameter of an OpenAPI document, in place. Raises LookupError of
    one of which nothing is said, so that no route is forgotten.
    """
    for path in list(schema["paths"]):
        operations = schema["paths"].pop(path)
        names = {found[2]: OF_FOLDER[found[1]] for found in _numbers(path)}
        known = path
        for code, people in names.items():
            known = known.replace(f"{{{code}}}", f"{{{people}}}")
        schema["paths"][known] = operations
        for operation in operations.values():
            for one in operation.get("parameters", ()) if isinstance(operation, dict) else ():
                if one["in"] == "path":
                    one["name"] = names.get(one["name"], one["name"])
                one["description"] = one.get("description") or _about(known, one["name"])


def _numbers(path: str) -> list[re.Match[str]]:
    return [found for found in re.finditer(r"/([\w-]+)/\{(\w+)\}", path) if found[2] in UNNAMED]


def _about(path: str, name: str) -> str:
    words = HERE.get((path, name)) or HERE.get(("", name)) or ABOUT.get(name)
    if words is None:
        raise LookupError(f"{path}: say in config/parameters.py what “{name}” is")
    return words
