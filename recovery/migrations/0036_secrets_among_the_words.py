"""Card numbers, account numbers and tokens stand among the words by which runs and cases are found
so that only those find by them who are shown them: what was put together before is put together
anew. Runs are by the ledger's job, a second or two behind.
"""

from django.db import migrations

from ledger import disclosure, finding

SUSPECTED = (
    r"'([a-z]{2}[0-9]{2}|[2-6][0-9]{12}|(sk|rk|tok|pat|gh[posu]|glpat|xox[a-z])['-]|akia|eyj)"
)
RUNS_AT_A_TIME = 5_000
RUNS = """
UPDATE ledger_run SET search_revision = 0
WHERE id >= %s AND id < %s AND search_revision > 0 AND search::text ~ %s"""
CASES_AT_A_TIME = 200
CASES = """
SELECT c.id, concat_ws(' ', c.headline, c.failed_tool, c.failed_target, c.customer, r.run,
    r.customer_name, coalesce(a.error, r.error) ->> 'type', coalesce(a.error, r.error) ->> 'message',
    (SELECT string_agg(target_id, ' ') FROM (
        SELECT e.target_id FROM ledger_action x JOIN ledger_effect e ON e.action_id = x.id
        WHERE x.run_id = r.id LIMIT 50) touched),
    r.request)
FROM recovery_case c JOIN ledger_run r ON r.id = c.run_id
LEFT JOIN ledger_action a ON a.id = c.failed_action_id
WHERE c.id > %s AND c.search::text ~ %s ORDER BY c.id LIMIT %s"""


def hide(apps, schema_editor):
    Case = apps.get_model("recovery", "Case")
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(min(id), 0), coalesce(max(id), -1) FROM ledger_run")
        first, last = cursor.fetchone()
        for start in range(first, last + 1, RUNS_AT_A_TIME):
            cursor.execute(RUNS, [start, start + RUNS_AT_A_TIME, SUSPECTED])
        before = 0
        while True:
            cursor.execute(CASES, [before, SUSPECTED, CASES_AT_A_TIME])
            found = cursor.fetchall()
            for pk, text in found:
                if disclosure.holds_secret(text):
                    Case.objects.filter(pk=pk).update(search=finding.words(text))
            if len(found) < CASES_AT_A_TIME:
                return
            before = found[-1][0]


HOLDS_UP = {
    "update-in-batches": "5,000 runs at a time, each batch its own transaction, and of these only"
    " the few that may hold a secret.",
}


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("ledger", "0008_runs_of_which_actions_are_erased"),
        ("recovery", "0035_cases_without_their_letter"),
    ]
    operations = [migrations.RunPython(hide, migrations.RunPython.noop)]
