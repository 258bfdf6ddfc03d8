"""docs/install.md to the letter: an empty Debian, then each line of the page, under systemd.

What is not the page's is said here: names that a reader has in the DNS, and a network that has no
way out once the packages are there.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.local.places import ROOT
from tests import clean_root
from tests.clean_root import CleanRoot

pytestmark = [pytest.mark.earnest, pytest.mark.timeout(3000), *clean_root.needed]
LEFT_OUT = (".git", ".venv", ".local", "node_modules", ".*_cache", ".hypothesis", "__pycache__")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PYTHON = "/opt/amends/venv/bin/python"
AGAIN_SECONDS_MAX = 120


def lines_of_the_guide() -> list[str]:
    page = (ROOT / "docs" / "install.md").read_text()
    return re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[CleanRoot]:
    """An empty Debian with a checkout of ours in /src."""
    made = clean_root.debian(tmp_path)
    shutil.copytree(ROOT, made.root / "src", ignore=shutil.ignore_patterns(*LEFT_OUT))
    (made.root / "etc/hosts").write_text("127.0.0.1 localhost desk.example.com\n")
    yield made
    made.power_off()
    shutil.rmtree(made.root)


def as_this_kernel_lets(made: CleanRoot) -> list[str]:
    """Where user namespaces are forbidden, Debian's own unit of Valkey does without one."""
    if subprocess.run(["unshare", "--user", "true"], check=False, capture_output=True).returncode:
        unit = made.root / "etc/systemd/system/valkey-server.service.d/here.conf"
        unit.parent.mkdir(parents=True)
        unit.write_text("[Service]\nPrivateUsers=no\n")
        return ["Valkey without PrivateUsers"]
    return []


def until_it_answers(made: CleanRoot) -> None:
    deadline = time.monotonic() + AGAIN_SECONDS_MAX
    while made.shell(ASK).split() != ["200", "200"]:
        assert time.monotonic() < deadline, made.shell(SAID)
        time.sleep(0.5)


ASK = f"""{PYTHON} - 2> /dev/null <<'LINES' || true
import ssl, urllib.request
context = ssl.create_default_context(cafile="{CERTIFICATES}")
for path in ("readyz", "statusz"):
    print(urllib.request.urlopen("https://desk.example.com/" + path, context=context).status)
LINES"""
SAID = """journalctl --no-pager --lines 100 --unit 'amends-*'
systemctl --no-pager --failed
ss --listening --tcp --numeric || true"""


def does(made: CleanRoot, *what: str, **environment: str) -> "subprocess.Popen[str]":
    """tests/first_evening.py, as somebody who is not the desk."""
    known = {"SSL_CERT_FILE": CERTIFICATES, "AMENDS_URL": "https://desk.example.com"}
    return made.starts([PYTHON, "/src/tests/first_evening.py", *what], **known | environment)


def end_of(process: "subprocess.Popen[str]") -> str:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


def test_the_guide_leads_from_an_empty_debian_to_a_desk_that_comes_back(
    empty: CleanRoot, drilled: Callable[..., None]
) -> None:
    began = time.monotonic()
    packages, *rest = lines_of_the_guide()
    empty.install(packages)
    otherwise = as_this_kernel_lets(empty)
    empty.boot()
    *earlier, checked, backup, restore = rest
    for block in earlier:
        empty.shell(block)
    until_it_answers(empty)
    said = empty.shell(checked)
    took = time.monotonic() - began

    assert "config.E" not in said, said
    assert sorted(re.findall(r"config\.W\d+", said)) == ["config.W040", "config.W052"], said
    (link,) = re.findall(r"https://desk\.example\.com(/setup/\S+)", said)
    key = end_of(does(empty, "founder", link)).strip()
    calling = does(empty, "agent", "30", AMENDS_KEY=key)
    assert calling.stdout is not None
    assert calling.stdout.readline() == "calling\n"
    empty.shell("systemctl reload amends-web\nsystemctl kill --signal KILL amends-worker")
    empty.shell("systemctl restart pgbouncer\nsystemctl restart amends.target")
    calls = json.loads(end_of(calling).splitlines()[-1])
    until_it_answers(empty)
    assert count(empty) == calls["calls"], "each call is on record"

    assert "amends-" in empty.shell(backup)
    assert "config.W052" not in empty.shell(checked.splitlines()[0])
    end_of(does(empty, "agent", "3", AMENDS_KEY=key))
    empty.shell(restore)
    until_it_answers(empty)
    assert count(empty) == calls["calls"], "what came after the backup is not in it"

    empty.power_off()
    empty.boot()
    until_it_answers(empty)
    drilled(
        "an empty Debian 13, by the lines of docs/install.md",
        lines=sum(map(lines, [packages, *rest])), answers_after=f"{took:.0f} s",
        calls=calls["calls"], longest=f"{calls['longest']:.2f} s",
        otherwise=", ".join(otherwise) or "nothing",
    )  # fmt: skip


def lines(block: str) -> int:
    return len(block.replace("\\\n", "").splitlines())


def count(made: CleanRoot) -> int:
    said = made.shell(
        "runuser -u postgres -- psql --quiet --tuples-only amends --command"
        " \"SELECT count(*) FROM ledger_action WHERE state = 'succeeded'\""
    )
    return int(said)
