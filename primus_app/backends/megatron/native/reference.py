"""Megatron's part of docs/native-options.md, made from the tables: what may be passed through, and whose everything else is."""

from primus_app.backends.megatron.native.check import options_of
from primus_app.backends.megatron.native.options import OPTIONS
from primus_app.backends.megatron.native.owned import OWNED
from primus_app.backends.megatron.native.refused import REFUSED
from primus_app.backends.megatron.pretrain.native import NOT_KNOWN, arguments_of
from primus_app.backends.megatron.pretrain.table import said_names
from primus_app.backends.megatron.versions import TESTED, tested_range
from primus_app.backends.native.page import owned_table, passed_table, refused_table

CORE = """\
## Megatron-core

`backend=megatron` passes fields of Megatron's configurations through, by the name of the configuration and the field's own: `transformer`
is TransformerConfig (MLATransformerConfig with latent attention), `ddp` DistributedDataParallelConfig, `optimizer` OptimizerConfig. So
`primus backend=megatron parallel=fsdp cluster.devices_per_node=2
backend.native.ddp.overlap_grad_reduce=true backend.native.ddp.bucket_size=10000000`. Fields are those of the megatron-core that is there;
{versions} are recorded (`./scripts/record-megatron-fields`). `native/megatron.json` in the run directory shows what Megatron received.
"""

PRETRAIN = """\
## Megatron-LM's own trainer

`backend=megatron backend.runner=pretrain` takes arguments of Megatron-LM by their names without the first dashes, as of
{version}: `backend.native.manual_gc=true` adds `--manual-gc`. A flag takes true; false takes one out that this program gives by itself,
such as `--overlap-grad-reduce` on accelerators. `native/megatron.args` in the run directory shows all. An argument that is not listed
here is refused: it is set by a key of ours, or by this program, or it {not_known}.
"""


def megatron_part() -> list[str]:
    """Paragraphs of Markdown."""
    newest = {name: option for series in TESTED["core"] for name, option in options_of(_version(series)).passed.items()}
    pretrain = _version(TESTED["pretrain"][-1])
    arguments = arguments_of(pretrain, tuple(sorted(said_names().items())))
    return [
        CORE.format(versions=tested_range("core")),
        "### Fields passed through\n",
        passed_table({name: newest[name] for name in OPTIONS}),
        "### Fields set by a key of ours\n",
        owned_table(OWNED),
        "### Fields refused\n",
        refused_table(REFUSED),
        PRETRAIN.format(version=pretrain, not_known=NOT_KNOWN),
        "### Arguments passed through\n",
        passed_table(arguments.passed),
    ]


def _version(series: tuple[int, int]) -> str:
    return f"{series[0]}.{series[1]}.0"
