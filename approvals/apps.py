from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    name = "approvals"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Each registers itself: for a signal, a check of the system, a log that went back, an end.
        from approvals import pauses, signatures, team_coverage, versions
        from approvals.gate import covered_questions
        from approvals.interchange import aap
        from approvals.policy import active_policies
