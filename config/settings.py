"""Settings: safe for production by default, everything that differs comes from the environment.

AMENDS_URL decides about transport: under https:// cookies are Secure, plain requests are redirected
and HSTS is sent. Plain http:// is what `make up` uses, on this machine only.
"""

import os
from typing import Any
from urllib.parse import urlsplit

from config import env
from config.local.places import ROOT, local_home
from edge import sockets

DEBUG = env.claim("AMENDS_DEBUG", default=False)
# Which kind of process this is: web (pooled connections), worker, scheduler, sweeper or command.
PROCESS = env.text("AMENDS_PROCESS", "command")

# Where people reach the desk; links in mails start with it.
AMENDS_URL = env.desk_url()
SECURE = AMENDS_URL.startswith("https://")
ALLOWED_HOSTS = [str(urlsplit(AMENDS_URL).hostname), *env.words("AMENDS_HOSTS")]
if not SECURE:
    ALLOWED_HOSTS += ["localhost", "127.0.0.1", "[::1]"]

SECRET_KEY = env.secret("DJANGO_SECRET_KEY")
SECRET_KEY_FALLBACKS = env.words("DJANGO_SECRET_KEY_FALLBACKS")
# Keys of encrypted fields: the first encrypts, all decrypt, so a key is rotated by putting a new
# one first.
AMENDS_SECRET_KEYS = [key.strip() for key in env.secret("AMENDS_SECRET_KEYS").split(",")]
AMENDS_METRICS_TOKEN = (
    env.secret("AMENDS_METRICS_TOKEN") if env.embedded() else env.text("AMENDS_METRICS_TOKEN", "")
)

FLOORS = ("workspaces", "ledger", "connectors", "approvals", "recovery")
"""Our own apps, each of which imports those before it."""

INSTALLED_APPS = [
    *FLOORS,
    "config.apps.ProjectConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "config.apps.CollectedFilesConfig",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "guardian",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.mfa",
    "allauth.usersessions",
    "csp",
    "template_partials",
    "django_htmx",
    "ninja",
]

# Everything here runs in the event loop or is cheap; static files are served before Django
# (config/edge.py), because a middleware that is sync only would hold one thread for every waiting
# request.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "config.middleware.NoStore",
    "config.middleware.BackToThePage",
    "config.middleware.UpToThePage",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "config.middleware.FirstWayIn",
    "allauth.usersessions.middleware.UserSessionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "workspaces.pages.by_their_clock",
    "workspaces.pages.looking_up_once",
    "config.middleware.disclosing",
]

# The demo brings commands of its own; nothing else knows of it. AMENDS_DEMO loads and runs it.
DEMO = env.claim("AMENDS_DEMO", default=False)
if (DEMO or env.embedded()) and (ROOT / "demo" / "__init__.py").exists():
    INSTALLED_APPS.append("demo")

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "config.context.desk",
                *(["demo.guide.context"] if DEMO else []),
            ],
        },
    }
]
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"
INSTALLED_APPS.append("django.forms")  # its templates, which the renderer above may override

# Where the sealer remembers the last head of each log outside the database, so that a database that
# went back is noticed. Empty: only in memory.
AMENDS_HEADS_FOLDER = env.text(
    "AMENDS_HEADS_FOLDER", str(local_home() / "heads") if env.embedded() else ""
)

# From which risk up each yes is signed by the person's own key, in every workspace: who owns the
# database can change a policy, and cannot change this. Empty: where a policy says so (signedFrom).
AMENDS_SIGNED_FROM = env.choice("AMENDS_SIGNED_FROM", "", "low", "medium", "high", "critical")

# Which first keys count, as the page of signing keys shows them (`person:fingerprint`): who owns
# the database can set a password and put a key on record, and cannot change this. Empty: any.
AMENDS_SIGNING_KEYS = env.words("AMENDS_SIGNING_KEYS")

# --- Database -------------------------------------------------------------------------------------

STATEMENT_MILLISECONDS_MAX = {"web": 30_000}.get(PROCESS, 0)
# Whoever waits for a row that somebody forgot in an open transaction gives up, and comes again.
LOCK_MILLISECONDS_MAX = {"web": 10_000, "worker": 5_000, "sweeper": 5_000}.get(PROCESS, 0)
# Whoever is gone in the middle of a transaction, without a word, keeps its rows for so long.
IDLE_IN_TRANSACTION_SECONDS_MAX = {"web": 15, "worker": 15, "sweeper": 15}.get(PROCESS, 120)
SESSION_OPTIONS = sockets.session_options(IDLE_IN_TRANSACTION_SECONDS_MAX)


# DATABASE_URL leads through PgBouncer or the like, which lends each transaction any session: its
# sessions have the time limits (config/pooling.py looks), and keep no cursor and nothing prepared.
POOLER = env.claim("AMENDS_POOLER", default=False)
# What the gate and the engine look at is prepared, for planning it costs more than carrying it out;
# Django's own statements never are.
PREPARE_AFTER = env.number("AMENDS_PREPARE_AFTER", 0 if POOLER else 2) or None


def database(name: str, url: str, *, pooler: bool = False) -> dict[str, Any]:
    entry = env.database(name, url)
    entry["DISABLE_SERVER_SIDE_CURSORS"] = pooler
    if PROCESS == "web":
        # Celery's Django fix-up closes connections around every task and would close a pool with
        # them: workers keep one plain connection each. `reconnect_timeout` as in edge/pools.py.
        pool = {"min_size": 1, "max_size": POOL_SIZE, "timeout": 10, "reconnect_timeout": 5}
        entry["OPTIONS"]["pool"] = pool
        entry["CONN_HEALTH_CHECKS"] = False  # edge/postgresql looks, and lets all go at once
    else:
        entry["CONN_MAX_AGE"] = None
    entry["OPTIONS"]["prepare_threshold"] = PREPARE_AFTER
    if pooler:
        return entry
    given = entry["OPTIONS"].get("options", "")
    if PROCESS == "worker":
        # What is prepared is by keys alone, and its plan never changes: planning it each time
        # costs more than carrying it out.
        given += " -c plan_cache_mode=force_generic_plan"
    entry["OPTIONS"]["options"] = (
        f"{given} -c statement_timeout={STATEMENT_MILLISECONDS_MAX}"
        f" -c lock_timeout={LOCK_MILLISECONDS_MAX} {SESSION_OPTIONS}"
    )
    return entry


POOL_SIZE = env.number("AMENDS_POOL_SIZE", 20, at_least=1)
DATABASES = {"default": database("DATABASE_URL", env.database_url(), pooler=POOLER)}
# The role that owns the tables: migrations, partitions, retention, erasure. One may be both.
DATABASE_OWNER_URL = env.owner_url()
if env.database_url() != DATABASE_OWNER_URL:
    owner = database("DATABASE_OWNER_URL", DATABASE_OWNER_URL)
    DATABASES["owner"] = owner | {"TEST": {"MIRROR": "default"}}
DATABASE_URL = env.database_url()
# A standby that lists and insights are read from (workspaces/replica.py).
REPLICA_URL = env.text("AMENDS_REPLICA_URL", "")
if REPLICA_URL:
    DATABASES["replica"] = database("AMENDS_REPLICA_URL", REPLICA_URL, pooler=POOLER)
    DATABASE_ROUTERS = ["workspaces.replica.Router"]
# age public keys (`age1…`, `ssh-ed25519 …`) to which backups are encrypted, divided by commas.
AMENDS_BACKUP_RECIPIENTS = env.words("AMENDS_BACKUP_RECIPIENTS")
# A folder with pg_dump and pg_restore of the server's version or newer; empty: the wheel's own.
AMENDS_POSTGRES_PROGRAMS = env.text("AMENDS_POSTGRES_PROGRAMS", "")
REDIS_URL = env.redis_url()
BROKER_URL = env.broker_url()
OWN_BROKER = bool(os.environ.get("BROKER_URL"))  # another server than REDIS_URL's
# A message whose worker died is given out again after this time: longer than any chain that one
# task runs, or copies are about (which do nothing, and cost a look).
REDELIVER_SECONDS = env.number("AMENDS_REDELIVER_SECONDS", 600)
# Connections of the edge (config/edge.py), which has a pool of its own.
HOT_POOL_SIZE = env.number("AMENDS_HOT_POOL_SIZE", 10, at_least=1)
# Requests a minute that agents may make (workspaces/rates.py); 0 is no limit.
RATES = {
    name: env.number(f"AMENDS_RATE_{name.upper()}", 0) for name in ("key", "agent", "workspace")
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "amends",
        "OPTIONS": {"socket_timeout": 1, "socket_connect_timeout": 0.5, **sockets.redis(REDIS_URL)},
    }
}

# --- People ---------------------------------------------------------------------------------------

AUTH_USER_MODEL = "workspaces.User"
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
    "guardian.backends.ObjectPermissionBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"config.accounts.{name}"}
    for name in ("LongEnough", "NotTheirOwnName", "NotWellKnown", "NotOnlyDigits")
]
ANONYMOUS_USER_NAME = None  # guardian: nobody acts without an account
GUARDIAN_RAISE_403 = True
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"

ACCOUNT_ADAPTER = "config.accounts.InvitedOnly"
ACCOUNT_FORMS = {
    "login": "config.accounts.LoginForm",
    "change_password": "config.accounts.ChangePasswordForm",
    "set_password": "config.accounts.SetPasswordForm",
    "reset_password": "config.accounts.ResetPasswordForm",
    "reset_password_from_key": "config.accounts.ResetPasswordKeyForm",
    "add_email": "config.accounts.AddEmailForm",
    "reauthenticate": "config.accounts.ReauthenticateForm",
}
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "optional"  # an invitation reached the address already
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = 300
ACCOUNT_REAUTHENTICATION_REQUIRED = True  # an address more can have a new password mailed to it
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[Amends] "
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if SECURE else "http"
ACCOUNT_SESSION_REMEMBER = True
SOCIALACCOUNT_ADAPTER = "config.single_sign_on.CompanyAccountAdapter"
SOCIALACCOUNT_ONLY = False
# A company's identity provider (OpenID Connect): its issuer, and us as it knows us.
OIDC_URL = env.text("AMENDS_OIDC_URL", "").rstrip("/")
OIDC_CLIENT_ID = env.text("AMENDS_OIDC_CLIENT_ID", "")
OIDC_SECRET = env.text("AMENDS_OIDC_SECRET", "")
OIDC_NAME = env.text("AMENDS_OIDC_NAME", "your company’s log-in")
OIDC_GROUPS_CLAIM = env.text("AMENDS_OIDC_GROUPS_CLAIM", "groups")
OIDC_TEAMS = env.words("AMENDS_OIDC_TEAMS")  # group=workspace/team
OIDC_LOOK_SECONDS = env.number("AMENDS_OIDC_LOOK_SECONDS", 60)
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "SCOPE": env.text("AMENDS_OIDC_SCOPES", "openid profile email offline_access").split(),
        "APPS": [
            {
                "provider_id": "company",
                "name": OIDC_NAME,
                "client_id": OIDC_CLIENT_ID,
                "secret": OIDC_SECRET,
                "settings": {"server_url": OIDC_URL, "email_authentication": True},
            }
        ]
        if OIDC_URL
        else [],  # else those that workspaces have set for themselves (config/providers.py)
    }
}
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True  # who was invited is the same person there
SOCIALACCOUNT_STORE_TOKENS = True  # the one that asks again, sealed (config/single_sign_on.py)
SOCIALACCOUNT_LOGIN_ON_GET = True  # a form could not go on to another site (form-action)
SOCIALACCOUNT_REQUESTS_TIMEOUT = 10
MFA_ADAPTER = "config.accounts.SecondFactors"
MFA_FORMS = {
    "authenticate": "config.accounts.CodeForm",
    "reauthenticate": "config.accounts.CodeAgainForm",
}
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_PASSKEY_LOGIN_ENABLED = False
MFA_TOTP_ISSUER = "Amends"
USERSESSIONS_TRACK_ACTIVITY = False

# --- Transport ------------------------------------------------------------------------------------

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 14 * 24 * 3600
SESSION_ENGINE = "config.accounts"  # its SessionStore
CSRF_TRUSTED_ORIGINS = [AMENDS_URL]
CSRF_FAILURE_VIEW = "workspaces.views.entrance.too_old"
SECURE_SSL_REDIRECT = SECURE
SECURE_REDIRECT_EXEMPT = [
    r"^(healthz|readyz|statusz|metrics)$"
]  # probes come from inside, over plain http
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
AMENDS_TRUST_PROXY = env.claim("AMENDS_TRUST_PROXY", default=False)
if AMENDS_TRUST_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "manifest-src": ["'self'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'none'"],
    }
}

# A form with the largest policy, or a proof that somebody brings to be checked. It stays in memory:
# nothing that a stranger sends lies on a disk (config/edge.py, Bounded).
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
FILE_UPLOAD_MAX_MEMORY_SIZE = DATA_UPLOAD_MAX_MEMORY_SIZE
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2_000  # a bulk form with a thousand ids

# --- Static files, language, time -----------------------------------------------------------------

STATIC_URL = "/static/"
STATICFILES_DIRS = [ROOT / "static"]
STATIC_ROOT = os.environ.get("AMENDS_STATIC_ROOT") or ROOT / ".local" / "static"
HASHED_STATIC = env.claim("AMENDS_HASHED_STATIC", default=not DEBUG)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "config.edge.HashedStorage"
        if HASHED_STATIC
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
LANGUAGE_CODE = "en"
# In which languages affected people read; the desk itself speaks English.
LANGUAGES = [("en", "English"), ("de", "Deutsch"), ("fr", "Français"), ("es", "Español")]
LOCALE_PATHS = [ROOT / "recovery" / "locale"]
USE_I18N = True
TIME_ZONE = "UTC"
USE_TZ = True

# --- Mail and logs --------------------------------------------------------------------------------

EMAIL_HOST = env.text("EMAIL_HOST", "localhost")
AMENDS_SENDS_MAIL = bool(env.text("EMAIL_HOST", ""))  # as config.W040 has it
EMAIL_PORT = env.number("EMAIL_PORT", 25)
EMAIL_HOST_USER = env.text("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = env.text("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = env.claim("EMAIL_USE_TLS", default=False)
EMAIL_TIMEOUT = 10
EMAIL_BACKEND = "connectors.builtin.smtp.EmailBackend"
DEFAULT_FROM_EMAIL = env.text("AMENDS_FROM", "Amends <amends@localhost>")

# Hosts ("host" or "host:port") that connectors may reach although they are not public, or not over
# TLS. It cannot be changed in the console.
OUTBOUND_ALLOW = env.words("AMENDS_OUTBOUND_ALLOW")
CONNECTOR_MANIFESTS = env.words("AMENDS_CONNECTOR_MANIFESTS")
# Where a trace can be read, with {trace_id} in it, such as https://traces.example.com/{trace_id}.
AMENDS_TRACE_URL = env.text("AMENDS_TRACE_URL", "")

LEVELS = ("INFO", "DEBUG", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")  # Python's
LOG_LEVEL = env.choice("AMENDS_LOG_LEVEL", *LEVELS)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {
            "()": "config.logs.Redacting",
            "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
        },
        "json": {"()": "config.logs.RedactingJson", "process": PROCESS},
    },
    "filters": {"without_traceback": {"()": "config.logs.WithoutTraceback"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": env.choice("AMENDS_LOG_FORMAT", "plain", "json"),
        }
    },
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django.request": {"filters": ["without_traceback"]},
        "django.security.DisallowedHost": {"filters": ["without_traceback"]},
        "django.server": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        # uvicorn's own would write whole addresses.
        "uvicorn": {"handlers": ["stderr"], "propagate": False},
        "uvicorn.access": {"handlers": ["stderr"], "propagate": False},
        "httpx": {"level": "WARNING"},  # it logs whole URLs, and some carry a token
    },
}
