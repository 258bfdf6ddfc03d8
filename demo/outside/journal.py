"""A journal that only grows: one JSON line for every effect, written through to the disk."""

import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Journal:
    """What happened in one outside system, in order; its state is what the entries add up to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, what: str, **facts: Any) -> Entry:
        entry = {"at": datetime.now(UTC).isoformat(), "what": what, **facts}
        with self.lock:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        return entry

    def entries(self) -> Iterator[Entry]:
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)
