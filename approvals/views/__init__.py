"""Pages of approvals and policy."""
