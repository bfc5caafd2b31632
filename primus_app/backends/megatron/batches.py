"""Samples in the order of the design, as Megatron's schedules ask for them: rank and micro batch only choose which part to read."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from primus_app.backends.megatron.attention import sequence_places
from primus_app.data.samples import AnySamples, Sample


@dataclass(frozen=True)
class Share:
    """What part of the samples a rank reads: its place among the data parallel ranks, and among those that divide a sequence."""

    micro_batch_size: int
    dp_rank: int
    dp: int
    cp_rank: int
    cp: int


@dataclass(frozen=True)
class MicroBatch:
    """``tokens``, ``labels`` and ``positions`` [b, s of this context rank]; int64.

    ``learned`` [b, s of this rank], float32, is 1 for each label that counts towards the loss and 0 for others; None where all do.
    ``starts`` [b, whole s] is the place of the first token of each token's document, None where attention crosses documents.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    starts: torch.Tensor | None
    learned: torch.Tensor | None = None


def micro_batches(
    samples: AnySamples, first: int, number: int, share: Share, *, document_mask: bool, device: torch.device
) -> Iterator[MicroBatch]:
    """``number`` micro batches of this rank, of the samples from global index ``first`` on."""
    size = share.micro_batch_size
    for place in range(number):
        begin = first + (place * share.dp + share.dp_rank) * size
        yield _micro_batch(samples, range(begin, begin + size), share, document_mask, device)


def learned_tokens(samples: AnySamples, first: int, number: int, share: Share) -> int:
    """How many labels of the same micro batches count towards the loss, over whole sequences."""
    size, total = share.micro_batch_size, 0
    for place in range(number):
        begin = first + (place * share.dp + share.dp_rank) * size
        for sample in map(samples.sample, range(begin, begin + size)):
            total += len(sample.positions) if sample.learned is None else int(sample.learned.sum())
    return total


def _micro_batch(samples: AnySamples, indices: range, share: Share, document_mask: bool, device: torch.device) -> MicroBatch:
    read = [samples.sample(index) for index in indices]
    tokens = torch.from_numpy(np.stack([sample.tokens for sample in read])).to(device)
    positions = torch.from_numpy(np.stack([sample.positions for sample in read])).to(device)
    seq_len = positions.shape[1]
    starts = torch.arange(seq_len, device=device) - positions if document_mask else None
    places = sequence_places(seq_len, share.cp_rank, share.cp).to(device)
    inputs, labels, learned = tokens[:, :-1], tokens[:, 1:], _learned(read, device)
    if share.cp > 1:
        inputs, labels, positions = inputs[:, places], labels[:, places], positions[:, places]
        learned = learned[:, places] if learned is not None else None
    return MicroBatch(inputs.contiguous(), labels.contiguous(), positions.contiguous(), starts, learned)


def _learned(read: list[Sample], device: torch.device) -> torch.Tensor | None:
    masks = [sample.learned for sample in read if sample.learned is not None]
    return torch.from_numpy(np.stack(masks)).to(device, torch.float32) if masks else None
