"""The speed of training in the units that every engine reports."""

from typing import Any


def throughput(tokens_per_device: float, elapsed_s: float, flops_per_token: float, peak_tflops: float | None) -> dict[str, Any]:
    """tokens_per_s_per_device, tflops_per_device and mfu (None without ``peak_tflops``, the dense peak of one device).

    ``flops_per_token`` are the model's, in the convention of the plan; ``tokens_per_device`` were trained on in ``elapsed_s``, the
    tokens of all divided by the number of devices.
    """
    rate = tokens_per_device / elapsed_s
    tflops = flops_per_token * rate / 1e12
    return {"tokens_per_s_per_device": rate, "tflops_per_device": tflops, "mfu": tflops / peak_tflops if peak_tflops else None}
