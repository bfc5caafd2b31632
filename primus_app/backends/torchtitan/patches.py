"""TorchTitan's entries in the registry of corrections, in the order in which they are applied."""

from primus_app.backends.patches import Patch
from primus_app.backends.torchtitan.device import DEVICE_PATCHES
from primus_app.backends.torchtitan.pipeline_patch import PIPELINE_PATCHES
from primus_app.backends.torchtitan.shape_pass_patch import SHAPE_PASS_PATCHES
from primus_app.backends.torchtitan.trainer_patches import TRAINER_PATCHES

PATCHES: tuple[Patch, ...] = (*DEVICE_PATCHES, *PIPELINE_PATCHES, *SHAPE_PASS_PATCHES, *TRAINER_PATCHES)
