"""The embedded default: a real PostgreSQL and a real Valkey from wheels, kept below `.local/`."""
