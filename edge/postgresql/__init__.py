"""Django's own backend for PostgreSQL, but for what becomes of a pool whose sessions were cut."""
