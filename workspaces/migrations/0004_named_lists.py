from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0003_rates'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='workspace',
            options={'default_permissions': (), 'permissions': [('view', 'Can read the queue, the runs and the ledger'), ('view_sensitive', 'Can reveal payloads; each reveal is recorded'), ('recover', 'Can compensate, resume, settle and close'), ('approve', 'Can decide on approvals'), ('administer', 'Can change members, keys, connections and policy'), ('edit_lists', 'Can change the named lists that policies ask about')]},
        ),
    ]
