"""How long a training step takes: arithmetic over a workload, a layout or arrays of layouts, and a kind of device."""
