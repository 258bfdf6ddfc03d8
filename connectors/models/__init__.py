"""Connections, the calls made over them, and the channels that people are told by."""

from connectors.models.channels import Channel, Delivery
from connectors.models.connections import CallLog, Connection, ConnectionVersion

__all__ = ["CallLog", "Channel", "Connection", "ConnectionVersion", "Delivery"]
