"""The stage: what every story needs, and the tools that the scripted agents use."""

import smtplib
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email.message import EmailMessage
from typing import Any

import httpx
import psycopg
from psycopg import sql
from psycopg.rows import dict_row

import amends
from demo.places import Places

CALL_SECONDS_MAX = 10.0
MONDAY, FRIDAY = 0, 4
Row = dict[str, Any]


def next_week(weekday: int) -> date:
    """A day of the week to come (0: Monday), in UTC: what agents book always lies ahead."""
    today = datetime.now(UTC).date()
    return today + timedelta(days=7 - today.weekday() + weekday)


@dataclass(frozen=True)
class Stage:
    """Desks by agent, the outside systems, and the company's own database."""

    desks: dict[str, amends.Desk]
    where: Places
    database: str

    def outside(self) -> httpx.Client:
        return httpx.Client(timeout=CALL_SECONDS_MAX, trust_env=False)

    def read(self, table: str, row_id: str) -> Row | None:
        """A row of the company's database without its version, as a snapshot; None if absent."""
        query = sql.SQL("SELECT * FROM {} WHERE id = %s").format(sql.Identifier(table))
        with psycopg.connect(self.database, row_factory=dict_row) as database:
            found = database.execute(query, [row_id]).fetchone()
        return {k: v for k, v in found.items() if k != "version"} if found else None

    def write(self, table: str, row: Row) -> None:
        """Insert the row or change the one with its id; either raises the version."""
        names = list(row)
        query = sql.SQL(
            "INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT (id) DO UPDATE"
            " SET {changes}, version = {table}.version + 1"
        ).format(
            table=sql.Identifier(table),
            names=sql.SQL(", ").join(map(sql.Identifier, names)),
            values=sql.SQL(", ").join(sql.Placeholder() for _ in names),
            changes=sql.SQL(", ").join(
                sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in names
            ),
        )
        with psycopg.connect(self.database, autocommit=True) as database:
            database.execute(query, [row[name] for name in names])

    def charge(self, amount: int, card: str, *, key: str, customer: str) -> Row:
        """Charge a card; raises httpx.HTTPStatusError, of which a 504 tells nothing."""
        asked = {"amount": amount, "currency": "usd", "card": card, "customer": customer}
        return self._post(f"{self.where.payments}/charges", asked, key)

    def assign_licence(self, holder: str, *, key: str) -> Row:
        return self._post(f"{self.where.licences}/seats", {"holder": holder, "plan": "team"}, key)

    def _post(self, url: str, asked: Row, key: str) -> Row:
        with self.outside() as outside:
            answer = outside.post(url, json=asked, headers={"Idempotency-Key": key})
        answer.raise_for_status()
        found: Row = answer.json()
        return found

    def send_mail(self, to: str, subject: str, text: str) -> Row:
        """Send a mail; a refusal by the gateway raises `amends.NoEffect`, for nothing was sent."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = "agents@skyline.example", to, subject
        # Not make_msgid: one in a few of its long numbers reads like a card and would be masked.
        message["Message-ID"] = f"<{uuid.uuid4()}@skyline.example>"
        message.set_content(text)
        try:
            with smtplib.SMTP("127.0.0.1", self.where.smtp_port, timeout=CALL_SECONDS_MAX) as smtp:
                smtp.send_message(message)
        except smtplib.SMTPResponseException as refused:
            said = refused.smtp_error
            words = said.decode() if isinstance(said, bytes) else str(said)
            raise amends.NoEffect(words, retryable=True) from refused
        return {"to": to, "subject": subject, "message_id": message["Message-ID"]}

    def break_next(self, system: str, **fault: Any) -> None:
        """Tell an outside system to misbehave at its next call."""
        with self.outside() as outside:
            outside.post(f"{system}/faults", json=fault).raise_for_status()
