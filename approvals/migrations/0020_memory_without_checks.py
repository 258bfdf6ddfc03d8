"""What rules remember is written with each call, and by nobody else: its owners need no check.

A tally is there because the same statement wrote it, and of a workspace that is gone nobody calls.
"""

import django.db.models.deletion
from django.db import migrations, models

HOLDS_UP = {
    "ban-drop-constraint": "the version before writes these rows by the same function, and reads"
    " them by their tally or workspace alone",
}


def unchecked(model: str, name: str, to: str, constraint: str) -> migrations.SeparateDatabaseAndState:
    """Whose foreign key is dropped by its name, as every desk has it."""
    key = models.ForeignKey(to, django.db.models.deletion.CASCADE, db_constraint=False, db_index=False)
    drop = f"ALTER TABLE approvals_{model} DROP CONSTRAINT {constraint}"
    add = (
        f"ALTER TABLE approvals_{model} ADD CONSTRAINT {constraint} FOREIGN KEY ({name}_id)"
        f" REFERENCES {to.replace('.', '_')} (id) DEFERRABLE INITIALLY DEFERRED NOT VALID"
    )
    return migrations.SeparateDatabaseAndState(
        [migrations.RunSQL(drop, add)], [migrations.AlterField(model, name, key)]
    )


class Migration(migrations.Migration):
    dependencies = [("approvals", "0019_remembered_with_begin")]

    operations = [
        unchecked("reservation", "tally", "approvals.tally", "approvals_reservation_tally_id_30282686_fk_approvals_tally_id"),
        unchecked("sighting", "workspace", "workspaces.workspace", "approvals_sighting_workspace_id_46263c87_fk_workspace"),
        unchecked("tally", "workspace", "workspaces.workspace", "approvals_tally_workspace_id_ab27ae4a_fk_workspace"),
    ]
