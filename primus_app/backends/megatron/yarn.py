"""Megatron's configuration with yarn's numbers, which GPTModel reads of it by names that it has no fields for."""

from dataclasses import dataclass

from megatron.core.transformer.transformer_config import TransformerConfig


@dataclass
class YarnTransformerConfig(TransformerConfig):
    """For plain attention; latent attention's configuration has fields of its own."""

    yarn_rotary_scaling_factor: float = 1.0
    yarn_original_max_position_embeddings: int = 4096
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    yarn_mscale: float | None = None
    yarn_mscale_all_dim: float | None = None
    yarn_correction_range_round_to_int: bool = True
