"""Workspaces: who works here, what they may, and the secrets they keep. The ground floor."""
