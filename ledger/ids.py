"""UUIDv7 (RFC 9562): ids that sort by the time they were made, also within one millisecond."""

import os
import threading
import time

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A fresh id; each is greater than the ones this process made before."""
    global _last  # noqa: PLW0603
    with _lock:
        # 48 bits of milliseconds and 12 bits of a fraction, never going back in one process.
        ticks = max(time.time_ns() * 4096 // 1_000_000, _last + 1)
        _last = ticks
    random = int.from_bytes(os.urandom(8)) & (2**62 - 1)
    value = (ticks >> 12) << 80 | 0x7 << 76 | (ticks & 0xFFF) << 64 | 0b10 << 62 | random
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
