"""A Debian that has just been made, under a systemd of its own: where an install guide is tried.

Its processes, mounts and network are namespaces of their own, and its network has no way out. It
needs root and `debootstrap`; the packages come from where this machine's own come from.
"""

import contextlib
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from config.local.places import ROOT
from tests.crash.machines import allowed

SUITE = "trixie"
MADE = ROOT / ".venv" / f"debian-{SUITE}.tar"
"""Made once and kept, as environments of adapters are; a guide's own packages come on top."""

SOURCES = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources")]
MAKE_SECONDS_MAX = 900
INSTALL_SECONDS_MAX = 900
BOOT_SECONDS_MAX = 90
BLOCK_SECONDS_MAX = 300
PASSED_ON = ("PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "HTTPS_PROXY", "https_proxy")
"""How packages are reached from here; an authority of one's own (PIP_CERT) is lent as a file."""

ALONE = ("env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
NO_SERVICES = "#!/bin/sh\nexit 101\n"

needed = [
    pytest.mark.skipif(not allowed(), reason="no namespaces can be made here (root, iproute2)"),
    pytest.mark.skipif(
        shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin") is None,
        reason="debootstrap is not installed (Debian: debootstrap)",
    ),
]

# systemd wants a writable cgroup2, and PrivateUsers= a root that is no chroot.
BOOT = r"""
set -eu
mkdir "$1"
echo $$ > "$1/cgroup.procs"
exec unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --net \
    --propagation private sh -euc '
cd "$0"
mount --bind "$0" "$0"
cd "$0"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
    touch dev/$node
    mount --bind /dev/$node dev/$node
done
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ip link set lo up
hostname desk
pivot_root . mnt
exec env -i container=amends PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    sh -c "umount -l /mnt; exec /usr/lib/systemd/systemd --unit=multi-user.target"
' "$0"
"""


def debian(folder: Path) -> "CleanRoot":
    """A new one below that folder, with nothing but what every Debian has, and systemd."""
    root = folder / "debian"
    if not MADE.exists():
        mirror = re.findall(r"^(?:URIs:|deb) *(\S+)", _sources(), re.MULTILINE)[0]
        run(
            ["debootstrap", "--variant=minbase", "--include=ca-certificates,systemd", SUITE,
             str(root), mirror], seconds=MAKE_SECONDS_MAX,
        )  # fmt: skip
        half = MADE.with_suffix(".half")
        run(["tar", "--create", "--file", str(half), "--directory", str(root), "."])
        half.rename(MADE)
    else:
        root.mkdir()
        run(["tar", "--extract", "--file", str(MADE), "--directory", str(root)])
    return CleanRoot(root)


def _sources() -> str:
    found = [one.read_text() for one in SOURCES if one.exists()]
    return "\n".join(text for text in found if "/debian" in text)


def run(command: list[str], *, seconds: float = 300, **more: str) -> str:
    done = subprocess.run(
        command, env=os.environ | more | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        capture_output=True, text=True, check=False, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


class CleanRoot:
    """`install()` before it runs, while it has a way out; `boot()`, then `shell` for the rest."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._init: subprocess.Popen[bytes] | None = None
        self._shell: subprocess.Popen[str] | None = None
        self._asked = 0
        unified = Path("/sys/fs/cgroup/unified")
        groups = unified if unified.exists() else unified.parent
        self._group = groups / f"amends-clean-{os.getpid()}"

    def install(self, script: str) -> None:
        """Run it in there with this machine's network; no service starts before it is booted."""
        policy = self.root / "usr/sbin/policy-rc.d"
        policy.write_text(NO_SERVICES)
        policy.chmod(0o755)
        known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        if certificates := os.environ.get("PIP_CERT"):
            shutil.copy(certificates, self.root / "root/lent.pem")
            known["PIP_CERT"] = "/root/lent.pem"
        pairs = [f"{name}={value}" for name, value in known.items()]
        run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child",
             f"--mount-proc={self.root}/proc", "chroot", str(self.root), *ALONE,
             "DEBIAN_FRONTEND=noninteractive", *pairs, "sh", "-euc", f"cd /src\n{script}"],
            seconds=INSTALL_SECONDS_MAX,
        )  # fmt: skip
        policy.unlink()
        (self.root / "root/lent.pem").unlink(missing_ok=True)

    def boot(self) -> None:
        log = self.root.parent / "boot.log"
        with log.open("ab") as output:
            self._init = subprocess.Popen(
                ["sh", "-c", BOOT, str(self.root), str(self._group)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        deadline = time.monotonic() + BOOT_SECONDS_MAX
        while not self._is_up():
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-5000:]
            time.sleep(0.2)
        self._shell = subprocess.Popen(
            [*self._into(), *ALONE, "sh", "-eu"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.shell("cd /src")

    def shell(self, block: str) -> str:
        """What a block says, in the one shell of this boot; an AssertionError where it fails."""
        assert self._shell is not None
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._asked += 1
        over = f"-- over {self._asked} --\n"
        self._shell.stdin.write(f"{block}\necho '{over.strip()}'\n")
        self._shell.stdin.flush()
        said: list[str] = []
        deadline = time.monotonic() + BLOCK_SECONDS_MAX
        for line in self._shell.stdout:
            if line == over:
                return "".join(said)
            said.append(line)
            assert time.monotonic() < deadline, "".join(said)
        raise AssertionError(f"The shell ended in\n{block}\n{''.join(said)}")

    def starts(self, command: list[str], **environment: str) -> "subprocess.Popen[str]":
        """A program of its own in there, as nobody, beside the shell."""
        pairs = [f"{name}={value}" for name, value in environment.items()]
        return subprocess.Popen(
            [*self._into(), "runuser", "-u", "nobody", "--", "env", "-i", *pairs, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def power_off(self) -> None:
        """As if the cable were pulled."""
        if self._init is not None:
            self._init.kill()  # with it whatever ran in there
            self._init.wait(30)
        if self._shell is not None:
            self._shell.communicate(timeout=30)
        self._init = self._shell = None
        deadline = time.monotonic() + BOOT_SECONDS_MAX
        while self._group.exists():
            for folder, _, _ in os.walk(self._group, topdown=False):
                with contextlib.suppress(OSError):  # the last of them are still dying
                    Path(folder).rmdir()
            assert time.monotonic() < deadline, "processes of it are left"
            time.sleep(0.1)

    def _into(self) -> list[str]:
        spaces = ["--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net", "--root", "--wd=/"]
        return ["nsenter", "--target", str(self._first()), *spaces]

    def _first(self) -> int:
        """Its process 1, as we see it: the child of `unshare`."""
        assert self._init is not None
        task = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        children = task.read_text().split()
        return int(children[0]) if children else 0

    def _is_up(self) -> bool:
        if not self._first():
            return False
        asked = subprocess.run(
            [*self._into(), "systemctl", "is-system-running"], capture_output=True, text=True,
            check=False, timeout=30,
        )  # fmt: skip
        return asked.stdout.strip() in {"running", "degraded"}
