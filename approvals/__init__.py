"""Approvals: policy, the gate for agents, and the questions put to people."""
