"""What the estimates assume of the world, and what is done with them."""

from primus_app.config.schema.base import Section, how


class PlanConfig(Section):
    """Assumptions behind the plan's predictions."""

    allow_oom: bool = how(False, "Whether a run that is predicted to need more memory than its devices have is started all the same.")
    failures_per_node_day: float = how(
        3.8e-3, "How often one node fails in a day (Kokolis et al., arXiv 2410.21680: 3.8e-3 on 16,000 A100).", unit="failures", ge=0
    )
    restart_s: float = how(
        300.0, "Time from a failure to the next step, without the steps that are lost; the default is an assumption.", unit="s", ge=0
    )
    checkpoint_gb_s: float = how(
        1.0,
        "Speed at which one node writes its part of a checkpoint (arXiv 2407.21783, section 3.3: storage sustains 2 TB/s for 2,048 nodes).",
        unit="GB/s",
        gt=0,
    )
