"""What fine-tuning asks for: weights to start from and responses to learn; and where attention then stops."""

from primus_app.config.errors import Problem
from primus_app.config.schema import Config

POST = "training.stage=post checkpoint.load=… data=instructions data.path=… fine-tunes given weights"
WEIGHTS = "checkpoint.load=… names a run directory, one of its step folders, or a Hugging Face folder with safetensors"


def check_stage(config: Config) -> list[Problem]:
    """Stage, data and first weights go together."""
    training, instructions = config.training, config.data.source == "instructions"
    problems = []
    if training.stage == "post" and config.checkpoint.load is None:
        problems.append(Problem("training.stage", "post starts from given weights, and none are given.", (WEIGHTS,)))
    if training.stage == "post" and not instructions:
        what = f"post learns responses, and data.source={config.data.source} has none."
        fix = ("data=instructions data.path=… reads prompts with responses", "training.stage=pre checkpoint.load=… goes on with text")
        problems.append(Problem("training.stage", what, fix))
    if training.stage == "pre" and instructions:
        problems.append(Problem("data.source", "instructions are learnt by fine-tuning, and training.stage is pre.", (POST,)))
    if training.document_mask and instructions:
        what = "has no effect with data.source=instructions: examples never attend to each other."
        problems.append(Problem("training.document_mask", what, ("leave it out",)))
    return problems


def stops_at_borders(config: Config) -> bool:
    """Whether attention stops at the borders of documents, or of the examples that share a window."""
    return config.training.document_mask or (config.data.source == "instructions" and config.data.packing)
