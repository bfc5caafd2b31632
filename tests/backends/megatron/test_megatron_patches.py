"""The corrections of megatron-core do what they say, and fail loudly where what they change is gone."""

import os
import signal
import subprocess
import sys
import time
from types import ModuleType

import psutil
import pytest

from primus_app.backends.megatron import patches, writer_queue
from primus_app.backends.megatron.patches import PATCHES

QUEUE = """
import os, sys, time
from primus_app.backends.megatron.writer_queue import apply_writer_queue
apply_writer_queue()
import megatron.core.dist_checkpointing.strategies.filesystem_async as writer
queue = writer._get_write_results_queue()
assert writer._get_write_results_queue() is queue
if os.fork() == 0:
    queue.put({0: ["written"]})
    os._exit(0)
os.wait()
print(queue.get_nowait(), flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_the_writers_queue_dies_with_its_rank() -> None:
    """Results of a forked writer arrive; after kill -9 of the rank nothing of it is left."""
    rank = subprocess.Popen([sys.executable, "-W", "ignore", "-c", QUEUE], stdout=subprocess.PIPE, text=True)
    assert rank.stdout
    assert rank.stdout.readline() == "{0: ['written']}\n"
    managers = psutil.Process(rank.pid).children()
    assert len(managers) == 1
    os.kill(rank.pid, signal.SIGKILL)
    rank.wait()
    end = time.monotonic() + 15
    while any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in managers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in managers)


@pytest.mark.parametrize(
    ("module", "place", "apply", "name"),
    [
        (writer_queue, "_writer", writer_queue.apply_writer_queue, writer_queue.WRITER_QUEUE_ID),
        (patches, "_latent_attention", patches.apply_latent_linear, patches.LATENT_LINEAR_ID),
    ],
)
def test_what_is_gone_is_named(monkeypatch: pytest.MonkeyPatch, module: ModuleType, place: str, apply: object, name: str) -> None:
    monkeypatch.setattr(module, place, lambda: ModuleType("emptied"))
    assert callable(apply)
    with pytest.raises(RuntimeError, match=name):
        apply()


def test_every_patch_says_why_and_when() -> None:
    for patch in PATCHES:
        assert patch.id.startswith("megatron-")
        assert patch.reason.endswith(".")
        assert patch.condition
        assert patch.target


ENGINE = """
import sys, torch
from primus_app.backends.megatron.device import engine_imports
from primus_app.backends.megatron.patches import no_engine
assert not engine_imports()
torch.cuda.is_available = lambda: True
assert not engine_imports() and no_engine()
sys.modules["megatron.core.extensions.transformer_engine"].HAVE_TE = True
assert engine_imports() and not no_engine()
"""


@pytest.mark.slow
def test_megatrons_own_word_decides_over_layers_and_corrections() -> None:
    """Whether Transformer Engine came in when it was imported, with an accelerator there."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", ENGINE], check=True)
