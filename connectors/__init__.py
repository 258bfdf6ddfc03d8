"""Connectors: how the desk reaches outside systems. Knows nothing of plans or approvals."""
