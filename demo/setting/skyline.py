"""The demo's workspace: Skyline Airways, its people, agents, connections and policy."""

import secrets
import time
from pathlib import Path
from typing import Any

import psycopg
from allauth.account.models import EmailAddress
from django.db import close_old_connections, transaction
from django.db.models.functions import Now

from approvals import named_lists, signing_keys, versions
from approvals.gate import bounded_grants
from approvals.models import Approval, ApprovalState, PolicyVersion
from connectors import connections
from connectors.models import Connection
from demo import outside, places
from demo.stories import calls, onboarding, trip
from workspaces import entrance, keys, teams
from workspaces.access import Codename
from workspaces.models import Agent, APIKey, Membership, User, Workspace

# The company's own database in the demo: staff, tickets with their notes, and bookings.

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
CREATE TABLE IF NOT EXISTS vouchers (
    id text PRIMARY KEY, customer text, amount integer, state text,
    version integer NOT NULL DEFAULT 1);
CREATE TABLE IF NOT EXISTS seats (
    id text PRIMARY KEY, state text, held_by text, version integer NOT NULL DEFAULT 1);
"""
TICKETS = [
    ("T-182", "Invoice shows the old address", "Nora Lindt", "normal"),
    ("T-204", "Locked out before the board meeting", "Amara Obi", "normal"),
    ("T-219", "Refund has not arrived", "Jonas Weber", "normal"),
    ("T-233", "Cannot change the seat", "Mei Tanaka", "low"),
    ("T-240", "Asks for a copy of the contract", "Sofia Rossi", "low"),
    *((f"T-{number}", *what, "normal") for number, *what in calls.MIXED_UP),
]


def create(database: psycopg.Connection) -> None:
    """Make the tables and the tickets; what exists is kept."""
    database.execute(DDL)
    for row in TICKETS:
        database.execute(
            "INSERT INTO tickets (id, subject, customer, priority, state, updated_by)"
            " VALUES (%s, %s, %s, %s, 'open', 'support') ON CONFLICT DO NOTHING",
            row,
        )


POLICY = Path(__file__).parents[1] / "policies" / "skyline.yaml"
SLUG = "skyline"
# Address, name, what the greeting says of them, teams.
PEOPLE = [
    (
        "ada@skyline.example",
        "Ada Nilsson",
        "administrator: people, keys and policy",
        ["administrators"],
    ),
    (
        "noor@skyline.example",
        "Noor Haddad",
        "administrator on duty at night",
        ["administrators"],
    ),
    ("rina@skyline.example", "Rina Okafor", "operator: works the recovery queue", ["operators"]),
    (
        "moreau@skyline.example",
        "Jeanne Moreau",
        "approver of finance: decides about money",
        ["finance"],
    ),
    ("lindqvist@skyline.example", "Tor Lindqvist", "approver of the leads", ["leads"]),
    ("vik@skyline.example", "Vik Petrov", "viewer: sees, and decides nothing", ["viewers"]),
]
ADA = PEOPLE[0][0]
RINA = "rina@skyline.example"
STRANGER = ("dev@harbor.example", "Dev Anand")
MORE_TEAMS: dict[str, tuple[Codename, ...]] = {
    "finance": ("view", "view_sensitive", "approve"),
    "leads": ("view", "view_sensitive", "approve"),
}
AGENTS = {
    onboarding.AGENT: "Onboards new colleagues",
    calls.TRIAGE: "Sorts and raises tickets",
    trip.AGENT: "Books trips",
    calls.CLERK: "Sends invoices",
    calls.PAYER: "Pays bills",
    calls.JANITOR: "Tidies up repositories",
    calls.AGENT: "Makes up for delays with vouchers",
}


@transaction.atomic
def prepare() -> dict[str, str]:
    """Make what is missing; the log-ins by address. Safe to repeat."""
    password = places.SharedFacts().read().get("password") or secrets.token_urlsafe(9)
    places.SharedFacts().write(password=password)
    ada = person(ADA, PEOPLE[0][1], password)
    workspace = Workspace.objects.filter(slug=SLUG).first() or entrance.open_workspace(
        "Skyline Airways", SLUG, by=ada
    )
    for address, name, *_ in PEOPLE:
        person(address, name, password)
    bring_in(workspace, ada)
    connect(workspace, ada)
    list_payees(workspace, ada)
    activate(workspace, ada)
    key_agents(workspace, ada)
    stranger(password)
    return dict.fromkeys([address for address, *_ in PEOPLE], password)


def person(address: str, name: str, password: str) -> User:
    found = User.objects.filter(email=address).first()
    if found is None:
        found = User.objects.create_user(address, password, name=name)
        EmailAddress.objects.create(user=found, email=address, verified=True, primary=True)
    return found


def bring_in(workspace: Workspace, ada: User) -> None:
    """Those of the demo's people who have an account, into their teams, which are made."""
    for name, codenames in MORE_TEAMS.items():
        if not workspace.teams.filter(name=name).exists():
            teams.create(workspace, name, by=ada, may=codenames)
    for address, _, _, names in PEOPLE:
        somebody = User.objects.filter(email=address).first()
        if somebody is None:
            continue
        for team in workspace.teams.filter(name__in=names).exclude(group__user=somebody):
            # To approve what Ada asks today, they do not wait for the end of a probation. Whom
            # visitors of the demo bring in does.
            with transaction.atomic():
                teams.add(team, somebody, by=ada)
                fresh = Membership.objects.filter(workspace=workspace, team=team, person=somebody)
                fresh.update(vouched_at=Now())


def stranger(password: str) -> None:
    """A second workspace that nobody of the first may see."""
    dev = person(*STRANGER, password)
    if not Workspace.objects.filter(slug="harbor").exists():
        entrance.open_workspace("Harbor Clinic", "harbor", by=dev)


SIGNED = "  signedFrom: CRITICAL\n"
"""Each yes to what is critical is signed by the person's own key, where a browser can do that."""


def activate(workspace: Workspace, ada: User) -> None:
    if PolicyVersion.objects.filter(workspace=workspace, note__startswith="The demo").exists():
        return
    document, why_not = POLICY.read_text(encoding="utf-8"), signing_keys.unavailable()
    note = (
        f"The demo’s rules. Nothing is signed here: {why_not}." if why_not else "The demo’s rules"
    )
    signed = "" if why_not else SIGNED
    saved = versions.save(workspace, document + signed, by=ada, note=note)
    versions.activate(saved, by=ada)


def list_payees(workspace: Workspace, ada: User) -> None:
    """Whom the bill payer may pay small sums without asking: a named list, which a rule asks."""
    payees = named_lists.create(workspace, "payees", "iban")
    known = [named_lists.NewEntry(iban, name) for name, iban in calls.PAYEES.items()]
    named_lists.change(payees, by=ada, add=known, note="Whom we have paid for years")


def key_agents(workspace: Workspace, ada: User) -> None:
    kept = places.SharedFacts().read().get("keys", {})
    rina = User.objects.get(email=RINA)
    for name, description in AGENTS.items():
        owner = rina if name == calls.PAYER else ada  # the night's two may then decide about it
        agent, _ = Agent.objects.get_or_create(
            workspace=workspace, name=name, defaults={"description": description, "owner": owner}
        )
        if name not in kept or not APIKey.objects.filter(agent=agent, revoked_at=None).exists():
            _, kept[name] = keys.create_key(agent, by=ada, name="demo", trusted_runtime=True)
    places.SharedFacts().write(keys=kept)


def connect(workspace: Workspace, ada: User) -> None:
    """The company's database, the two services, the mail gateway and the calendar."""
    where, secret = places.places(), {"secret": places.twins_secret()}
    key = ["id"]
    note = {"table": "ticket_notes", "key": ["ticket"], "text": "text",
            "fixed": {"author": "Amends"}}  # fmt: skip
    rows = {
        "employee": {"table": "staff", "key": key, "version": "version"},
        "ticket": {"table": "tickets", "key": key, "version": "version", "note": note},
        "booking": {"table": "bookings", "key": key, "version": "version"},
        "voucher": {"table": "vouchers", "key": key, "version": "version"},
        "seat": {"table": "seats", "key": key, "version": "version"},
    }
    login = places.outside_login()
    one = Connector(workspace, ada)
    one.make("company", "sql", {**places.outside_settings(), "tables": rows}, login, login)
    refund = {"title": "Refund {money} to card ending {card}", "kind": "money",
              "amount": "amount", "currency": "currency",
              "leaves": {"status": "refunded"}}  # fmt: skip
    release = {"title": "Release {target}, held by {holder}", "leaves": {"state": "released"}}
    for name, url, operation, told in (
        ("payments", where.payments, "refund", refund),
        ("licences", where.licences, "release_licence", release),
    ):
        settings = {"url": f"{url}/amends", "operations": {operation: told}}
        record = {"payments": "charges", "licences": "seats"}[name]
        one.make(name, "webhook", settings, secret, secret, link=f"{url}/{record}/{{id}}")
    find = {"find": {"title": "Find the charge of {target}", "observes": False}}
    search = {"url": f"{where.payments}/search", "operations": find}
    charge = f"{where.payments}/charges/{{id}}"
    one.make("charges", "webhook", search, secret, secret, link=charge)
    mail = {"host": "127.0.0.1", "port": where.smtp_port, "tls": "none",
            "sender": "Skyline Airways <care@skyline.example>",
            "look_up": f"{where.mailbox}/messages"}  # fmt: skip
    one.make("mail", "smtp", mail, {}, {})
    login = {"user": outside.OWNER, "password": outside.OWNER}
    one.make("calendar", "caldav", {"url": where.calendar + outside.CALENDAR}, login, login)


class Connector:
    """Makes a connection with both credentials, unless it is there; ports may have moved."""

    def __init__(self, workspace: Workspace, by: User) -> None:
        self.workspace, self.by = workspace, by

    def make(
        self,
        name: str,
        connector: str,
        settings: dict[str, Any],
        observe: dict[str, Any],
        compensate: dict[str, Any],
        *,
        link: str = "",
    ) -> None:
        found = Connection.objects.filter(workspace=self.workspace, name=name).first()
        if found is None:
            found = connections.create(self.workspace, name, connector, settings, by=self.by)
        if (found.settings, found.link) != (settings, link):
            connections.update(found, settings, by=self.by, revision=found.revision, link=link)
        if found.observe_secret is None:  # another port is another server
            connections.set_secret(found, "observe", observe, by=self.by)
            connections.set_secret(found, "compensate", compensate, by=self.by)


def make_tables() -> None:
    places.make_outside_database()
    with psycopg.connect(places.outside_url(), autocommit=True) as database:
        create(database)


# A scripted approver, for what a newcomer should find under way: it says so in its reason.

WAIT_SECONDS_MAX = 60.0
REASON = "Scripted by the demo: vouchers after a long delay are usual"
TERMS = {"uses": "12", "hours": "48", "each": "7500", "sum": "60000", "target": "any"}


def allow_more(slug: str, tool: str, by: str) -> bool:
    """Wait until a call of this tool is asked about, and let it and the next ones like it pass."""
    person, end = User.objects.get(email__startswith=f"{by}@"), time.monotonic() + WAIT_SECONDS_MAX
    waiting = Approval.objects.filter(workspace__slug=slug, state=ApprovalState.WAITING)
    while time.monotonic() < end:
        asked = waiting.filter(calls__0__operation=tool).order_by("pk").first()
        if asked is not None:
            bounded_grants.approve_with_more(
                asked, by=person, seen=asked.digest, typed=TERMS, reason=REASON
            )
            close_old_connections()
            return True
        time.sleep(0.3)
    return False
