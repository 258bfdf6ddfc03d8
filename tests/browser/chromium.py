"""Where Chromium is: the system's, else Playwright's, else the distribution's, else nowhere.

Nowhere is an error that fails each browser test; they never vanish.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
INSTALL_SECONDS_MAX = 600
# No sandbox, because tests may run as root; no talk to its maker's servers.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoChromium(Exception):
    """We stopped because no browser can be had; the message lists what was tried."""


def find(playwright: Playwright) -> str:
    """The path of a Chromium, installing one if there is none."""
    if there := present(playwright):
        return there
    with (Path(tempfile.gettempdir()) / f"amends-chromium-{os.geteuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one runner installs, the others wait for it
        tried = [] if present(playwright) else install()
    if there := present(playwright):
        return there
    raise NoChromium("No Chromium, and none could be installed:\n" + "\n".join(tried))


def present(playwright: Playwright) -> str | None:
    own = playwright.chromium.executable_path
    found = [os.environ.get("CHROMIUM"), *map(shutil.which, NAMES), own]
    return next((path for path in found if path and Path(path).exists()), None)


def install() -> list[str]:
    """Try each way until one works; what was tried and how it ended, in lines."""
    ways = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        apt = "apt-get update -q && apt-get install -q -y --no-install-recommends chromium"
        ways.insert(0, ["sh", "-c", apt])
    told = []
    for way in ways:
        try:
            done = subprocess.run(
                way, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            told.append(f"{' '.join(way)}: took too long")
            continue
        if done.returncode == 0:
            break
        told.append(f"{' '.join(way)}: {done.stderr.strip()[-400:]}")
    return told
