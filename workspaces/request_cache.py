"""What a page that only reads looks up once, however often it is asked: rights, and what waits.

Such a page has these as they were at one moment of it. Whatever acts runs outside of this and looks
up anew each time, under its locks.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_found: ContextVar[dict[Hashable, Any] | None] = ContextVar("request_cache", default=None)


@contextmanager
def request_cache() -> Iterator[None]:
    """Inside, `cached` remembers."""
    token = _found.set({})
    try:
        yield
    finally:
        _found.reset(token)


def cached(key: Hashable, look_up: Callable[[], T]) -> T:
    """What `look_up` says; of the same `key`, which names the question and all it depends on, it is
    asked once in a `request_cache`, and each time outside of one.
    """
    found = _found.get()
    if found is None:
        return look_up()
    if key not in found:
        found[key] = look_up()
    value: T = found[key]
    return value
