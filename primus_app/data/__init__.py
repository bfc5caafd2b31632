"""Corpora, tokenizers and the order of samples: what every rank of every backend reads, decided by (seed, index) alone."""

from primus_app.data.prepare import prepare
from primus_app.data.prepared import PreparedData, SplitData
from primus_app.data.samples import Sample, Samples, open_samples

__all__ = ["PreparedData", "Sample", "Samples", "SplitData", "open_samples", "prepare"]
