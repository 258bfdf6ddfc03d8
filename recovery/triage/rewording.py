"""Words by which cases are found, as a version put them together that kept no secrets apart in
them: put together anew, some at a time. Who is not shown secrets finds none by them until then.
"""

from django.db import connection

from ledger import finding

AT_A_TIME = 1_000
ROUNDS_MAX = 20
TARGETS_MAX = 50
WALKED = "SELECT id FROM recovery_case WHERE id > %s ORDER BY id LIMIT %s"
OLD = f"""
SELECT c.id, c.xmin::text || c.ctid::text,
    concat_ws(E'\\n', c.headline, c.failed_tool, c.failed_target, c.customer,
    r.run, r.customer_name, coalesce(a.error, r.error) ->> 'type',
    coalesce(a.error, r.error) ->> 'message',
    (SELECT string_agg(target_id, E'\\n') FROM (
        SELECT e.target_id FROM ledger_action x JOIN ledger_effect e ON e.action_id = x.id
        WHERE x.run_id = r.id LIMIT {TARGETS_MAX}) touched),
    r.request)
FROM recovery_case c JOIN ledger_run r ON r.id = c.run_id
LEFT JOIN ledger_action a ON a.id = c.failed_action_id
WHERE c.id = ANY(%s) AND c.search IS NOT NULL AND NOT c.search @@ $q$'{finding.MARK}'$q$::tsquery"""  # noqa: S608 - our own words
# Only what is still as it was read: an erasure may have come between.
PUT = f"""
UPDATE recovery_case SET search = {finding.WORDS}
WHERE id = %s AND xmin::text || ctid::text = %s"""  # noqa: S608


class Walk:
    """Through all cases, and again. How far it came is this process's own."""

    def __init__(self) -> None:
        self._after = 0

    def goes_on(self) -> int:
        """Look at some; at more as long as there is something to do. Returns how many it put
        together anew.
        """
        done = 0
        for _ in range(ROUNDS_MAX):
            found = self._next()
            done += found
            if not found:
                break
        return done

    def _next(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute(WALKED, [self._after, AT_A_TIME])
            walked = [pk for (pk,) in cursor.fetchall()]
            self._after = walked[-1] if len(walked) == AT_A_TIME else 0
            cursor.execute(OLD, [walked])
            done = 0
            for pk, row, text in cursor.fetchall():
                cursor.execute(PUT, [*finding.told_and_secret(text), pk, row])
                done += cursor.rowcount
        return done


walk = Walk()
