"""What stands on the stage before the agents come: workspaces, people, connections, policies."""
