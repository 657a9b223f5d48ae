"""The node-agent's settings; the groups common to all services are in ``dray.runtime``."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from dray.runtime.settings import Duration, Settings, SettingsGroup
from dray_node_agent.gpus.reader import DEADLINE_S
from dray_node_agent.gpus.simulated_gpus import MODELS


class NodeGroup(SettingsGroup):
    """The node, its GPUs and the folders that it shares with the kubelet."""

    name: str = Field(min_length=1, max_length=253, description="the name of this agent's Node")
    board: Literal["nvml", "simulated"] = "nvml"
    model: str = "H100"
    """Model of simulated GPUs."""
    count: int = Field(default=8, ge=0, le=256)
    """Number of simulated GPUs."""
    mig: str = ""
    """MIG profile of the instances into which simulated GPUs are divided, such as ``1g.10gb``;
    empty: they are not divided."""
    load: str = ""
    """How busy simulated GPUs are, such as ``20-90/300s``: between 20 and 90 percent, in waves of
    300 s; empty: they are idle."""
    driver_root: Path | None = None
    """Mount point of the file system in which NVIDIA's driver is installed; absent: this one."""
    driver_host_root: Path = Path("/")
    """The same folder on the node: ``/``, or ``/run/nvidia/driver`` with the GPU operator."""
    sysfs: Path = Path("/sys")
    """Where the kernel describes the PCI bus."""
    health_file: Path | None = None
    """File that lists unhealthy simulated GPUs; default: ``unhealthy`` in the state folder."""
    stand_in_device: Path | None = None
    """Device file of the node, such as ``/dev/fuse``, that containers see as ``/dev/nvidia0`` and
    so on for simulated GPUs; default: they see no device file."""
    mps_template: Path | None = None
    """File with the manifest of an MPS daemon's pod; absent: MPS can't be used here."""
    device_plugin: bool = False
    """Whether this agent is also a device plugin, for pods without Dynamic Resource Allocation."""
    device_plugins_dir: Path = Path("/var/lib/kubelet/device-plugins")
    pod_resources_socket: Path | None = None
    """Socket on which the kubelet says which containers have which devices; default:
    ``pod-resources/kubelet.sock`` in the parent of ``plugins_dir``."""
    plugins_dir: Path = Path("/var/lib/kubelet/plugins")
    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    cdi_dir: Path = Path("/var/run/cdi")
    token_file: Path = Path("/var/run/secrets/dray-nats/token")
    """The service account's token for NATS, projected with the audience ``dray-nats``."""
    state_dir: Path = Path("/var/lib/dray/node-agent")
    """Checkpoint and record; must survive reboots."""
    poll: Duration = 1.0
    """How often the GPUs are read."""
    usage: Duration = 5.0
    """How often the use of the GPUs is read, for the metrics."""
    resync: Duration = 30.0
    """How often the slices are compared with the API server when nothing changed."""
    patience: Duration = 5.0
    """How long a node's first start waits for its pool before it publishes slices without one."""
    sweep: Duration = 600.0
    """How often prepared claims are compared with the API server."""
    nvml_timeout: Duration = DEADLINE_S
    """How long reading all GPUs may take before the agent says that the driver hangs."""
    grace: Duration = 5.0
    """How long calls in flight may take when the agent stops."""

    @property
    def pod_resources(self) -> Path:
        """The socket of the kubelet's pod resources API."""
        usual = self.plugins_dir.parent / "pod-resources" / "kubelet.sock"
        return self.pod_resources_socket or usual

    @field_validator("model")
    @classmethod
    def _can_be_simulated(cls, model: str) -> str:
        if model not in MODELS:
            raise ValueError(f"expected one of {', '.join(MODELS)}")
        return model


class NodeAgentSettings(Settings):
    """Everything the node-agent reads from the environment or its TOML file."""

    node: NodeGroup = Field(description="this node; at least DRAY_NODE__NAME")
