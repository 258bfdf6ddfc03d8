"""What is done again and again for the desk as a whole."""

from config.watch import LOOK_SECONDS, Watch
from workspaces.periodic import SWEEPER, every

every(LOOK_SECONDS, name="desk.watch")(Watch().look)
every(LOOK_SECONDS, name="desk.watch_too", process=SWEEPER)(Watch().look)
