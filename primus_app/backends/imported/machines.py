"""The machines of a command, where the user says how many devices there are."""

MOST_DEVICES = 8
"""Devices of a node where the number of all devices is given: as many up to this as divide it."""


def machine_overrides(devices: int | None) -> tuple[str, ...]:
    """Nodes and devices, where --devices says how many there are."""
    if devices is None:
        return ()
    on_a_node = next(each for each in range(min(MOST_DEVICES, devices), 0, -1) if devices % each == 0)
    return (f"cluster.nodes={devices // on_a_node}", f"cluster.devices_per_node={on_a_node}")
