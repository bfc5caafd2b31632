"""Samples in the order of the design, as TorchTitan's data loader: rank and micro batch only choose which part to read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer

from primus_app.data.prepared import PreparedData, SplitName
from primus_app.data.samples import open_samples


class SampleLoader(BaseDataLoader):
    """Yields micro batches {"input": [B, s], "positions": [B, s]}, labels [B, s]; int64. TorchTitan passes over labels of -100.

    Its state is the number of samples that all ranks together have read, so it means the same under any layout.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        prepared: dict[str, Any]
        split: SplitName
        seed: int
        document_mask: bool
        infinite: bool = True  # Asked for by TorchTitan's validator; a split never runs out here.

    def __init__(self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **unused: Any) -> None:
        prepared = PreparedData.from_dict(config.prepared)
        self._samples = open_samples(prepared, config.split, seq_len=seq_len, seed=config.seed, document_mask=config.document_mask)
        self._batch = local_batch_size
        self._stride = local_batch_size * dp_world_size
        self._offset = local_batch_size * dp_rank
        self._read = 0

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            first = self._read + self._offset
            samples = [self._samples.sample(first + place) for place in range(self._batch)]
            tokens = torch.from_numpy(np.stack([sample.tokens for sample in samples]))
            positions = torch.from_numpy(np.stack([sample.positions for sample in samples]))
            labels = torch.from_numpy(np.stack([sample.labels for sample in samples]))
            self._read += self._stride
            yield {"input": tokens[:, :-1].contiguous(), "positions": positions}, labels

    def state_dict(self) -> dict[str, Any]:
        return {"global_samples": self._read}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._read = state_dict["global_samples"]


class NoTokenizer(BaseTokenizer):
    """Stands where TorchTitan builds a tokenizer: tokens come from the prepared data."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config, *, tokenizer_path: str) -> None:
        super().__init__()

    def encode(self, *args: Any, **kwargs: Any) -> list[int]:
        raise NotImplementedError("the prepared data is tokens already")

    def decode(self, *args: Any, **kwargs: Any) -> str:
        raise NotImplementedError("the prepared data is tokens already")

    def get_vocab_size(self) -> int:
        raise NotImplementedError("the model's configuration knows its vocabulary")
