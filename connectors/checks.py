"""System checks: every connector that is offered keeps the form of the contract.

A fault in a package's connector is a warning: it must not stop the desk from undoing things
elsewhere.
"""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 - Django's name

from connectors.registry import BUILT_IN, registry


@register("connectors")
def connectors_are_whole(**_: Any) -> list[CheckMessage]:
    hint = "It is left out. Remove or mend its package; docs/connectors.md has the contract."
    return [
        Error(fault, hint=hint, id="connectors.E001")
        if fault.split(maxsplit=1)[0] in BUILT_IN
        else Warning(fault, hint=hint, id="connectors.W001")
        for fault in registry().faults
    ]
