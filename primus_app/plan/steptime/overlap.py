"""Communication beside computing: how much of it each engine hides."""

import numpy as np

from primus_app.plan.workload import Number

HIDING = 0.8
"""How much of the time computed is there to hide communication under: it has to wait for its input, and both share the device."""
SLOWED = 0.21
"""What hidden communication costs the computing beside it, of its own time: cores and memory bandwidth that it uses."""


def exposed_s(communication: Number, computing: Number) -> Number:
    """Seconds that communication which runs beside ``computing`` adds to it."""
    hidden = np.minimum(communication, HIDING * computing)
    return communication - (1 - SLOWED) * hidden
