"""The clients that the desk hands out, in its own version, from where an agent's key comes from.

Of Python it is a wheel, made of the sources that the desk itself runs; its form is that of the
specification of binary distributions, 1.0
(https://packaging.python.org/en/latest/specifications/binary-distribution-format/).

Of TypeScript it is the package as npm installs it from an address. Nothing is compiled here, for a
desk has no Node: `make client` does it ahead, into sdk-js/dist, and a test holds that to the
sources.
"""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from django.conf import settings
from django.urls import reverse

from amends.protocol import vocabulary

# Beside the package lies the file that describes it, in a checkout and where a desk is installed.
_PACKAGE = Path(vocabulary.__file__).parents[1]
_FOLDER = _PACKAGE.parent
_TOLD = tomllib.loads((_FOLDER / "pyproject.toml").read_text("utf-8"))
_project: Mapping[str, Any] = _TOLD["project"]
_STEM = f"{_project['name']}-{_project['version']}"
WHEEL = "Wheel-Version: 1.0\nGenerator: amends-desk\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # of a zip; so that the same sources make the same bytes

_ROOT = Path(__file__).parents[1]
_JS_FOLDER = _ROOT / "sdk-js"
_told = json.loads((_JS_FOLDER / "package.json").read_text("utf-8"))


class ClientPackage:
    """What is handed out: its file's `name`, and `made`, of which the same sources make the same
    bytes. `view` is the name of its address.
    """

    def __init__(self, name: str, view: str, made: Callable[[], bytes]) -> None:
        self.name = name
        self.view = view
        self.made = made

    @property
    def url(self) -> str:
        """Where it is had, for whoever installs it."""
        return f"{settings.AMENDS_URL}{reverse(self.view)}"

    @cached_property
    def content(self) -> bytes:
        return self.made()

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hex, which `pip install --require-hashes` takes."""
        return hashlib.sha256(self.content).hexdigest()


def _made_wheel() -> bytes:
    files = [*_sources(), *_described()]
    record = f"{_STEM}.dist-info/RECORD"
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, text in [*files, (record, _record(files, record).encode())]:
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return kept.getvalue()


def _sources() -> Iterator[tuple[str, bytes]]:
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            yield path.relative_to(_FOLDER).as_posix(), path.read_bytes()


def _described() -> Iterator[tuple[str, bytes]]:
    """What stands beside the sources and says of them what pip asks."""
    points = {"console_scripts": _project["scripts"], **_project["entry-points"]}
    told = "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in found.items())
        for group, found in points.items()
    )
    licence = (_FOLDER.parent / "LICENSE").read_text("utf-8")
    for name, text in (
        ("METADATA", "".join(_metadata())), ("WHEEL", WHEEL), ("entry_points.txt", told),
        ("licenses/LICENSE", licence),
    ):  # fmt: skip
        yield f"{_STEM}.dist-info/{name}", text.encode()


def _metadata() -> Iterator[str]:
    yield f"Metadata-Version: 2.4\nName: {_project['name']}\nVersion: {_project['version']}\n"
    yield f"Summary: {_project['description']}\nLicense-Expression: {_project['license']}\n"
    yield "License-File: LICENSE\n"
    yield f"Requires-Python: {_project['requires-python']}\n"
    for needed in _project["dependencies"]:
        yield f"Requires-Dist: {needed}\n"
    for extra, more in _project["optional-dependencies"].items():
        yield f"Provides-Extra: {extra}\n"
        for needed in more:
            yield f'Requires-Dist: {needed} ; extra == "{extra}"\n'
    yield "Description-Content-Type: text/markdown\n\n"
    yield (_FOLDER / "README.md").read_text("utf-8")


def _record(files: Iterable[tuple[str, bytes]], own: str) -> str:
    """Each file with its digest and its bytes; its own line has neither."""
    lines = []
    for name, text in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}\n")
    return "".join(lines) + f"{own},,\n"


def _made_tarball() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in _files():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text))
    return gzip.compress(packed.getvalue(), mtime=0)


def _files() -> Iterator[tuple[str, bytes]]:
    """What package.json names as its files, and what npm adds to every package."""
    # npm runs none of its scripts, and warns of each that it does not run.
    told = {
        name: said for name, said in _told.items() if name not in {"scripts", "devDependencies"}
    }
    yield "package.json", json.dumps(told, indent=2).encode()
    yield "README.md", (_JS_FOLDER / "README.md").read_bytes()
    yield "LICENSE", (_ROOT / "LICENSE").read_bytes()
    for path in sorted((_JS_FOLDER / "dist").rglob("*.*")):
        yield path.relative_to(_JS_FOLDER).as_posix(), path.read_bytes()


wheel = ClientPackage(f"{_STEM}-py3-none-any.whl", "workspaces:client_wheel", _made_wheel)
# Named as `npm pack` calls it.
tarball = ClientPackage(
    f"amends-client-{_told['version']}.tgz", "workspaces:client_tarball", _made_tarball
)
