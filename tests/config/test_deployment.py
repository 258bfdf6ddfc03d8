"""The files of deploy/: units, containers and proxies do what the guide says.

No container engine is needed: what the image does is deploy/install.sh, which is run here.
"""

import datetime as dt
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from config.local.places import ROOT
from config.processes import process_list
from tests.ports import free_port
from tests.processes import Processes

DEPLOY = ROOT / "deploy"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
CADDY = shutil.which("caddy")
KINDS = ("web", "worker", "scheduler", "sweeper")
INSTALL_SECONDS_MAX = 900


def words_of(kind: str) -> list[str]:
    """What `make up` starts for this kind, without the interpreter's path and the port."""
    command = process_list(8000, "", demo=False)[kind]
    return [one for one in command[1:] if one not in {"-m", "celery", ""}]


@pytest.mark.parametrize("kind", KINDS)
def test_units_and_containers_start_what_make_up_starts(kind: str) -> None:
    unit = (DEPLOY / "systemd" / f"amends-{kind}.service").read_text()
    (started,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    contained = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"][kind]

    for command in (started.split()[1:], contained["command"]):
        told = [word for word in command if word not in {"-m", "celery", "python"}]
        assert [word for word in told if not re.match(r"\d+\.\d+\.\d+\.\d+$", word)] == words_of(
            kind
        )
    assert f"AMENDS_PROCESS={kind}" in unit
    assert contained["environment"]["AMENDS_PROCESS"] == kind


@pytest.mark.parametrize("kind", ["prepare", *KINDS])
def test_every_process_has_the_heads_that_are_kept_outside(kind: str) -> None:
    """`prepare` and the scheduler see by them whether a log went back; web, worker and sweeper
    believe a person's signature by them, and web's check of the log reads them. Whoever took over
    a web or a worker could make the desk forget that its log went back; they may only read.
    """
    unit = (DEPLOY / "systemd" / f"amends-{kind}.service").read_text()
    contained = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"][kind]

    assert "AMENDS_HEADS_FOLDER=/var/lib/amends/heads" in unit
    assert re.search(r"^StateDirectory=amends$", unit, re.MULTILINE)
    only_read = "" if kind in {"prepare", "scheduler"} else ":ro"
    assert contained["volumes"] == [f"heads:/var/lib/amends/heads{only_read}"]


def test_what_the_example_of_an_environment_names_is_in_the_guide() -> None:
    lines = (DEPLOY / "environment.example").read_text().splitlines()
    names = {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
    guide = (ROOT / "docs" / "running.md").read_text()

    assert {name for name in names if f"`{name}`" not in guide} == set()
    assert {"DATABASE_URL", "REDIS_URL", "AMENDS_URL", "DJANGO_SECRET_KEY"} <= names


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for source in (DEPLOY / "systemd").iterdir():
        text = re.sub(r"/opt/amends/venv/bin/\w+", sys.executable, source.read_text())
        text = text.replace("User=amends\n", "").replace("/opt/amends/app", str(ROOT))
        (tmp_path / source.name).write_text(text)
    units = sorted(str(one) for one in tmp_path.iterdir())

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    told = [line for line in done.stderr.splitlines() if "amends" in line]
    assert (done.returncode, told) == (0, [])


# A real proxy in front of a real web process.


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "desk.example.com")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("desk.example.com")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    chain, private = tmp_path / "fullchain.pem", tmp_path / "privkey.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, private


Ask = Callable[..., httpx.Response]


@pytest.fixture(
    params=[
        pytest.param("nginx", marks=pytest.mark.skipif(
            NGINX is None, reason="nginx is not installed (Debian: nginx-light)")),
        pytest.param("caddy", marks=pytest.mark.skipif(
            CADDY is None, reason="Caddy is not installed (Debian: caddy)")),
    ]
)  # fmt: skip
def proxied(
    request: pytest.FixtureRequest, processes: Processes, certificate: tuple[Path, Path],
    tmp_path: Path,
) -> Iterator[Ask]:  # fmt: skip
    """Ask the desk through a proxy, as our example has it, over TLS or without."""
    web = processes.web(AMENDS_URL="https://desk.example.com", AMENDS_TRUST_PROXY="1")
    secure, plain = free_port(), free_port()
    behind = web.url.removeprefix("http://").replace("localhost", "127.0.0.1")
    write = {"nginx": nginx_as_our_example, "caddy": caddy_as_our_example}[request.param]
    command = write(tmp_path, behind, certificate, secure, plain)
    proxy = processes.run(request.param, command, HOME=str(tmp_path))
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    with httpx.Client(verify=trusting, timeout=60) as client:

        def ask(method: str, path: str, *, over_tls: bool = True, **more: Any) -> httpx.Response:
            scheme, port = ("https", secure) if over_tls else ("http", plain)
            headers = {"host": "desk.example.com"} | more.pop("headers", {})
            return client.request(
                method, f"{scheme}://127.0.0.1:{port}{path}", headers=headers,
                extensions={"sni_hostname": "desk.example.com"}, **more,
            )  # fmt: skip

        proxy.wait_until(lambda: listens(ask))
        yield ask


def nginx_as_our_example(
    folder: Path, behind: str, certificate: tuple[Path, Path], secure: int, plain: int
) -> list[str]:
    chain, private = certificate
    ours = elsewhere(
        (DEPLOY / "proxy" / "nginx.conf").read_text(),
        ("127.0.0.1:8000", behind),
        ("listen 443 ssl", f"listen 127.0.0.1:{secure} ssl"),
        ("listen 80", f"listen 127.0.0.1:{plain}"),
        ("/etc/ssl/desk.example.com/fullchain.pem", str(chain)),
        ("/etc/ssl/desk.example.com/privkey.pem", str(private)),
    )
    whole = folder / "nginx.conf"
    as_us = "user root;\n" if os.geteuid() == 0 else ""
    folders = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole.write_text(
        f"{as_us}pid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\n{folders}{ours}}}\n"
    )
    return [str(NGINX), "-p", str(folder), "-c", str(whole), "-g", "daemon off;"]


def caddy_as_our_example(
    folder: Path, behind: str, certificate: tuple[Path, Path], secure: int, plain: int
) -> list[str]:
    """With a certificate of ours: the one that Caddy would fetch is not to be had here."""
    chain, private = certificate
    ours = elsewhere(
        (DEPLOY / "proxy" / "Caddyfile").read_text(),
        ("127.0.0.1:8000", behind),
        ("desk.example.com {\n", f"desk.example.com {{\n\ttls {chain} {private}\n"),
    )
    ports = f"\tadmin off\n\tdefault_bind 127.0.0.1\n\thttp_port {plain}\n\thttps_port {secure}\n"
    whole = folder / "Caddyfile"
    whole.write_text(f"{{\n{ports}}}\n{ours}")
    return [str(CADDY), "run", "--config", str(whole), "--adapter", "caddyfile"]


def elsewhere(ours: str, *replaced: tuple[str, str]) -> str:
    """An example with the addresses of this test, each of which it has to name."""
    for written, here in replaced:
        assert written in ours, written
        ours = ours.replace(written, here)
    return ours


def listens(ask: Ask) -> bool:
    try:
        return ask("GET", "/healthz").status_code == 200
    except httpx.TransportError:
        time.sleep(0.05)
        return False


@pytest.mark.django_db(transaction=True)
def test_behind_a_proxy_people_and_agents_reach_the_desk_over_tls_alone(proxied: Ask) -> None:
    page = proxied("GET", "/accounts/login/")
    assert page.status_code == 200
    assert "secure" in page.headers["set-cookie"].lower()
    assert "strict-transport-security" in page.headers

    moved = proxied("GET", "/accounts/login/", over_tls=False)
    assert moved.status_code in {301, 308}
    assert moved.headers["location"] == "https://desk.example.com/accounts/login/"
    forged = proxied("GET", "/accounts/login/", headers={"x-forwarded-proto": "http"})
    assert forged.status_code == 200, "what a stranger says of the scheme is not passed on"

    digest = "0" * 64
    large = proxied("PUT", f"/api/v1/blobs/{digest}", content=b"1" * (8 * 1024 * 1024))
    assert large.status_code == 401, "the largest snapshot arrives, and is asked for its key"
    too_large = proxied("PUT", f"/api/v1/blobs/{digest}", content=b"1" * (9 * 1024 * 1024 + 1))
    # nginx looks at what is announced; Caddy counts what it hands on, which nobody here reads.
    assert too_large.status_code in {413, 401}


@pytest.mark.earnest
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(INSTALL_SECONDS_MAX)
def test_what_the_image_installs_runs_without_the_checkout(
    tmp_path: Path, processes: Processes, drilled: Callable[..., None]
) -> None:
    prefix = tmp_path / "opt" / "amends"
    command = ["sh", str(DEPLOY / "install.sh"), str(prefix)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHON": sys.executable}
    for _ in "first", "again":
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False,
            timeout=INSTALL_SECONDS_MAX,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert {one.name for one in prefix.iterdir()} == {"app", "venv", "static", "manage"}
    for folder in ("static", "app"):
        for file in (prefix / folder).rglob("*"):
            file.chmod(file.stat().st_mode & ~0o222)

    port = free_port()
    started = processes.run(
        "installed",
        [str(prefix / "venv/bin/python"), "-m", "config.web", "--port", str(port)],
        code=prefix / "app",
        AMENDS_PROCESS="web", AMENDS_HASHED_STATIC="1", AMENDS_DEMO="0", PYTHONPATH="",
        AMENDS_STATIC_ROOT=str(prefix / "static"), AMENDS_URL=f"http://localhost:{port}",
    )  # fmt: skip
    started.url = f"http://localhost:{port}"
    started.wait_until_ready()
    page = httpx.get(f"{started.url}/accounts/login/", timeout=60)
    (style,) = re.findall(r'href="(/static/[^"]+\.css)"', page.text)[:1]

    assert page.status_code == 200
    assert httpx.get(started.url + style, timeout=60).status_code == 200
    drilled("what the image installs, twice, started read-only without the checkout")


@pytest.mark.earnest
def test_the_bill_of_materials_has_every_package_that_is_installed(
    drilled: Callable[..., None],
) -> None:
    done = subprocess.run(
        ["make", "sbom"], cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=INSTALL_SECONDS_MAX,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((ROOT / "sbom.json").read_text())
    lock = (ROOT / "requirements" / "runtime.lock").read_text()
    pinned = set(re.findall(r"^([a-z0-9._-]+)(?:\[[a-z,]+\])?==(\S+)", lock, re.MULTILINE))

    assert {(one["name"], one["version"]) for one in found["components"]} == pinned
    assert found["metadata"]["component"]["name"] == "amends-desk"
    drilled("bill of materials", packages=len(pinned))


def test_what_a_lock_pins_with_an_extra_it_pins_without_it_too():
    """pip takes the two for two packages: a machine that has neither would be refused both."""
    for lock in (ROOT / "requirements/runtime.lock", ROOT / "requirements/dev.lock"):
        pins = re.findall(r"^([\w.-]+)(\[[^\]]+\])?==(\S+)", lock.read_text(), re.MULTILINE)
        plain = {(name, version) for name, extra, version in pins if not extra}
        assert {(name, version) for name, extra, version in pins if extra} <= plain, lock.name
