"""Progress of a command that works for long: rich's bar at a terminal, elsewhere nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress


@contextmanager
def bar(out: Any) -> Iterator[Callable[[str, float], None]]:
    """A function that takes what is done now, and which part of all of it is behind us, 0 to 1."""
    console = Console(file=out._out)  # noqa: SLF001 - Django's wrapper styles each write
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("", total=1.0)

        def tell(what: str, part: float) -> None:
            shown.update(task, description=what[:40], completed=part)

        yield tell
