"""How much memory this process has used at most: of the accelerator, or on a CPU of the machine."""

import resource
import sys


def peak_rss_bytes() -> int:
    """The largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB.
