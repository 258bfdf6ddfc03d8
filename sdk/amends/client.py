"""The desk as an agent sees it: one address, one key, one spool."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import signal
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from amends.drivers import Steps, called, waits
from amends.errors import AmendsError, Terminated
from amends.events import short_id
from amends.gate import Replies, Waits
from amends.link import FLUSH_SECONDS, Link
from amends.runs import Run
from amends.sender import Parked
from amends.tools import Tool, tool
from amends.wire import trimmed

# How long a call waits for people, unless it says otherwise.
WAIT_SECONDS = 3600.0
# The exit status of a process that a signal has ended, less the signal's number.
SHELL_SIGNAL = 128
# No address holds “.” or “..” between slashes: the desk could not be asked about such a run.
RUN_ID = re.compile(r"(?!(?:.*/)?\.\.?(?:/|$))[\x21-\x7e]{1,120}")

# What the desk reads of the person for whom a run acts.
PERSON = ("id", "name", "contact", "language")
NO_PERSON = 'a mapping, such as {"id": "mia", "name": "Mia Li"}'
NOT_OF_A_PERSON = (
    "on_behalf_of has no “{}”: it is id, name, contact (a mail address), and language (de, fr-CA)"
)


class Desk(Link):
    """A connection to the recovery desk, for one agent. Make one per process, with `connect`."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        spool: str | Path | None = None,
        workspace: str | None = None,
        wait_seconds: float = WAIT_SECONDS,
        on_wait: Waits | None = None,
        on_question: Replies | None = None,
        on_parked: Parked | None = None,
        heeds_sigterm: bool = True,
    ) -> None:
        """`spool` is the file that keeps what is not sent yet; by default one per address and key.

        `workspace` is needed only where the very first call may come while the desk is away.
        `on_wait` hears of approvals that are waited for, `on_parked` of events that were refused.
        `on_question` is given what a person asks back before deciding, and returns an answer.
        `heeds_sigterm`: where nobody else handles SIGTERM, it ends the process by an exception, so
        that open calls and runs are told as ended instead of falling silent.
        """
        super().__init__(
            url, key, workspace=workspace, wait_seconds=wait_seconds,
            spool=Path(spool) if spool else default_spool(url, key),
            on_wait=on_wait, on_question=on_question, on_parked=on_parked,
        )  # fmt: skip
        self._is_closed = False
        self._at_exit = partial(_close_at_exit, weakref.ref(self), os.getpid())
        atexit.register(self._at_exit)
        if heeds_sigterm:
            _heed_sigterm()
        self.sender.wake()

    def run(
        self,
        request: str = "",
        *,
        run: str | None = None,
        on_behalf_of: Mapping[str, Any] | None = None,
        goal: str | None = None,
        model: str | None = None,
        labels: Mapping[str, Any] | None = None,
        trace: Mapping[str, Any] | None = None,
    ) -> Run:
        """A run, to be used with `with`. `request` is what the user said, in their words.

        Give `run`, an id of your own, where a restarted process must find its calls again.
        `on_behalf_of` has `id`, and may have `name`, `contact`, a mail address, and `language`,
        a tag as browsers send it (`de-AT`).
        """
        if run is not None and not RUN_ID.fullmatch(run):
            fits = "1 to 120 printable ASCII characters without spaces, no part “.” or “..”"
            raise ValueError(f"a run's id is {fits}")
        if not isinstance(on_behalf_of, Mapping | None):
            raise TypeError(f"on_behalf_of is {NO_PERSON}, not a {type(on_behalf_of).__name__}")
        if strange := [name for name in on_behalf_of or () if name not in PERSON]:
            raise ValueError(NOT_OF_A_PERSON.format(strange[0]))
        told = {"request": request, "goal": goal, "model": model, "on_behalf_of": on_behalf_of,
                "labels": labels}  # fmt: skip
        return Run(self, run or f"run_{short_id()}", told=told, trace=dict(trace or {}))

    def tool(self, name: str, **how: Any) -> Callable[[Callable[..., Any]], Tool]:
        """Decorate a function so that each call of it is an action of the current run.

        See `amends.tools.tool` for what can be said of it.
        """
        if not isinstance(name, str):
            raise TypeError(f'name the tool: @desk.tool("{getattr(name, "__name__", "its_name")}")')
        return tool(name, **how)

    def resume(self, run: str, *, wait_seconds: float = 0) -> Run:
        """The run, to be gone on with as the desk says: use it with `with`, from its `state`.

        Calls that are done answer their first result, undone ones get a new key. Entering it raises
        Stopped if the desk wants the run to stop, AmendsError if it wants nothing; it waits for so
        long for the desk to want something.
        """
        return Run(self, run, told=None, directive_seconds=wait_seconds)

    def closing(self, *, seconds: float = FLUSH_SECONDS) -> Steps[None]:
        """Send what waits if the desk is there, and let go. The spool keeps the rest.

        A process that ends without it does the same at its exit. Twice is once.
        """
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self._at_exit)
        yield from called(self._let_go, seconds)

    close = waits(closing)

    async def aclose(self, *, seconds: float = FLUSH_SECONDS) -> None:
        """The same, awaited; what this event loop has opened is closed, too."""
        await self.async_driver.run(self.closing(seconds=seconds))
        await self.async_driver.close()

    def _let_go(self, seconds: float) -> None:
        self.sender.flush(seconds)
        self.sender.close()
        self.async_driver.let_go()
        self.wire.close()
        self.spool.close()

    def __enter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def connect(url: str | None = None, key: str | None = None, **options: Any) -> Desk:
    """The desk at AMENDS_URL under AMENDS_KEY, with the options of `Desk`."""
    url, key = url or os.environ.get("AMENDS_URL"), key or os.environ.get("AMENDS_KEY")
    if not url or not key:
        raise AmendsError(
            "set AMENDS_URL and AMENDS_KEY, or give url and key: Settings → Agents and keys"
        )
    return Desk(url, key, **options)


def _heed_sigterm() -> None:
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(signum: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever asks twice is in a hurry
    raise Terminated(SHELL_SIGNAL + signum)


def _close_at_exit(desk: weakref.ref[Desk], process: int) -> None:
    living = desk()
    # A child that was forked since has something of its own to send where it has sent anything.
    if living is not None and (process == os.getpid() or living.sender.is_at_work):
        living.close()


def default_spool(url: str, key: str) -> Path:
    """One file per address, however that is written, and key, which does not tell either."""
    given = os.environ.get("AMENDS_SPOOL")
    if given:
        return Path(given)
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    as_given, found = (
        state / "amends" / f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.sqlite"
        for told in (f"{url}\n{key}", f"{trimmed(url)}\n{key}")
    )
    return as_given if as_given.exists() else found  # which an older client may have named so
