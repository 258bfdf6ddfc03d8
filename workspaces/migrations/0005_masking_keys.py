"""A masking key for every workspace, sealed like credentials; what tells masked values apart."""

from typing import Any

from django.db import migrations, models

from workspaces.models import new_masking_key


def give_keys(apps: Any, schema_editor: Any) -> None:
    # On the connection that has just altered the table: any other would wait for it for ever.
    workspaces = apps.get_model("workspaces", "Workspace").objects
    workspaces = workspaces.using(schema_editor.connection.alias)
    for one in workspaces.filter(masking_key=None).only("pk").iterator():
        workspaces.filter(pk=one.pk).update(masking_key=new_masking_key())


class Migration(migrations.Migration):
    dependencies = [("workspaces", "0004_who_brought_whom_in")]

    operations = [
        migrations.AddField(
            model_name="workspace",
            name="mask_shows_last4",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Of cards and IBANs, for who may see payloads",
            ),
        ),
        migrations.AddField(
            model_name="workspace", name="masking_key", field=models.BinaryField(null=True)
        ),
        migrations.RunPython(give_keys, migrations.RunPython.noop),
        migrations.AlterField(
            model_name="workspace",
            name="masking_key",
            field=models.BinaryField(
                default=new_masking_key,
                help_text="Sealed; what tells masked values apart is made with it",
            ),
        ),
    ]
