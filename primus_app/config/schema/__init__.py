"""The configuration as pydantic models; conf/config.yaml shows the same keys with the same defaults."""

from primus_app.config.schema.estimates import PlanConfig
from primus_app.config.schema.model import MlaConfig, ModelConfig, MoeConfig, RopeScaling
from primus_app.config.schema.place import BackendConfig, ClusterConfig, HardwareConfig, ParallelConfig
from primus_app.config.schema.recipe import DataConfig, OptimizerConfig, PrecisionConfig, TrainingConfig
from primus_app.config.schema.root import CheckpointConfig, Config, LoggingConfig

__all__ = [
    "BackendConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "Config",
    "DataConfig",
    "HardwareConfig",
    "LoggingConfig",
    "MlaConfig",
    "ModelConfig",
    "MoeConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "PlanConfig",
    "PrecisionConfig",
    "RopeScaling",
    "TrainingConfig",
]
