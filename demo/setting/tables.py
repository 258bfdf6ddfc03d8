"""The company's own database in the demo: staff, tickets with their notes, and bookings."""

import psycopg

DDL = """
CREATE TABLE IF NOT EXISTS staff (
    id text PRIMARY KEY, name text NOT NULL, role text, starts_on text, state text,
    version integer NOT NULL DEFAULT 1);
CREATE TABLE IF NOT EXISTS tickets (
    id text PRIMARY KEY, subject text NOT NULL, customer text, priority text, state text,
    updated_by text, version integer NOT NULL DEFAULT 1);
CREATE TABLE IF NOT EXISTS ticket_notes (
    id bigserial PRIMARY KEY, ticket text NOT NULL, author text NOT NULL, text text NOT NULL,
    at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS bookings (
    id text PRIMARY KEY, traveller text, flight text, leaves_on text, state text,
    version integer NOT NULL DEFAULT 1);
"""
TICKETS = [
    ("T-182", "Invoice shows the old address", "Nora Lindt", "normal"),
    ("T-204", "Locked out before the board meeting", "Amara Obi", "normal"),
    ("T-219", "Refund has not arrived", "Jonas Weber", "normal"),
    ("T-233", "Cannot change the seat", "Mei Tanaka", "low"),
    ("T-240", "Asks for a copy of the contract", "Sofia Rossi", "low"),
]


def create(database: psycopg.Connection) -> None:
    """Make the tables and the tickets; what exists is kept."""
    database.execute(DDL)
    for ticket in TICKETS:
        database.execute(
            "INSERT INTO tickets (id, subject, customer, priority, state, updated_by)"
            " VALUES (%s, %s, %s, %s, 'open', 'support') ON CONFLICT DO NOTHING",
            ticket,
        )
