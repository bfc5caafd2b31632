"""Which accelerators this machine offers, read from the kernel and nvidia-smi without importing torch."""

import ast
import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from primus_app.config.errors import ExitCode, Problem, UserError

UNKNOWN = "unknown"
"""``Devices.hardware`` where no file of conf/hardware/ describes the cards; deliberately not the name of one."""

KFD_NODES = "sys/class/kfd/kfd/topology/nodes"
NVIDIA_SMI_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Devices:
    """What was found. ``count`` is 1 on a CPU: one process.

    ``unknown`` names a card that no file of conf/hardware/ describes; ``hardware`` is then UNKNOWN and ``nearest`` the file most like it.
    ``unused`` says why accelerators that are in the machine are not counted (no right to open them, torch built without them).
    """

    hardware: str
    count: int
    names: tuple[str, ...]
    memory_gib: float
    unknown: str | None = None
    nearest: str | None = None
    unused: str | None = None

    @property
    def option(self) -> str:
        """What hardware=auto stands for; auto itself where conf/hardware/ has nothing for the cards."""
        return self.hardware if self.unknown is None else "auto"


@dataclass(frozen=True)
class Card:
    """One device as the operating system shows it; ``hardware`` is None where conf/hardware/ has no file for it."""

    name: str
    hardware: str | None
    nearest: str | None
    uuid: str = ""


@dataclass(frozen=True)
class TorchBuild:
    """What the installed torch can drive."""

    version: str
    cuda: bool
    hip: bool


AMD_CARDS: Mapping[int, tuple[str, str | None, int]] = {
    # PCI device id: name, file of conf/hardware/, XCDs (num_xcc) of the undivided device. Ids from pci.ids; VF = virtual function.
    0x7408: ("MI250X", "mi250x", 1),
    0x740C: ("MI250X", "mi250x", 1),
    0x740F: ("MI210", None, 1),
    0x74A0: ("MI300A", None, 6),
    0x74A1: ("MI300X", "mi300x", 8),
    0x74B5: ("MI300X VF", "mi300x", 8),
    0x74A5: ("MI325X", "mi325x", 8),
    0x74B9: ("MI325X VF", "mi325x", 8),
    0x75A0: ("MI350X", "mi350x", 8),
    0x75A3: ("MI355X", "mi355x", 8),
}
MI250_SIMDS = 416
"""The MI250 shares 0x740c with the MI250X but has 104 compute units a GCD (4 SIMDs each), not 110."""

NEAREST_BY_GFX = {"gfx90a": "mi250x", "gfx942": "mi300x", "gfx950": "mi355x"}

NVIDIA_CARDS = (
    # Only the boards whose figures conf/hardware/ holds: the PCIe and NVL ones and the GH200, GB200 have others.
    (re.compile(r"\bA100-SXM\d?-80GB\b"), "a100"),
    (re.compile(r"\bH100 80GB HBM3\b"), "h100"),
    (re.compile(r"\bH200$"), "h200"),
    (re.compile(r"\bB200$"), "b200"),
)
NVIDIA_FAMILIES = (("A100", "a100"), ("H100", "h100"), ("H200", "h200"), ("B200", "b200"), ("B300", "b200"))


def detect_devices(
    root: Path = Path("/"), environment: Mapping[str, str] | None = None, *, torch: TorchBuild | None = None, nvidia_smi: str = "nvidia-smi"
) -> Devices:
    """The accelerators that a run started here would use.

    ``root`` is the folder that holds sys/ and dev/, ``environment`` has the *_VISIBLE_DEVICES (default: this process's),
    ``torch`` what the installed torch can drive (default: read from its files).
    """
    variables = os.environ if environment is None else environment
    build = torch or installed_torch()
    amd, closed = amd_cards(root)
    amd = visible_amd(amd, variables)
    # A processor's own AMD graphics beside an NVIDIA card: the torch that is installed says which of them trains.
    amd_trains = bool(amd) and not (build and build.cuda and not build.hip)
    nvidia = [] if amd_trains else visible_nvidia(nvidia_cards(nvidia_smi), variables)
    amd = [] if nvidia else amd
    cards = amd or nvidia
    memory_gib = host_memory_gib(root)
    if cards and build and not (build.hip if amd else build.cuda):
        reason = f"{_tally(cards)}, but the installed torch {build.version} is built without {'ROCm' if amd else 'CUDA'}"
        return Devices("cpu", 1, (), memory_gib, unused=reason)
    if not cards:
        return Devices("cpu", 1, (), memory_gib, unused=closed)
    return _described(cards, memory_gib)


def known_hardware(devices: Devices) -> str:
    """The file of conf/hardware/ for ``devices``. Raises UserError where there is none, instead of taking another card's figures."""
    if devices.unknown is None:
        return devices.hardware
    like = f"; nearest: {devices.nearest}" if devices.nearest else ""
    name = devices.nearest or "cpu"
    raise UserError(
        Problem(
            "hardware",
            f"no conf/hardware entry for {devices.unknown}{like}",
            (f"say which figures to use: hardware={name}", f"or describe the card in a file of its own, like conf/hardware/{name}.yaml"),
        ),
        ExitCode.UNFIT_MACHINE,
    )


def _described(cards: list[Card], memory_gib: float) -> Devices:
    names = tuple(card.name for card in cards)
    if len(set(names)) > 1:
        return Devices(UNKNOWN, len(cards), names, memory_gib, unknown=_tally(cards), nearest=cards[0].hardware or cards[0].nearest)
    first = cards[0]
    if first.hardware is None:
        return Devices(UNKNOWN, len(cards), names, memory_gib, unknown=first.name, nearest=first.nearest)
    return Devices(first.hardware, len(cards), names, memory_gib)


def _tally(cards: list[Card]) -> str:
    names = [card.name for card in cards]
    return " and ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def amd_cards(root: Path) -> tuple[list[Card], str | None]:
    """The AMD devices in ROCm's order, and why there are none although the kernel knows some."""
    nodes = [node for node in map(_properties, _node_files(root)) if node.get("simd_count", 0) > 0]
    reachable = [node for node in nodes if _is_reachable(root, node)]
    closed = f"{len(nodes)} AMD devices, but /dev/kfd or /dev/dri/renderD* cannot be opened from here" if nodes and not reachable else None
    return [amd_card(node) for node in reachable], closed


def _node_files(root: Path) -> list[Path]:
    folders = [folder for folder in (root / KFD_NODES).glob("*") if folder.name.isdigit()]
    return [folder / "properties" for folder in sorted(folders, key=lambda folder: int(folder.name))]


def _properties(file: Path) -> dict[str, int]:
    """The lines ``key value``; empty where the container may not see the card (its file then cannot be read)."""
    try:
        pairs = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _is_reachable(root: Path, node: Mapping[str, int]) -> bool:
    render = root / "dev/dri" / f"renderD{node.get('drm_render_minor', 0)}"
    return all(os.access(file, os.R_OK | os.W_OK) for file in (root / "dev/kfd", render))


def amd_card(node: Mapping[str, int]) -> Card:
    """The card that a KFD node's properties describe."""
    device_id = node.get("device_id", 0)
    gfx = gfx_name(node.get("gfx_target_version", 0))
    nearest = NEAREST_BY_GFX.get(gfx)
    uuid = f"GPU-{node.get('unique_id', 0):016x}"
    if device_id not in AMD_CARDS:
        return Card(f"AMD device {device_id:#06x} ({gfx})", None, nearest, uuid)
    name, hardware, num_xcc = AMD_CARDS[device_id]
    if device_id == 0x740C and node.get("simd_count") == MI250_SIMDS:
        return Card("MI250", None, nearest, uuid)
    part = node.get("num_xcc", num_xcc)
    if part < num_xcc:
        return Card(f"{name} divided into partitions of {part} of {num_xcc} XCDs", None, hardware or nearest, uuid)
    return Card(name, hardware, nearest, uuid)


def gfx_name(target_version: int) -> str:
    """KFD's number, major * 10000 + minor * 100 + stepping, as the compiler writes it: 90402 is gfx942, 90010 is gfx90a."""
    return f"gfx{target_version // 10000}{target_version // 100 % 100:x}{target_version % 100:x}"


def nvidia_cards(nvidia_smi: str) -> list[Card]:
    """The NVIDIA devices, none where nvidia-smi is absent, fails or does not answer."""
    command = [nvidia_smi, "--query-gpu=name,uuid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.rpartition(",") for line in answer.stdout.splitlines() if line.strip()] if answer.returncode == 0 else []
    return [nvidia_card(name.strip(), uuid.strip()) for name, _, uuid in rows]


def nvidia_card(name: str, uuid: str = "") -> Card:
    """The card of this name, as nvidia-smi writes it: ``NVIDIA H100 80GB HBM3``."""
    hardware = next((file for pattern, file in NVIDIA_CARDS if pattern.search(name)), None)
    nearest = next((file for family, file in NVIDIA_FAMILIES if family in name), None)
    return Card(name, hardware, nearest, uuid)


def visible_amd(cards: list[Card], environment: Mapping[str, str]) -> list[Card]:
    """ROCR_VISIBLE_DEVICES chooses first; HIP_VISIBLE_DEVICES, else CUDA_VISIBLE_DEVICES, counts among what is left."""
    chosen = _chosen(cards, environment.get("ROCR_VISIBLE_DEVICES"))
    return _chosen(chosen, environment.get("HIP_VISIBLE_DEVICES", environment.get("CUDA_VISIBLE_DEVICES")))


def visible_nvidia(cards: list[Card], environment: Mapping[str, str]) -> list[Card]:
    """CUDA_VISIBLE_DEVICES chooses; a slice of a card (MIG) has no figures of its own, so it is a card without an entry."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if cards and chosen and chosen.startswith("MIG-"):
        whole = cards[0]
        return [Card(f"a MIG slice of {whole.name}", None, whole.hardware or whole.nearest) for _ in chosen.split(",")]
    return _chosen(cards, chosen)


def _chosen(cards: list[Card], value: str | None) -> list[Card]:
    """The cards that a *_VISIBLE_DEVICES names by index or UUID; as in the drivers, the first name that fits none ends the list."""
    if value is None:
        return cards
    chosen: list[Card] = []
    for word in (part.strip() for part in value.split(",")):
        card = _named(cards, word)
        if card is None or any(card is taken for taken in chosen):
            break
        chosen.append(card)
    return chosen


def _named(cards: list[Card], word: str) -> Card | None:
    if word.isdigit():
        return cards[int(word)] if int(word) < len(cards) else None
    matches = [card for card in cards if word and card.uuid.lower().startswith(word.lower())]
    return matches[0] if len(matches) == 1 else None


def installed_torch() -> TorchBuild | None:
    """What the installed torch was built for, from the text of its version.py; None where that cannot be told."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        return torch_build((Path(spec.origin).parent / "version.py").read_text())
    except (OSError, SyntaxError):
        return None


def torch_build(source: str) -> TorchBuild:
    """Read ``__version__``, ``cuda`` and ``hip`` from the source of torch/version.py."""
    values: dict[str, object] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.AnnAssign | ast.Assign) and isinstance(statement.value, ast.Constant):
            targets = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
            values.update({target.id: statement.value.value for target in targets if isinstance(target, ast.Name)})
    return TorchBuild(str(values.get("__version__", "")), values.get("cuda") is not None, values.get("hip") is not None)


def host_memory_gib(root: Path = Path("/")) -> float:
    """The host's memory, or the container's limit where that is less (cgroup v2)."""
    total = psutil.virtual_memory().total
    try:
        limit = int((root / "sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        limit = total
    return min(total, limit) / 2**30
