"""Whether the processes of a run can find one another on this machine: a container without network may lack even that."""

import socket

from primus_app.config.errors import Problem

TIMEOUT_S = 5.0


def check_loopback() -> list[Problem]:
    """A problem when a connection to 127.0.0.1 cannot be made."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=TIMEOUT_S).close()
    except OSError as error:
        what = f"this machine cannot connect to itself: 127.0.0.1: {error.strerror or error}; the processes of a run meet there"
        return [Problem("loopback interface", what, ("ip link set lo up",))]
    return []
