"""A real RabbitMQ for the length of a story (Debian: `rabbitmq-server`)."""

import os
from pathlib import Path

from tests.ports import free_port
from tests.processes import Processes

_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
RABBITMQ = _SERVER if _SERVER.exists() else None


def rabbitmq(processes: Processes, address: str) -> str:
    """Started at that address, with folders and names of its own; its URL, as BROKER_URL has it."""
    folder = processes.folder / "rabbitmq"
    folder.mkdir()
    port, names = free_port(), free_port()
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.default = {address}:{port}\nloopback_users = none\n"
        "log.console = true\nlog.file = false\n"
    )
    (folder / "plugins").write_text("[].\n")
    environment = {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"amends{os.getpid()}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    processes.run("epmd", ["epmd", "-address", "127.0.0.1", "-port", str(names)])
    running = processes.run("rabbitmq", [str(RABBITMQ)], **environment)
    running.wait_until(lambda: "Server startup complete" in running.said())
    return f"amqp://guest:guest@{address}:{port}//"
