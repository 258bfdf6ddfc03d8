"""`manage.py check --deploy`: whether what this deployment names is there, and does what we need.

Django's own checks read the settings. These go to every server that the environment names, within
seconds each, and say what is wrong with the variable that has to be changed. Nothing is written
but one short-lived key in the cache.
"""

import os
import re
import smtplib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import parseaddr
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis
from cryptography.fernet import Fernet
from django.conf import settings
from django.core import mail
from django.core.cache import cache
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from config import backups, celery, env, object_storage, pooling, providers, sealed
from connectors import manifest
from edge import sockets
from ledger import checks as ledger_checks
from ledger import rights
from workspaces import encryption
from workspaces.models import Team

TAG = "deployment"
POSTGRESQL_MIN = 150_000
CLOCK_SECONDS_MAX = 2.0
# Of each kind of secret, the newest and the oldest so many: a ring that lost a key shows at once.
SECRETS_TRIED = 500
BROKER_SECONDS_MAX = 5
# Of each web process beside its two pools: what threads take in, and the waiters' line.
CONNECTIONS_BESIDE_POOLS = 4
NAMED_MAX = 5
HOST = re.compile(r"\*|\.?[\w.-]+|\[[0-9A-Fa-f:.]+\]")
"""As ALLOWED_HOSTS takes them."""
SIGNING_KEY = re.compile(r"[1-9][0-9]*:[0-9a-f]{32}")
"""As *Settings › Signing keys* shows them."""

Check = Callable[..., list[CheckMessage]]


def deployed(check: Callable[[], Iterator[CheckMessage]]) -> Check:
    """Register a check that is asked with --deploy alone."""

    @register(TAG, deploy=True)
    def asked(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
        return list(check())

    return asked


def first_line(error: BaseException) -> str:
    """What a server or a library said, without the rest of its advice."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@deployed
def databases_answer() -> Iterator[CheckMessage]:
    """Both roles can log in, and what they reach is a PostgreSQL of our version, prepared."""
    urls = {"DATABASE_URL": settings.DATABASE_URL}
    if settings.DATABASE_OWNER_URL != settings.DATABASE_URL:
        urls["DATABASE_OWNER_URL"] = settings.DATABASE_OWNER_URL
    faults = [fault for name, url in urls.items() for fault in database_faults(name, url)]
    yield from faults
    if not faults:
        yield from owner_faults()
        yield from state_of_the_database()


WHERE = "SELECT system_identifier::text, current_database() FROM pg_control_system()"
OWNS = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('ledger_event')"


def owner_faults() -> Iterator[CheckMessage]:
    """Both roles reach one database, and the second owns its tables: else migrations, partitions
    and backups are those of another one, or nobody's.
    """
    here, there = settings.DATABASE_URL, settings.DATABASE_OWNER_URL
    if here == there:
        return
    try:
        with (
            psycopg.connect(sockets.postgres(here)) as desk,
            psycopg.connect(sockets.postgres(there)) as owner,
        ):
            same = desk.execute(WHERE).fetchall() == owner.execute(WHERE).fetchall()
            owns = owner.execute(OWNS).fetchall() in ([], [(True,)])
    except psycopg.Error as error:
        yield Error(f"DATABASE_OWNER_URL: {first_line(error)}", id="config.E002")
        return
    if not same:
        yield Error(
            "DATABASE_OWNER_URL leads to another database than DATABASE_URL.",
            hint="Migrations, partitions, retention and backups would be of that one.",
            id="config.E008",
        )
    elif not owns:
        yield Error(
            "The role of DATABASE_OWNER_URL does not own the tables.",
            hint="Name the role with which `manage.py prepare` made them.",
            id="config.E009",
        )


@deployed
def replica_answers() -> Iterator[CheckMessage]:
    """The standby that lists are read from is one, and of this desk's own database."""
    if not settings.REPLICA_URL:
        return
    own = "SELECT system_identifier::text FROM pg_control_system()"
    try:
        with connections["default"].cursor() as cursor:
            cursor.execute(own)
            [here] = cursor.fetchone()
        url = sockets.postgres(settings.REPLICA_URL)
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(f"SELECT pg_is_in_recovery(), ({own})").fetchall()[0]
    except (DatabaseError, psycopg.Error) as error:
        yield Error(
            f"AMENDS_REPLICA_URL: {first_line(error)}",
            hint="Lists are read from the primary until it answers.",
            id="config.E021",
        )
        return
    is_standby, there = row
    if there != here:
        yield Error(
            "AMENDS_REPLICA_URL leads to another database than DATABASE_URL.", id="config.E022"
        )
    elif not is_standby:
        yield Error(
            "AMENDS_REPLICA_URL leads to a server that is no standby: nothing is read from it.",
            hint="It may be the primary itself, or have been promoted.",
            id="config.E023",
        )


def database_faults(name: str, url: str) -> Iterator[CheckMessage]:
    try:
        pooling.check(url)
        with psycopg.connect(sockets.postgres(url), autocommit=True) as connection:
            version = connection.info.server_version
            row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
            offset = float(row.fetchall()[0][0]) - time.time()
    except pooling.UnfitDatabase as unfit:
        yield Error(str(unfit), id="config.E001")
        return
    except psycopg.Error as error:
        yield Error(
            f"{name}: {first_line(error)}",
            hint="The desk cannot log in there: host, port, role, password, database, sslmode.",
            id="config.E002",
        )
        return
    if version < POSTGRESQL_MIN:
        yield Error(
            f"{name} leads to PostgreSQL {version // 10_000}; the desk needs 15 or newer.",
            id="config.E003",
        )
    if abs(offset) > CLOCK_SECONDS_MAX:
        yield Error(
            f"The clock of this machine and that of {name} are {abs(offset):.0f} s apart.",
            hint="Leases, windows and codes of the second factor count on them. Run NTP on both.",
            id="config.E004",
        )


def state_of_the_database() -> Iterator[CheckMessage]:
    """What `prepare` makes is there, and the ledger refuses changes."""
    try:
        executor = MigrationExecutor(connections["default"])
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if missing:
            yield Error(
                f"The database of DATABASE_URL lacks {len(missing)} migrations of this version.",
                hint="Run `manage.py prepare`.",
                id="config.E005",
            )
            return
        yield from ledger_checks.missing_guards()
        yield from ledger_checks.not_durable()
        with connections["default"].cursor() as cursor:
            lacking = rights.lacking(cursor)
            cursor.execute("SELECT current_setting('max_connections')::int")
            room: int = cursor.fetchone()[0]
    except DatabaseError as error:
        yield Error(
            f"DATABASE_URL: {first_line(error)}",
            hint="Run `manage.py prepare`: it gives the role of DATABASE_URL its rights.",
            id="config.E006",
        )
        return
    if lacking:
        yield Error(
            "The role of DATABASE_URL lacks rights on"
            f" {', '.join(lacking[:NAMED_MAX])}{' …' if len(lacking) > NAMED_MAX else ''}.",
            hint="Run `manage.py prepare`: the role of DATABASE_OWNER_URL gives them.",
            id="config.E007",
        )
    processes = env.web_processes()
    each = settings.POOL_SIZE + settings.HOT_POOL_SIZE + CONNECTIONS_BESIDE_POOLS
    if room < processes * each and not settings.POOLER:
        yield Warning(
            f"PostgreSQL lets {room} sessions in (max_connections); the {processes} web processes"
            f" of this machine may want {processes * each}, and workers come on top.",
            hint="Raise max_connections, or lower AMENDS_POOL_SIZE or AMENDS_WEB_PROCESSES.",
            id="config.W001",
        )


@deployed
def cache_answers() -> Iterator[CheckMessage]:
    """REDIS_URL takes a key and gives it back, wakes whoever listens, and throws nothing away."""
    url = settings.REDIS_URL
    try:
        with redis.Redis.from_url(url, **sockets.redis(url, BROKER_SECONDS_MAX)) as client:
            client.ping()
            cache.set("amends.check", "well", timeout=10)
            kept = cache.get("amends.check")
            client.publish("amends.check", "")
            policy = eviction_policy(client)
    except (redis.RedisError, OSError, ValueError) as error:
        yield Error(
            f"REDIS_URL: {first_line(error)}",
            hint="Rates, live pages and waiting agents need it: host, port, password, TLS,"
            " and a user that may write and publish.",
            id="config.E010",
        )
        return
    if kept != "well":
        yield Error("REDIS_URL: what is written is not found again.", id="config.E011")
    if policy not in {"", "noeviction"}:
        yield Warning(
            f"REDIS_URL throws keys away when it is full (maxmemory-policy {policy}).",
            hint="Set maxmemory-policy to noeviction: hints to workers would go first.",
            id="config.W010",
        )


def eviction_policy(client: redis.Redis) -> str:
    """Empty where the server does not tell: hosted ones often refuse CONFIG."""
    try:
        found: Any = client.config_get("maxmemory-policy")
    except redis.ResponseError:
        return ""
    return str(found.get("maxmemory-policy", ""))


@deployed
def broker_answers() -> Iterator[CheckMessage]:
    """Celery's broker, asked as a worker would: another server than REDIS_URL's, perhaps."""
    if (fault := celery.broker_fault(BROKER_SECONDS_MAX)) is not None:
        name = "BROKER_URL" if settings.OWN_BROKER else "REDIS_URL, as the broker"
        yield Error(
            f"{name}: {fault}",
            hint="Decisions are committed all the same, and wait for the sweeper.",
            id="config.E020",
        )


@deployed
def keys_open_what_is_kept() -> Iterator[CheckMessage]:
    """Each key of the ring is one, and together they open what was encrypted with them."""
    for place, key in enumerate(settings.AMENDS_SECRET_KEYS, start=1):
        try:
            Fernet(key)
        except ValueError:
            yield Error(
                f"AMENDS_SECRET_KEYS: key {place} of {len(settings.AMENDS_SECRET_KEYS)} is none.",
                hint="A Fernet key is 32 bytes in URL-safe base64; docs/running.md makes one.",
                id="config.E030",
            )
            return
    try:
        closed = {one.words: cannot_be_opened(one) for one in sealed.COLUMNS}
    except DatabaseError:
        return  # another check says that the database is away, or not prepared
    for what, (tried, lost) in closed.items():
        if lost:
            yield Error(
                f"AMENDS_SECRET_KEYS opens {tried - lost} of {tried} {what} that were tried.",
                hint="Put the key back that was taken away, last in the list, then run"
                " `manage.py rotate_secrets`.",
                id="config.E031",
            )


def cannot_be_opened(one: sealed.SealedColumn) -> tuple[int, int]:
    """How many were tried, the newest and the oldest, and how many of them no key opens."""
    rows, lost = one.rows(), 0
    found = [
        *one.sealed(rows.order_by("pk")[:SECRETS_TRIED]),
        *one.sealed(rows.order_by("-pk")[:SECRETS_TRIED]),
    ]
    for kept in (once := dict(found)).values():
        try:
            encryption.open_sealed(kept)
        except encryption.CannotOpen:
            lost += 1
    return len(once), lost


@deployed
def mail_goes_out() -> Iterator[CheckMessage]:
    """The mail server lets us in. Nothing is sent."""
    if not os.environ.get("EMAIL_HOST"):
        yield Warning(
            "EMAIL_HOST is not set: the desk sends no mail.",
            hint="Nobody can prove an address or reset a password, and an approval counts only"
            " after `manage.py vouch` (docs/approvals.md).",
            id="config.W040",
        )
        return
    connection = mail.get_connection()
    try:
        connection.open()
    except smtplib.SMTPAuthenticationError as error:
        yield mail_fault("EMAIL_HOST_USER, EMAIL_HOST_PASSWORD", error)
    except (smtplib.SMTPNotSupportedError, ValueError) as error:
        yield mail_fault("EMAIL_USE_TLS", error)
    except (OSError, smtplib.SMTPException) as error:
        yield mail_fault(f"EMAIL_HOST, EMAIL_PORT ({settings.EMAIL_PORT})", error)
    finally:
        connection.close()
    _, sender = parseaddr(settings.DEFAULT_FROM_EMAIL)
    _, at, host = sender.rpartition("@")
    if not at or host in {"", "localhost"}:
        yield Warning(
            f"AMENDS_FROM: mail would come from {sender or 'nobody'}, which few servers take.",
            hint="Name an address of yours: AMENDS_FROM='Amends <desk@example.com>'.",
            id="config.W041",
        )


def mail_fault(names: str, error: Exception) -> CheckMessage:
    return Error(f"{names}: {first_line(error)}", id="config.E040")


@deployed
def folders_are_there() -> Iterator[CheckMessage]:
    """Static files were collected, and signed heads and backups can be kept."""
    collected = Path(settings.STATIC_ROOT) / "staticfiles.json"
    if settings.HASHED_STATIC and not collected.is_file():
        yield Error(
            f"AMENDS_STATIC_ROOT: no collected files in {settings.STATIC_ROOT}.",
            hint="Run `manage.py prepare` where this process will run.",
            id="config.E050",
        )
    kept_in = {"AMENDS_HEADS_FOLDER": settings.AMENDS_HEADS_FOLDER}
    if not (to := os.environ.get("AMENDS_BACKUP_TO", "")).startswith(object_storage.SCHEME):
        kept_in["AMENDS_BACKUP_TO"] = to
    for name, folder in kept_in.items():
        if not folder:
            continue
        if disk := backups.unmounted(Path(folder)):
            yield Error(
                f"{name}: {folder} would be kept on {disk}, which /etc/fstab names and which is not"
                " mounted.",
                hint=f"`mount {disk}`: until then it would fill the disk below, where nobody looks"
                " for it.",
                id="config.E054",
            )
            continue
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            yield Error(
                f"{name}: nothing can be kept in {folder}: {error.strerror}.", id="config.E051"
            )


@deployed
def backups_can_be_read() -> Iterator[CheckMessage]:
    """Each public key of AMENDS_BACKUP_RECIPIENTS is one."""
    if not settings.AMENDS_BACKUP_RECIPIENTS:
        yield Warning(
            "AMENDS_BACKUP_RECIPIENTS is not set: `manage.py backup` makes none.",
            hint="Make a key where backups will be read (`manage.py backup_key FILE`).",
            id="config.W052",
        )
        return
    try:
        backups.recipients(settings.AMENDS_BACKUP_RECIPIENTS)
    except backups.CannotBackUp as fault:
        yield Error(str(fault), id="config.E052")
    if not (program := backups.programs() / "pg_dump").is_file():
        yield Error(f"AMENDS_POSTGRES_PROGRAMS: there is no {program}.", id="config.E053")


@deployed
def provider_answers() -> Iterator[CheckMessage]:
    """The company's identity provider is who it is said to be, and its groups have their teams."""
    if not settings.OIDC_URL:
        return
    try:
        document = httpx.get(
            f"{settings.OIDC_URL}/.well-known/openid-configuration", timeout=BROKER_SECONDS_MAX
        )
        issuer = document.raise_for_status().json().get("issuer", "")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        yield Error(f"AMENDS_OIDC_URL: {first_line(error)}", id="config.E070")
    else:
        if issuer.rstrip("/") != settings.OIDC_URL:
            yield Error(
                f"AMENDS_OIDC_URL is {settings.OIDC_URL}; who answers there calls itself {issuer}.",
                id="config.E071",
            )
    if not (settings.OIDC_CLIENT_ID and settings.OIDC_SECRET):
        yield Error("AMENDS_OIDC_CLIENT_ID and AMENDS_OIDC_SECRET are not set.", id="config.E072")
    try:
        named = providers.places()
        lacking = [
            f"{one.workspace}/{one.team}"
            for one in named
            if not Team.objects.filter(workspace__slug=one.workspace, name=one.team).exists()
        ]
    except ImproperlyConfigured as unreadable:
        yield Error(str(unreadable), id="config.E073")
    except DatabaseError:
        return  # another check says that the database is away, or not prepared
    else:
        if lacking or not named:
            yield Warning(
                f"AMENDS_OIDC_TEAMS: there is no team {', '.join(lacking) or 'for any group'}.",
                hint="Nobody comes in by such a group.",
                id="config.W074",
            )


@deployed
def manifests_are_read() -> Iterator[CheckMessage]:
    """Own manifests are where AMENDS_CONNECTOR_MANIFESTS says, and can be read with the others."""
    if gone := [one for one in settings.CONNECTOR_MANIFESTS if not Path(one).is_dir()]:
        words = f"AMENDS_CONNECTOR_MANIFESTS: {', '.join(gone)} is no folder."
        yield Error(words, id="config.E055")
    try:
        manifest.manifests()
    except (OSError, ValueError) as wrong:
        yield Error(f"A manifest cannot be read: {first_line(wrong)}", id="config.E056")


@deployed
def people_reach_it() -> Iterator[CheckMessage]:
    """AMENDS_URL is what a browser may be sent to, and who signs there is named as they sign."""
    if settings.DEMO:
        yield Warning(
            "AMENDS_DEMO is on: the demo's people, whose passwords are known, can log in.",
            id="config.W060",
        )
    if wrong := [host for host in env.words("AMENDS_HOSTS") if not HOST.fullmatch(host)]:
        yield Error(
            f"AMENDS_HOSTS: {', '.join(wrong)} is no name of a host.",
            hint="Names alone, without https:// and without a port.",
            id="config.E063",
        )
    named = settings.AMENDS_SIGNING_KEYS
    if wrong := [key for key in named if not SIGNING_KEY.fullmatch(key)]:
        yield Error(
            f"AMENDS_SIGNING_KEYS: {', '.join(wrong[:NAMED_MAX])} names no key, and no key signs.",
            hint="A person's number and a fingerprint, as Settings › Signing keys shows them.",
            id="config.E064",
        )
    if not settings.SECURE:
        yield Warning(
            f"AMENDS_URL is {settings.AMENDS_URL}: passwords and keys go over the line in clear.",
            hint="Put a proxy with TLS in front, and let AMENDS_URL start with https://.",
            id="config.W061",
        )
    elif not settings.AMENDS_TRUST_PROXY:
        yield Warning(
            "AMENDS_URL starts with https://, and AMENDS_TRUST_PROXY is not set.",
            hint="`python -m config.web` speaks plain HTTP: behind a proxy on another machine each"
            " page would be redirected to itself for ever. Set AMENDS_TRUST_PROXY=1 where the proxy"
            " sets X-Forwarded-Proto itself.",
            id="config.W062",
        )
