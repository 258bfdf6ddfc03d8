from django.apps import AppConfig
from django.contrib.staticfiles.apps import StaticFilesConfig


class ProjectConfig(AppConfig):
    name = "config"
    verbose_name = "Amends"

    def ready(self) -> None:
        from config import checks  # registers them
        from workspaces import fresh_login  # hears of each proof


class CollectedFilesConfig(StaticFilesConfig):
    """Leaves out the htmx extensions: one names a file that does not exist, and none is used."""

    ignore_patterns = [
        *StaticFilesConfig.ignore_patterns,
        "ext",
    ]
