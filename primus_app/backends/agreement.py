"""Ranks that must go one way together, though what decides may be seen by one of them alone."""

import torch
import torch.distributed as dist


def all_well(well: bool, device: torch.device) -> bool:
    """Whether it is ``well`` on every rank; all call it together."""
    answer = torch.tensor(int(well), device=device)
    if dist.is_initialized():
        dist.all_reduce(answer, dist.ReduceOp.MIN)
    return bool(answer.item())
