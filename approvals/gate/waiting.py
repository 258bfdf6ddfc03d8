"""Waiting for people: `GET /api/v1/approvals/{id}?wait=30`.

With `heard`, the number of questions that the agent has heard, a further one ends the wait, too.

A waiter holds a future and nothing else: no thread, no database connection. One subscription per
process hears which approvals were decided; since a message may be lost, the same task also asks the
database every few seconds, one query for all waiters together.

The future is registered before the state is read. Otherwise a decision between the two would be
missed, and the agent would wait for the whole of its time.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from prometheus_client import Gauge
from redis import ConnectionError as ConnectionLost
from redis import RedisError
from redis.asyncio import Redis

from approvals import clarifications
from approvals.gate import slow_path
from approvals.models import ApprovalState, Clarification
from approvals.signals import CHANNEL
from edge import pools, sockets
from edge.asgi import (
    Receive,
    Scope,
    Send,
    answer,
    body_of,
    on_shutdown,
    query,
    refuse,
    wait_seconds,
)
from ledger.agent_keys import actor_of
from ledger.parsed_events import Actor
from workspaces.free_text import InvalidInput
from workspaces.moves import CannotMove

logger = logging.getLogger(__name__)


# `POST /api/v1/approvals/{id}/answers`: an agent answers what a person asked back.
#
# It says something and decides nothing: the words are shown as the agent's, untrusted.

BODY_BYTES_MAX = 16 * 1024


class QuestionReply(msgspec.Struct, forbid_unknown_fields=True):
    question: int
    answer: str


class Answered(msgspec.Struct):
    question: str
    answered: bool


_replies = msgspec.json.Decoder(QuestionReply)


async def reply(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer to one question of an approval of this agent; 409 where it is over."""
    actor = await actor_of(scope, "begin")
    pk = int(scope["path_params"]["id"])
    try:
        body = await body_of(scope, receive, BODY_BYTES_MAX, workspace=actor.workspace_id)
        said = _replies.decode(body)
    except msgspec.DecodeError as wrong:
        raise refuse("schema", "The body does not fit", 422, str(wrong)[:200]) from wrong
    await answer(send, 200, await slow_path.run_in_thread(_reply, pk, actor, said))


def _reply(approval: int, actor: Actor, said: QuestionReply) -> Answered:
    clarification = (
        Clarification.objects.select_related("approval__workspace", "approval__agent")
        .filter(
            pk=said.question,
            approval=approval,
            approval__workspace=actor.workspace_id,
            approval__agent=actor.agent_id,
        )
        .first()
    )
    if clarification is None:
        raise refuse("not-found", "There is no such question to this agent", 404)
    try:
        clarifications.answer_as_agent(clarification, said.answer)
    except InvalidInput as wrong:
        raise refuse("schema", "The answer cannot be kept", 422, str(wrong)) from wrong
    except CannotMove as over:
        raise refuse("over", "It cannot be answered any more", 409, str(over)) from over
    return Answered(str(clarification.pk), answered=True)


ASK_EVERY_SECONDS = 3.0
AGAIN_SECONDS_MAX = 5.0
# A subscription that was silent for so long is asked whether it still stands, and has as long again
# to answer: a broker's host that vanished says nothing, ever.
SILENT_SECONDS_MAX = 5.0
HEARD_ALL = 10**9
WAITERS_MAX = 20_000  # per process: each takes a few kilobytes

waiting_agents = Gauge(
    "amends_waiting_agents",
    "Agents that wait here for a decision.",
    multiprocess_mode="livesum",
)

# Of several approvals at once, each for the agent that asks and of its workspace alone. OFFSET 0
# has each looked up by its own key, however few rows there were when PostgreSQL planned this.
STATES = """
SELECT asks.*, told.*
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS asks (approval, workspace, agent)
CROSS JOIN LATERAL (
    SELECT CASE WHEN a.state IN ('waiting', 'granted') AND a.expires_at <= clock_timestamp()
        THEN 'expired' WHEN a.state = 'granted' AND a.not_before > clock_timestamp()
        THEN 'waiting' ELSE a.state END, a.expires_at, a.decided_at, a.closing_reason,
        (SELECT n.id FROM approvals_approval n WHERE n.replaces_id = a.id), asked.*
    FROM approvals_approval a
    CROSS JOIN LATERAL (
        SELECT count(*), json_agg(json_build_object('id', e.id::text, 'question', e.question)
            ORDER BY e.id) FILTER (WHERE e.answered_at IS NULL)
        FROM approvals_enquiry e WHERE e.approval_id = a.id) asked
    WHERE a.id = asks.approval AND a.workspace_id = asks.workspace AND a.agent_id = asks.agent
    OFFSET 0) told"""
NO_LONGER = """
SELECT id FROM approvals_approval WHERE id = ANY(%s)
AND (state <> 'waiting' OR expires_at <= clock_timestamp())
AND (not_before IS NULL OR state <> 'granted' OR not_before <= clock_timestamp())"""


class Waiters:
    """Who waits in this process, and the task that wakes them.

    Numbers of rows come over `channel`; `over` is the query that finds, among those waited for, the
    rows whose wait is over whether or not a message came.
    """

    def __init__(self, channel: str, over: str) -> None:
        self.channel, self.over = channel, over
        self._futures: dict[int, set[asyncio.Future[None]]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self._is_leaving = False
        self.count = 0
        on_shutdown(self.let_go)

    def let_go(self) -> None:
        """Everybody's time is over: they are told how it stands, and ask another process."""
        self._is_leaving = True
        for row in list(self._futures):
            self.wake(row)

    def left(self, end: float) -> float:
        """Seconds until `end` on the loop's clock; none where this process ends."""
        return 0.0 if self._is_leaving else end - asyncio.get_running_loop().time()

    @contextlib.contextmanager
    def registered(self, row: int) -> Any:
        """A future that is done when the wait for this row may be over."""
        if self.count >= WAITERS_MAX:
            raise refuse("overloaded", "Too many wait here, come back in a moment", 503)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures[row].add(future)
        self.count += 1
        self._start()
        try:
            yield future
        finally:
            self.count -= 1
            waiting = self._futures[row]
            waiting.discard(future)
            if not waiting:
                del self._futures[row]

    def wake(self, row: int) -> None:
        for future in self._futures.get(row, ()):
            if not future.done():
                future.set_result(None)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._look = asyncio.Event()
            self._task = asyncio.create_task(self._watch(), name=f"{self.channel}: who waits")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _watch(self) -> None:
        """The database is asked whatever becomes of the broker, and however long that takes."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._listen(), name=f"{self.channel}: listens")
            both.create_task(self._keep_asking(), name=f"{self.channel}: asks")

    async def _keep_asking(self) -> None:
        while True:
            self._look.clear()
            await self._ask()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_EVERY_SECONDS):
                    await self._look.wait()

    async def _listen(self) -> None:
        pause = 0.1
        while True:
            try:
                async with subscriber() as client, client.pubsub() as heard:
                    await heard.subscribe(self.channel)
                    self._look.set()  # what was said while nobody listened
                    pause = 0.1
                    await self._hear(heard)
            except (RedisError, OSError) as away:
                logger.warning("%s is not heard, only asked for: %s", self.channel, away)
                await asyncio.sleep(pause)
                pause = min(pause * 2, AGAIN_SECONDS_MAX)

    async def _hear(self, heard: Any) -> None:
        """Pass on what is said, until the connection fails or no longer answers.

        redis-py takes a connection that timed out (ETIMEDOUT, when the broker's host vanished) for
        a message that did not come in time, and says so at once, again and again: so silence that
        took no time is the end of the connection, as is a ping without an answer.
        """
        loop = asyncio.get_running_loop()
        pinged = False
        while True:
            began = loop.time()
            message = await heard.get_message(timeout=SILENT_SECONDS_MAX)
            if message is None:
                if pinged or loop.time() - began < SILENT_SECONDS_MAX / 2:
                    raise ConnectionLost("the broker no longer answers")
                await heard.ping()
                pinged = True
                continue
            pinged = False
            if message["type"] == "message" and message["data"].isdigit():
                self.wake(int(message["data"]))
            elif message["type"] == "message":  # signals.LOOK
                self._look.set()

    async def _ask(self) -> None:
        """Wake those whose wait is over, whether or not a message came."""
        ids = list(self._futures)
        if not ids:
            return
        try:
            async with pools.pool().connection() as connection:
                cursor = await connection.execute(self.over, [ids])
                for (row,) in await cursor.fetchall():
                    self.wake(row)
        except Exception:
            logger.warning("The database did not say whose wait is over", exc_info=True)


def subscriber() -> Redis:
    """A client whose connecting ends in time; reading has a limit of its own (`_hear`)."""
    url = settings.REDIS_URL
    seconds = sockets.CONNECT_SECONDS_MAX
    return Redis.from_url(url, socket_connect_timeout=seconds, **sockets.redis(url))


waiters = Waiters(CHANNEL, NO_LONGER)


class OpenQuestion(msgspec.Struct):
    """What a person asked back and the agent has not answered."""

    id: str
    question: str


class ApprovalStatus(msgspec.Struct):
    id: str
    state: str
    expires_at: str
    decided_at: str | None
    reason: str
    asked: int
    questions: list[OpenQuestion]
    url: str
    replaced_by: str


async def approval(scope: Scope, receive: Receive, send: Send) -> None:
    """The state of an approval of this agent; with `wait`, as soon as it is decided."""
    actor = await actor_of(scope, "begin")
    pk = int(scope["path_params"]["id"])
    seconds, heard = wait_seconds(scope), heard_of(scope)
    if not seconds:
        await answer(send, 200, await _state(pk, actor))
        return
    loop = asyncio.get_running_loop()
    end, went = loop.time() + seconds, asyncio.ensure_future(gone(receive))
    try:
        found = await _waited(pk, actor, end, went, heard)
    finally:
        went.cancel()
    await answer(send, 200, found)


async def _waited(
    pk: int, actor: Actor, end: float, went: asyncio.Future[None], heard: int
) -> ApprovalStatus:
    while True:
        if went.done():
            raise refuse("disconnected", "The client went away", 400)
        with waiters.registered(pk) as decided:
            found = await _state(pk, actor)
            left = waiters.left(end)
            if found.state != ApprovalState.WAITING or left <= 0 or found.asked > heard:
                return found
            with waiting_agents.track_inprogress():
                await asyncio.wait(
                    {decided, went}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )


def heard_of(scope: Scope) -> int:
    """How many questions the agent knows of; who does not say is not woken by them."""
    given = query(scope, "heard", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else HEARD_ALL  # noqa: PLR2004


async def gone(receive: Receive) -> None:
    """Returns when the client has gone away, so that nobody waits for a closed connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Asker(NamedTuple):
    """Which approval, and who asks of it."""

    approval: int
    workspace: int
    agent: int | None


async def _look_up(asked: list[Asker]) -> dict[Asker, tuple[Any, ...]]:
    columns = [list(column) for column in zip(*asked, strict=True)]
    async with pools.AutocommitConnection() as connection:
        rows = await (await connection.execute(STATES, columns)).fetchall()
    return {Asker(*row[:3]): row[3:] for row in rows}


_states = pools.Together(_look_up)


async def _state(pk: int, actor: Actor) -> ApprovalStatus:
    row = await _states.ask(Asker(pk, actor.workspace_id, actor.agent_id))
    if row is None:
        raise refuse("not-found", "There is no such approval of this agent", 404)
    state, expires_at, decided_at, reason, after, asked, questions = row
    return ApprovalStatus(
        str(pk),
        state,
        expires_at.isoformat(),
        decided_at.isoformat() if decided_at else None,
        reason,
        asked,
        [OpenQuestion(**one) for one in questions or ()],
        f"{settings.AMENDS_URL}/w/{actor.workspace}/approvals/{pk}/",
        str(after or ""),
    )
