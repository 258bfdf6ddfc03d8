"""Three models have the field's names now. Their tables keep theirs."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("approvals", "0018_pauses_of_the_desk")]

    operations = [
        migrations.AlterModelTable("Enquiry", "approvals_enquiry"),
        migrations.RenameModel("Enquiry", "Clarification"),
        migrations.AlterModelTable("Told", "approvals_told"),
        migrations.RenameModel("Told", "NotificationRecord"),
        migrations.AlterModelTable("Wish", "approvals_wish"),
        migrations.RenameModel("Wish", "ConsentRequest"),
        migrations.AlterModelOptions("Clarification", {}),
        migrations.AlterModelOptions("ConsentRequest", {}),
    ]
