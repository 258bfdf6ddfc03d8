"""The TypeScript client as npm installs it from an address: what is published, compiled.

Nothing is compiled here, for a desk has no Node: `make client` does it ahead, into sdk-js/dist,
and a test holds that to the sources.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from django.conf import settings
from django.urls import reverse

# In a checkout, and where a desk is installed.
_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "sdk-js"
_told = json.loads((_FOLDER / "package.json").read_text("utf-8"))
NAME = f"amends-client-{_told['version']}.tgz"  # as `npm pack` calls it


def url() -> str:
    """Where it is had, for whoever installs it."""
    return f"{settings.AMENDS_URL}{reverse('workspaces:client_tarball')}"


@cache
def content() -> bytes:
    """The package; the same files make the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in _files():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text))
    return gzip.compress(packed.getvalue(), mtime=0)


@cache
def digest() -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content()).hexdigest()


def _files() -> Iterator[tuple[str, bytes]]:
    """What package.json names as its files, and what npm adds to every package."""
    # npm runs none of its scripts, and warns of each that it does not run.
    told = {
        name: said for name, said in _told.items() if name not in {"scripts", "devDependencies"}
    }
    yield "package.json", json.dumps(told, indent=2).encode()
    yield "README.md", (_FOLDER / "README.md").read_bytes()
    yield "LICENSE", (_ROOT / "LICENSE").read_bytes()
    for path in sorted((_FOLDER / "dist").rglob("*.*")):
        yield path.relative_to(_FOLDER).as_posix(), path.read_bytes()
