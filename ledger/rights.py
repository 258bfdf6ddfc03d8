"""Rights: what the role may do as which the desk runs, and what it may not.

The third append-only guard of the ledger, behind queryset and triggers: whoever gets at the
runtime's database connection, and past the triggers, cannot change or remove an entry either, for
the role lacks the right.
Partitions are reached through their parent alone, so the role has no right on them of its own.

Nothing of Django's here: the tests' servers use it as well.
"""

from typing import Any

from psycopg import sql

# Entries and the log over them, and the ids by which an event is known to have come before; and
# what a team is called, for a policy names it. Everything else is working state.
GROWING = (
    "ledger_event", "ledger_leaf", "ledger_treenode", "ledger_treehead",
    "ledger_eventkey", "ledger_eventconflict", "approvals_listchange", "workspaces_team",
)  # fmt: skip
# The registries of what was erased and let go, of migrations, and of what each right is called:
# written by the owner alone.
READ = (
    "ledger_erasure", "ledger_thinning", "django_migrations", "auth_permission",
    "django_content_type",
)  # fmt: skip


class AllBut(tuple[str, ...]):
    """Every column of a table, also one that a later version adds, but these."""

    __slots__ = ()


# What was asked, who must answer, what people answered, what a policy says, what was paused and
# with what the log is signed is written once; only how it goes on may change. By triggers a moment
# only moves away, a second team is the one of the rule, and who stands where, by which key and in
# whose right changes with what tells of it.
MOVING = {
    "approvals_approval": (
        "was", "state", "decided_at", "used_at", "closing_reason", "closed_by_id", "remind_at",
        "reminded_at", "accepts_changed_arguments", "used_by", "not_before", "escalate_at",
        "escalated_at",
    ),
    "approvals_requirement": ("escalated_to_id",),
    "approvals_decision": ("requirement_id",),
    "ledger_logkey": ("retired_at",),
    "approvals_pause": ("lifted_at", "lifted_by_id"),
    "approvals_policyversion": (
        "author_id", "activated_at", "active", "shadow_since", "unmet", "looked_at",
    ),
    "approvals_brokenglass": ("opened_at", "reviewed_at", "reviewed_by_id", "review"),
    "approvals_grantuse": ("run_ref", "action", "amount", "at"),
    "approvals_signingkey": ("removed_at", "sign_count"),
    "approvals_listentry": ("until",),
    "approvals_namedlist": ("version", "digest", "count"),
    "approvals_wish": ("answer", "note", "answered_at"),
    "workspaces_act": ("taken_in_at",),
    "workspaces_agent": ("description",),
    "workspaces_apikey": ("last_used_at", "revoked_at"),
    "workspaces_delegation": ("begun_at", "ended_at", "ended_by_id", "end"),
    "workspaces_directorytoken": ("last_used_at", "revoked_at"),
    "workspaces_persontoken": ("last_used_at", "revoked_at"),
    "workspaces_secret": (),  # sealed anew by the owner, so that none takes another's place
    "workspaces_workspace": AllBut(("id", "slug", "created_at", "founder_id", "masking_key")),
}  # fmt: skip
# An act goes once the ledger has it, which a trigger asks; a secret where another is entered.
LET_GO = ("workspaces_act", "workspaces_secret")

TABLES = """
SELECT c.relname, c.relkind = 'S', ARRAY(
    SELECT a.attname::text FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
    AND NOT c.relispartition ORDER BY 1"""
# PostgreSQL finds a session's own temporary table before ours of the same name, so a trigger would
# believe what a stranger has written into theirs.
GUARDS = """
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.pronamespace = current_schema()::regnamespace AND p.prorettype = 'trigger'::regtype
    AND pg_has_role(p.proowner, 'USAGE') AND NOT EXISTS (
        SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')"""
MAY_CHANGE = """
SELECT t.name FROM unnest(%s::text[]) AS t (name)
WHERE to_regclass(t.name) IS NOT NULL
    AND (has_table_privilege(t.name, 'UPDATE') OR has_table_privilege(t.name, 'DELETE')
         OR has_table_privilege(t.name, 'TRUNCATE'))"""

MAY = """
SELECT c.relname, c.relkind = 'S',
    CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, 'USAGE')
         ELSE has_table_privilege(c.oid, 'SELECT') END,
    c.relkind <> 'S' AND has_table_privilege(c.oid, 'INSERT'),
    c.relkind <> 'S' AND has_any_column_privilege(c.oid, 'UPDATE'),
    c.relkind <> 'S' AND has_table_privilege(c.oid, 'DELETE')
FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
    AND NOT c.relispartition ORDER BY 1"""


def grant(cursor: Any, role: str) -> None:
    """Give a role what the runtime needs and no more; the cursor is of the tables' owner."""
    who = sql.Identifier(role)
    cursor.execute("SELECT current_schema()")
    schema = sql.Identifier(cursor.fetchone()[0])
    cursor.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, who))
    cursor.execute(TABLES)
    for name, is_sequence, columns in cursor.fetchall():
        table = sql.Identifier(name)
        if is_sequence:
            cursor.execute(sql.SQL("GRANT USAGE, SELECT ON SEQUENCE {} TO {}").format(table, who))
        else:
            cursor.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(table, who))
            rights = _rights_on(name, columns)
            cursor.execute(sql.SQL("GRANT {} ON {} TO {}").format(rights, table, who))
    cursor.execute(GUARDS)
    for (guard,) in cursor.fetchall():
        cursor.execute(
            sql.SQL("ALTER FUNCTION {} SET search_path = pg_catalog, {}, pg_temp").format(
                sql.SQL(guard), schema
            )
        )


def _rights_on(name: str, columns: list[str]) -> sql.Composable:
    if name in READ:
        return sql.SQL("SELECT")
    if name in GROWING:
        return sql.SQL("SELECT, INSERT")
    if name in MOVING:
        moving = MOVING[name]
        if isinstance(moving, AllBut):
            moving = tuple(one for one in columns if one not in moving)
        which = sql.SQL(", ").join(map(sql.Identifier, moving))
        changed = sql.SQL(", UPDATE ({})" if moving else "").format(which)
        more = sql.SQL(", DELETE" if name in LET_GO else "")
        return sql.SQL("SELECT, INSERT{}{}").format(changed, more)
    return sql.SQL("SELECT, INSERT, UPDATE, DELETE")


def changeable(cursor: Any) -> list[str]:
    """Which tables that only grow the cursor's own role could change, if it were not for us."""
    cursor.execute(MAY_CHANGE, [[*GROWING, *READ, *(set(MOVING) - set(LET_GO))]])
    return [name for (name,) in cursor.fetchall()]


def lacking(cursor: Any) -> list[str]:
    """Tables and sequences on which the cursor's own role may not do what the desk does there."""
    cursor.execute(MAY)
    found = []
    for name, is_sequence, *may in cursor.fetchall():
        needs = (True, False, False, False) if is_sequence else _needed_on(name)
        if any(needed and not given for needed, given in zip(needs, may, strict=True)):
            found.append(name)
    return found


def _needed_on(name: str) -> tuple[bool, bool, bool, bool]:
    """SELECT, INSERT, UPDATE of at least a column, DELETE."""
    only_read, only_grows = name in READ, name in GROWING
    return (
        True,
        not only_read,
        not only_read and not only_grows and bool(MOVING.get(name, True)),
        not only_read and not only_grows and (name not in MOVING or name in LET_GO),
    )
