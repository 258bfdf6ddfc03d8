"""What a browser would send of the form that a connection's page shows."""

from typing import Any

from connectors import registry
from connectors.schema_forms import SchemaForm


def sent(connector: str, settings: dict[str, Any], prefix: str = "settings") -> dict[str, Any]:
    """Each field of the settings' form with what stands in it, unchecked boxes left out."""
    shown = SchemaForm(
        schema=registry.get(connector).settings_schema, given=settings, prefix=prefix
    )
    found = {field.html_name: field.field.prepare_value(field.value()) for field in shown}
    return {
        name: "on" if value is True else value
        for name, value in found.items()
        if value is not None and value is not False
    }
