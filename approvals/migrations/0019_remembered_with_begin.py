"""What a call holds and which values it has is written by one function, with the call itself.

Sums are read before: where somebody has written one since, nothing is written at all, and whoever
asked looks again. So no two calls are let pass by the same sum.
"""

from django.db import migrations

REMEMBER = """
CREATE FUNCTION gate_remember(
    until timestamptz, here bigint, of_agent bigint, under_key text, in_run text, by_action text,
    is_held boolean, meters text[], subjects text[], seen_at timestamptz[], sums text[],
    buckets bigint[], amounts numeric[], settled bigint[], fields text[], had text[],
    looking_like text[], for_person text
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    kept bigint;
BEGIN
    IF until IS NULL THEN
        RETURN NULL;
    END IF;
    WITH said AS (
        SELECT * FROM unnest(meters, subjects, seen_at, sums, buckets, amounts)
            AS u (meter, subject, seen_at, sums, bucket, amount)
    ), tally AS (
        INSERT INTO approvals_tally AS t
            (workspace_id, meter, subject, buckets, since, touched_at)
        SELECT here, s.meter, s.subject, s.sums::jsonb, clock_timestamp(),
            coalesce(s.seen_at, clock_timestamp())
        FROM said s ORDER BY s.meter, s.subject
        ON CONFLICT (workspace_id, meter, subject) DO UPDATE
            SET buckets = excluded.buckets, touched_at = clock_timestamp()
            WHERE t.touched_at = excluded.touched_at
        RETURNING t.id, t.meter, t.subject
    ), done AS (
        DELETE FROM approvals_reservation r WHERE r.id = ANY (settled)
    ), reserved AS (
        INSERT INTO approvals_reservation
            (tally_id, agent_id, key, run_ref, action, bucket, amount, held, at)
        SELECT t.id, of_agent, under_key, in_run, by_action, s.bucket, s.amount, is_held,
            clock_timestamp()
        FROM tally t JOIN said s ON s.meter = t.meter AND s.subject = t.subject
        ON CONFLICT (tally_id, agent_id, key) DO UPDATE SET run_ref = excluded.run_ref,
            action = excluded.action, bucket = excluded.bucket, amount = excluded.amount,
            held = excluded.held, at = excluded.at
    ), seen AS (
        INSERT INTO approvals_sighting
            (workspace_id, field, value, shape, agent_id, person, run_ref, action, at)
        SELECT here, u.field, u.value, u.shape, of_agent, for_person, in_run, by_action,
            clock_timestamp()
        FROM unnest(fields, had, looking_like) AS u (field, value, shape)
    )
    SELECT count(*) INTO kept FROM tally;
    IF kept < cardinality(meters) THEN
        RAISE EXCEPTION 'another call was counted meanwhile'
            USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN until;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("approvals", "0018_decided_on_the_record")]

    operations = [
        migrations.RunSQL(
            REMEMBER,
            "DROP FUNCTION gate_remember(timestamptz, bigint, bigint, text, text, text, boolean,"
            " text[], text[], timestamptz[], text[], bigint[], numeric[], bigint[], text[],"
            " text[], text[], text)",
        )
    ]
