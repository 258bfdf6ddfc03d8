from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0011_reviews'),
    ]

    operations = [
        migrations.AddField(
            model_name='approval',
            name='not_before',
            field=models.DateTimeField(help_text='Approved for later: until then its call waits', null=True),
        ),
    ]
