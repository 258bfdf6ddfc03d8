"""A pause that the desk itself places, and keys at the gate that cannot be emptied away."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# The gate takes back a key that it met in this very transaction; old ones are let go by age. Any
# other guards against a second effect, and whoever could remove it could have it made twice.
GUARD = """
CREATE FUNCTION gate_key_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.met_at >= transaction_timestamp()
        OR OLD.met_at < transaction_timestamp() - interval '399 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'a key at the gate is let go by age alone' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER gate_key_stays BEFORE DELETE ON approvals_gatekey
    FOR EACH ROW EXECUTE FUNCTION gate_key_stays();
"""


class Migration(migrations.Migration):
    dependencies = [("approvals", "0017_asked_once_per_run")]

    operations = [
        migrations.AlterField(
            model_name="pause",
            name="paused_by",
            field=models.ForeignKey(
                help_text="NULL: the desk itself, until an administrator has looked",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.RunSQL(
            GUARD,
            "DROP TRIGGER gate_key_stays ON approvals_gatekey; DROP FUNCTION gate_key_stays;",
        ),
    ]
