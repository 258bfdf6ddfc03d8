"""Pauses: what is stopped. While one stands, `begin` is denied, and but for those of an agent or a
run, whose effects are still undone, no step is claimed; a run of which no call may begin is told to
stop when it asks what is wanted of it.

A log that went back pauses its workspace by itself. A database that forgot events may have
forgotten intents, answers and withdrawals, too. The sealer finds it (ledger/sealer.py), and the
pause stands in the same transaction: no step is claimed, no grant is given or used. Channels are
told, and every page has the banner. Lifting it is the acknowledgement, an administrator's alone.
Of such a database, and of one restored from a backup, a grant that looks unused may have been used,
and a call that is not known may have been made: people are asked anew (`void_grants`), and in a run
that lived then (`mark_runs`) the gate answers `in_doubt` to what it does not know.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import (
    CharField,
    Count,
    F,
    Func,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
)
from django.db.models.fields.tuple_lookups import TupleGreaterThanOrEqual
from django.db.models.functions import Coalesce, Now

from amends.protocol.vocabulary import EventType, glob_matches
from approvals import approval_requests, inventory, signals
from approvals.models import (
    LIVING,
    RESTORED,
    Approval,
    ApprovalState,
    GateKey,
    Pause,
    PauseKind,
    PolicyVersion,
    SubjectKind,
    pause_fits,
)
from approvals.policy import PolicyUnreadable, active, document
from connectors import channels, connections
from connectors.channels import Message
from connectors.connections import Dependents
from connectors.models import Connection
from ledger import desk_events, sealer
from ledger.fold.runs import BY_A_RESTORE
from ledger.merkle import ParsedHead
from ledger.models import Run, RunState
from workspaces import access, formatting, locks
from workspaces.free_text import NOTE_CHARACTERS_MAX, kept_text
from workspaces.models import Agent, User, Workspace
from workspaces.moves import CannotMove

STANDING_MAX = 200
BY_THE_DESK = "the desk itself"

HELD_MAX = 1_000
"""Beyond it a banner says "1 000+": it is counted for every page while a pause stands."""

LOOKED_AT_MAX = 5_000
"""Of a workspace's newest runs; where there are more, the number is one of "at least"."""


INTENTS = 0x1A7E
"""The first half of the advisory lock's key, the second is the workspace: whoever writes intents of
steps shares it, and reads under it whether a pause stands (recovery/engine/queries.py)."""
INTENTS_MILLISECONDS_MAX = 2_000
"""One that hangs keeps nobody from stopping all the others."""

UNDONE_STILL = frozenset({PauseKind.AGENT, PauseKind.RUN})


def _after_intents(workspace: Workspace) -> None:
    """Let those be committed that are being written, so that none is after the pause, unless one
    takes longer than this waits.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout')")
        (usual,) = cursor.fetchone()
        within = "SELECT set_config('lock_timeout', %s, true)"
        with suppress(OperationalError), transaction.atomic():
            cursor.execute(within, [str(INTENTS_MILLISECONDS_MAX)])
            locks.advisory(INTENTS, workspace.pk)
            cursor.execute(within, [usual])


@transaction.atomic
def pause(workspace: Workspace, kind: str, name: str = "", *, by: User, reason: str) -> Pause:
    """Stop the workspace, an agent, a tool (a glob), a connection or one run.

    Raises ValueError for a name that fits nothing, InvalidInput without a reason that can be kept,
    and CannotMove where it is paused already.
    """
    kind = PauseKind(kind)
    if (kind == PauseKind.WORKSPACE) != (not name):
        raise ValueError("a workspace is paused without a name, everything else with one")
    if kind == PauseKind.TOOL and (mistake := document.mistake(name)):
        raise ValueError(mistake)
    reason = kept_text(reason, NOTE_CHARACTERS_MAX, asking="Say why, for whoever meets the pause.")
    if kind not in UNDONE_STILL:
        _after_intents(workspace)
    row = Pause(workspace=workspace, kind=kind, name=name, paused_by=by, reason=reason)
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as already:
        raise CannotMove(row, "paused", "it is already paused") from already
    desk_events.record(workspace, EventType.PAUSE_PLACED, by=by, data=event_data(row))
    signals.publish_pauses_on_commit()
    return row


@transaction.atomic
def lift(standing_pause: Pause, *, by: User) -> None:
    """Let it go on. Raises CannotMove if somebody was faster, NotAllowed for one of the desk's own:
    that is lifted by an administrator, whose word it is that they have looked.
    """
    if standing_pause.paused_by_id is None:
        access.require(by, "administer", standing_pause.workspace)
    rows = Pause.objects.standing().filter(pk=standing_pause.pk)
    if not rows.update(lifted_at=Now(), lifted_by=by):
        raise CannotMove(standing_pause, "lifted", "it is already lifted")
    desk_events.record(
        standing_pause.workspace, EventType.PAUSE_LIFTED, by=by, data=event_data(standing_pause)
    )
    if standing_pause.paused_by_id is None:
        _believe_no_longer(standing_pause)
        desk_events.record(
            standing_pause.workspace,
            EventType.LEDGER_ACKNOWLEDGED,
            by=by,
            data=event_data(standing_pause),
        )


Acknowledged = Callable[[Pause], object]
_when_entries_are_gone: list[Acknowledged] = []


def when_entries_are_gone(tell: Acknowledged) -> Acknowledged:
    """Register what else is no longer believed, in the transaction that lifts such a pause."""
    _when_entries_are_gone.append(tell)
    return tell


def _believe_no_longer(lifted: Pause) -> None:
    """What was granted and not used before the pause is void; of runs that lived then, where it is
    known that entries are gone, each call that is not known is in doubt. A step of a plan is asked
    about outside before it is made again (docs/faults.md, F16), so plans go on; of one that nobody
    can ask about the floor above says that it may have been made.
    """
    grants = Approval.objects.filter(workspace=lifted.workspace)
    why = f"The log went back, as was found at {lifted.paused_at:%Y-%m-%d %H:%M} UTC."
    # Keys and runs are locked before approvals.
    if lifted.name.startswith(LOST):
        runs = Run.objects.filter(workspace=lifted.workspace, started_at__lt=lifted.paused_at)
        mark_runs(lifted.paused_at, runs)
        for tell in _when_entries_are_gone:
            tell(lifted)
    void_grants(why, grants.exclude(subject_kind=SubjectKind.PLAN))


def what(one: Pause) -> str:
    """`Everything here`, `Tool payments.*`: what a pause stops, for pages."""
    if one.kind == PauseKind.WORKSPACE:
        return "Everything here"
    return f"{one.get_kind_display()} {formatting.named(one.name)}"


def unknown(one: Pause) -> str:
    """That nothing here has the name which is paused, in words: it may be misspelled, and then it
    stops nothing. Empty where something has it.
    """
    here, name = one.workspace, one.name
    match one.kind:
        case PauseKind.AGENT:
            is_known = Agent.objects.filter(workspace=here, name=name).exists()
        case PauseKind.CONNECTION:
            is_known = Connection.objects.filter(workspace=here, name=name).exists()
        case PauseKind.RUN:
            is_known = Run.objects.filter(workspace=here, run=name).exists()
        case PauseKind.TOOL:
            is_known = any(glob_matches(name, tool) for tool in _tools_named(here))
        case _:
            is_known = True
    if is_known:
        return ""
    none_here = f"No {one.get_kind_display().lower()} here is called {formatting.named(name)} yet"
    return f"{none_here}: look whether it is spelled so."


def _tools_named(here: Workspace) -> Iterator[str]:
    """The tools ever seen, and those that the policy writes of."""
    yield from (tool for tool, _ in inventory.newest_of_each(here))
    with suppress(PolicyUnreadable):
        policy = active(here)
        yield from (rule.glob for rule in (*policy.rules, *policy.always))
        yield from (tool.glob for tool in policy.tools)
        yield from (twin.tool for twin in policy.twins)


def event_data(one: Pause) -> dict[str, str | int]:
    """What the record says of it; the database lifts none without an event that has its id."""
    return {"pause": one.pk, "kind": one.kind, "name": one.name, "reason": one.reason}


def standing(workspace_id: int, *, tool: str, connections: Collection[str] = ()) -> Pause | None:
    """The pause that stops a step which calls this tool over these connections, or None."""
    rows = Pause.objects.standing().filter(workspace_id=workspace_id)
    found = rows.select_related("paused_by").order_by("pk")[:STANDING_MAX]
    named: Any = {"tool": tool, "connections": connections}
    return next((one for one in found if pause_fits(one.kind, one.name, **named)), None)


def notice(approval: Approval) -> dict[str, Any] | None:
    """What stops that for which an approval is, however it is answered; None where nothing does.
    Steps of a plan are stopped by no pause of an agent or a run; of a grant nothing is said.
    """
    if approval.state not in LIVING or approval.subject_kind == SubjectKind.GRANT:
        return None
    by: Any = {"agent": str(approval.agent or ""), "run": approval.run_ref}
    if approval.subject_kind == SubjectKind.PLAN:
        by = {}
    rows = Pause.objects.standing().filter(workspace=approval.workspace_id)
    for one in rows.select_related("paused_by").order_by("pk")[:STANDING_MAX]:
        for call in approval.calls:
            tool, over = str(call["operation"]), [str(call["connection"])]
            if over == [""] and one.kind == PauseKind.CONNECTION:
                over = [one.name] if tool in tools_over(one.workspace_id, one.name).undone else []
            tool = f"{call['connection']}.{tool}" if call["connection"] else tool
            if pause_fits(one.kind, one.name, tool=tool, connections=over, **by):
                text = f"{placed_by(one)}: {formatting.plain(one.reason)}. A yes lets nothing"
                title = f"{formatting.plain(what(one))} is paused."
                return {
                    "tone": "wait",
                    "title": title,
                    "text": f"{text} through until it is lifted.",
                }
    return None


class HeldRuns(NamedTuple):
    """So many are held up; `or_more` where not all were counted."""

    runs: int
    or_more: bool

    def __str__(self) -> str:
        number = f"{formatting.count(self.runs)}{'+' if self.or_more else ''}"
        return f"{number} run{'' if number == '1' else 's'}"


def of_the_desk(workspace_id: int) -> str:
    """Why the desk itself holds everything there, in words; empty where it does not."""
    rows = Pause.objects.standing().filter(workspace_id=workspace_id, paused_by=None)
    return str(rows.order_by("-pk").values_list("reason", flat=True).first() or "")


def placed_by(one: Pause) -> str:
    return str(one.paused_by or BY_THE_DESK)


OF_TOOLS = frozenset({PauseKind.TOOL, PauseKind.CONNECTION})

# Each run's tools are gathered once, and each pattern is held against each tool once: one condition
# for each pause took minutes over 5,000 live runs and a hundred pauses.
CALLED = """
WITH used AS MATERIALIZED (
    SELECT DISTINCT a.run_id, a.tool FROM ({live}) live (id) JOIN ledger_action a
    ON a.run_id = live.id),
fits AS MATERIALIZED (
    SELECT stops.pause, known.tool FROM (SELECT DISTINCT tool FROM used) known
    JOIN unnest(%s::bigint[], %s::text[]) stops (pause, tools) ON known.tool ~ stops.tools)
SELECT fits.pause, count(DISTINCT used.run_id) FROM fits JOIN used USING (tool) GROUP BY 1"""


def held_runs(standing: Sequence[Pause]) -> list[HeldRuns]:
    """How many live runs each of these pauses of one workspace holds up, for their banners; of a
    tool or a connection those that have called such a tool: whether others will, nobody knows.

    Three statements at most, however many pauses stand.
    """
    if not standing:
        return []
    runs = Run.objects.filter(workspace=standing[0].workspace_id)
    newest = runs.order_by("-started_at", "-pk").values_list("started_at", "pk")
    oldest = newest[LOOKED_AT_MAX : LOOKED_AT_MAX + 1].first()
    if oldest is not None:
        runs = runs.filter(_at_least_as_new(*oldest))
    live = runs.filter(state=RunState.RUNNING, agent__isnull=False)
    stops = {one.pk: paused_tools(one) for one in standing if one.kind in OF_TOOLS}
    held = _that_called(live, stops) if stops else {}
    others = [one for one in standing if one.pk not in stops]
    if others:
        counts = {str(one.pk): Count("pk", filter=_held_by(one)) for one in others}
        held |= {int(pk): count for pk, count in live.aggregate(**counts).items()}
    return [
        HeldRuns(min(count, HELD_MAX), oldest is not None or count > HELD_MAX)
        for one in standing
        for count in [held.get(one.pk, 0)]
    ]


def _that_called(live: QuerySet[Run], stops: Mapping[int, str]) -> dict[int, int]:
    """For each pause how many of these runs have called a tool that its pattern fits."""
    sql, given = live.order_by().values("pk").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(CALLED.format(live=sql), [*given, list(stops), list(stops.values())])
        return dict(cursor.fetchall())


def _at_least_as_new(started_at: datetime | None, pk: int) -> Q:
    """In the order of the newest first, in which those that have not begun come before all."""
    not_begun = Q(started_at=None)
    if started_at is None:
        return not_begun & Q(pk__gte=pk)
    return not_begun | Q(TupleGreaterThanOrEqual((F("started_at"), F("pk")), (started_at, pk)))


def _held_by(one: Pause) -> Q:
    match one.kind:
        case PauseKind.AGENT:
            return Q(agent__name=one.name)
        case PauseKind.RUN:
            return Q(run=one.name)
    return Q()


def standing_in(workspace: Workspace) -> list[Pause]:
    """The pauses that stand in a workspace, the oldest first."""
    rows = Pause.objects.standing().filter(workspace=workspace)
    return list(rows.order_by("pk")[:STANDING_MAX])


def paused_tools(one: Pause) -> str:
    """The tools that the pause of a tool or of a connection stops at the gate, as a regular
    expression for PostgreSQL over whole names; one that no name fits where it stops none.
    """
    is_tool = one.kind == PauseKind.TOOL
    tools = [one.name] if is_tool else sorted(tools_over(one.workspace_id, one.name).undone)
    return document.posix(tuple(tools)) if tools else "^$a"


@connections.tells
def tools_over(workspace_id: int, connection: str) -> Dependents:
    """What the policy undoes over a connection, which its pause stops, and what it probes there."""
    try:
        twins = active(workspace_id).twins
    except (PolicyUnreadable, PolicyVersion.DoesNotExist):
        return Dependents()  # nothing begins there at all
    return Dependents(
        undone=frozenset(twin.tool for twin in twins if twin.connection == connection),
        probed=frozenset(
            twin.tool for twin in twins if twin.probe and twin.probe.connection == connection
        ),
    )


WENT_BACK = "ledger.went_back"
ALERT = EventType.ALERT_LOG_WENT_BACK
LOST, UNREADABLE = "ledger", "heads"
"""How the names of the desk's own pauses of a workspace begin: entries are gone, and nobody knows
whether any are. People's have none."""


@sealer.when_it_goes_back
def hold(workspace: Workspace, last: ParsedHead, size: int) -> None:
    """Hold everything here and tell people; once, however often it is found again."""
    lost = f"{last.size - size} of {last.size} signed entries" if size < last.size else "history"
    found = f"The ledger went back: {lost} of {last.origin} are gone or were rewritten."
    is_lost = size < last.size or not sealer.is_unreadable(last.origin)
    if not is_lost:
        found = (
            f"The head of {last.origin} that is kept outside the database cannot be read, so nobody"
            " knows whether entries of the ledger are gone."
        )
    reason = (
        f"{found} Calls that were made may be unknown here; an administrator looks, then lifts"
        " this."
    )
    data = {"origin": last.origin, "size": last.size, "left": size}
    # What a restore has lost is held already, and its pause says of which backup it is.
    restored = standing_in(workspace)[::-1] if is_lost else []
    names = [one.name for one in restored if one.name.startswith(f"{LOST} ")]
    name = next(iter(names), LOST) if is_lost else UNREADABLE
    hold_for(workspace, reason, data, part="sealer", name=name)


def hold_after_restore(
    workspace: Workspace, reason: str, data: dict[str, Any], *, taken_at: datetime
) -> None:
    """The same of one that comes from the backup of that moment. Each has a pause of its own: in
    the backup there may be one that people have lifted since, which says nothing of what is lost.
    """
    name = f"{LOST} {taken_at.astimezone(UTC).isoformat()}"
    hold_for(workspace, reason, data, part="restore", name=name)


def hold_for(
    workspace: Workspace, reason: str, data: dict[str, Any], *, part: str, name: str
) -> None:
    """The desk's own pause of a workspace whose ledger lacks what happened, and its alert. Where
    one of that name stands already, it stays.
    """
    row, is_new = Pause.objects.get_or_create(
        workspace=workspace, kind=PauseKind.WORKSPACE, name=name, lifted_at=None,
        defaults={"reason": reason, "paused_by": None},
    )  # fmt: skip
    desk_events.record(
        workspace, ALERT, part=part, data=data | {"pause": row.pk, "reason": row.reason}
    )
    message = Message(
        title=f"The ledger of {workspace.name} went back",
        text=f"{reason}\nUntil then nothing begins there, and nothing is approved or undone.",
        url=f"{settings.AMENDS_URL}/w/{workspace.slug}/policies/",
    )
    channels.announce(workspace, WENT_BACK, message, key=f"{WENT_BACK}/{row.paused_at.isoformat()}")
    if is_new:
        signals.publish_pauses_on_commit()


BATCH = 500


def void_grants(why: str, among: QuerySet[Approval] | None = None) -> int:
    """Each yes that was not used, of all or `among` some."""
    every = Approval.objects.all() if among is None else among
    rows = every.filter(state=ApprovalState.GRANTED).select_related("workspace")
    count = 0
    for approval in rows.order_by("pk").iterator(chunk_size=BATCH):
        approval_requests.void(approval, why=f"{why} Whether the grant was used is not known.")
        count += 1
    return count


def mark_runs(when: datetime, among: QuerySet[Run] | None = None) -> int:
    """Runs of agents that lived; those that recovery holds stay so: nothing begins in them. What a
    key was told of an earlier loss says nothing of this one, and is forgotten.
    """
    every = Run.objects.all() if among is None else among
    told = GateKey.objects.filter(agent__in=every.values("agent"), denied__startswith=RESTORED)
    told.update(denied="")
    goes_on = Q(held_by="") | Q(held_by__startswith=BY_A_RESTORE)
    living = every.filter(goes_on, state=RunState.RUNNING, agent__isnull=False)
    mark = f"{BY_A_RESTORE}{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return living.update(held_by=mark, revision=F("revision") + 1)


class MarkOf(Func):
    """The same mark, of the moment of a row."""

    function = "to_char"
    template = (
        f"'{BY_A_RESTORE}' || %(function)s(%(expressions)s AT TIME ZONE 'UTC',"
        """ 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"""
    )
    output_field = CharField()


def lost_since(moment: str) -> QuerySet[Pause]:
    """When the ledger here lost what happened, after the `moment` of a row; the last first."""
    lost = Pause.objects.filter(
        workspace=OuterRef("workspace"), kind=PauseKind.WORKSPACE, name__startswith=LOST,
        paused_by=None, paused_at__gt=OuterRef(moment),
    )  # fmt: skip
    return lost.order_by("-paused_at")


def still_holds() -> Coalesce:
    """What holds a run that its case lets go: nothing; or, of one that began before the ledger here
    last lost what happened, still that, for what recovery did tells nothing of what was lost.
    """
    last = lost_since("started_at").values(mark=MarkOf("paused_at"))[:1]
    return Coalesce(Subquery(last), Value(""))
