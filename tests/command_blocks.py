"""The commands that the user guide shows, and what runs each of them.

A command is a line that begins with ``$`` in a block marked ``console``. ``GUIDE_PAGES`` are run to
the letter, one after the other on one stack, by ``tests/e2e/test_user_guide.py``, which starts and
ends the stack by ``STACK``; the README's are among them. What needs another cluster is in
``RUN_ELSEWHERE``, with the test that runs it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_BLOCK = re.compile(r"^( *)```console\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^ *\$ (.*)$", re.MULTILINE)

UP: Final = "dray up --control-plane real --detach"
DOWN: Final = "dray down"
STACK: Final = (UP, "dray up --detach", "export KUBECONFIG=…", DOWN)
_CI: Final = "tools/ci/stages.py"
_PAGE: Final = (
    "tests/packaging/helm/test_install_page.py::test_three_commands_lead_to_a_running_pod"
)
_PAGES: Final = (
    "tests/packaging/helm/test_install_page.py::"
    "test_the_pages_of_upgrades_and_the_uninstallation_hold"
)
_LIFE: Final = "tests/packaging/helm/test_life.py::test_"
_TYPED: Final = "tests/packaging/helm/test_command_line.py::"
RUN_ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = {
    "make demo": (_CI, 'CiStage("make demo"'),
    "make test": (_CI, 'CiStage("make test"'),
    "make images": (_CI, 'CiStage("make images BASE=debian"'),
    "make node-packages": (_CI, 'CiStage("make node-packages"'),
    "dray completion fish": ("tests/shells/test_completion.py", '"dray completion fish | source"'),
    "helm install": (_PAGE, "run([*install, *SIMULATED]"),
    "helm install dray ./deploy/helm/dray -n dray-system --create-namespace --set nats": (
        f"{_LIFE}a_second_installation_works_with_three_servers_of_nats",
        'empty.install(*SIMULATED, "--set", "nats.replicas=3")',
    ),
    "kubectl apply -f examples/07-installed": (_PAGE, "run(apply)"),
    "kubectl wait --for=condition=Ready pod/my-gpu-workload": (_PAGE, "run(wait"),
    "kubectl exec": (_PAGE, 'kubectl("exec", "my-gpu-workload", "--", "env")'),
    "helm upgrade": (_PAGES, 'commands_of("docs/upgrade.md")'),
    "helm test": (_PAGES, "run(command.split()"),
    "helm rollback": (_PAGES, "run(command.split()"),
    "helm uninstall": (_PAGES, "run(uninstall.split()"),
    "kubectl logs job/dray-uninstall": (
        f"{_LIFE}an_uninstallation_is_refused_while_pods_use_gpus",
        'kubectl("logs", "job/dray-uninstall"',
    ),
    "kubectl delete crd": (
        f"{_LIFE}an_uninstallation_leaves_what_people_made_and_nothing_else",
        'commands_of("docs/uninstall.md")',
    ),
    "kubectl create job --from=cronjob/dray-renewal": (
        f"{_LIFE}the_daily_job_makes_again_what_was_lost",
        '"create", "job", "--from=cronjob/dray-renewal"',
    ),
    "kubectl create clusterrolebinding": (f"{_TYPED}operator", 'commands_of("docs/install.md")'),
    "kubectl create rolebinding": (f"{_TYPED}operator", 'commands_of("docs/install.md")'),
    "dray up --kubelet real": ("tests/real_node/conftest.py::real_cluster", 'kubelet="real"'),
    "dray simulate openb": ("tests/unit/simulate/test_verb.py", '["simulate", "openb", '),
    "dray record": (f"{_TYPED}recording", 'dray(operator, "record", '),
    "dray replay": (f"{_TYPED}test_a_recording_is_made_and_replayed", '"replay", str(recording)'),
}
"""How commands begin that need another cluster, or files that are not part of dray; the test or the
file that runs them; and how they are written there."""
NOT_RUN: Final = ("docker push",)
"""Commands of other programs that need what no test has: a registry of images."""


@dataclass(frozen=True, slots=True)
class GuidePage:
    """A page whose commands are run in the checkout."""

    path: str
    words: Mapping[str, str] = field(default_factory=dict)
    """What stands for the names that the page leaves to the reader."""
    before: str = ""
    """Makes what the page takes for granted."""
    after: str = ""
    """Removes it."""

    def script(self) -> str:
        """Its commands for bash; ``FOLDER`` is for files that they write."""
        commands = "\n".join(line for line in commands_of(self.path) if not is_left_out(line))
        for word, meant in self.words.items():
            assert word in commands, f"{self.path} does not say {word}"
            commands = commands.replace(word, meant)
        return f"{self.before}\n{commands}\n{self.after}\n"


def _pod(name: str, *annotations: str) -> str:
    """Create a pod on the first pod's pool, and wait until it runs."""
    stated = ",".join(
        f'"tensor-fusion.ai/{one}"' for one in ('gpupool": "my-gpu-pool', *annotations)
    )
    overrides = f'{{"metadata": {{"annotations": {{{stated}}}}}}}'
    return f"kubectl run {name} --image=app --overrides='{overrides}'\n{_wait(name)}"


def _wait(name: str) -> str:
    return f"kubectl wait --for=condition=Ready pod/{name} --timeout=2m"


_ALLOCATED = (
    "timeout 30 bash -c 'until kubectl get resourceclaim -o yaml | grep allocated; "
    "do sleep 0.1; done'"
)
_READY_AGAIN = "timeout 60 bash -c 'until dray status >/dev/null; do sleep 0.1; done'"
_QUEUE = """
kubectl apply -f - <<'END'
{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"}}
END
"""
_GROUP = """
kubectl apply -f - <<'END'
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: train}
spec: {minMember: 4}
END
"""
_POOL = """
kubectl label node sim-3 tensor-fusion.ai/gpupool-
kubectl apply -f - <<'END'
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata: {name: training}
spec: {schedulingConfigTemplate: default-scheduling-config, dedicated: true}
END
"""
_MOVED = """
kubectl apply -f - <<'END'
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata: {name: moved}
spec: {schedulingConfigTemplate: default-scheduling-config}
END
"""
GUIDE_PAGES: Final = (
    GuidePage(
        "docs/user-guide/local-stack.md",
        words={"kill allocator": f"kill allocator\n{_READY_AGAIN}"},
    ),
    GuidePage(
        "README.md",
        words={
            "source .venv/bin/activate": "type dray",
            "kubectl get pods,": f"{_wait('my-workload')}\nkubectl get pods,",
            "kubectl get resourceclaim -o yaml | grep allocated": _ALLOCATED,
        },
        after="kubectl delete -f examples/01-quick-start/04-pods.yaml",
    ),
    GuidePage("docs/user-guide/first-pod.md"),
    GuidePage("docs/user-guide/fractions.md"),
    GuidePage("docs/user-guide/several-gpus.md"),
    GuidePage(
        "docs/user-guide/annotations.md",
        before=_pod("train", 'dedicated-gpu": "true'),
    ),
    GuidePage(
        "docs/user-guide/troubleshooting.md",
        words={"pod/NAME": "pod/train", "pod NAME": "pod train", "-n NAMESPACE": "-n default"},
        after="kubectl delete pod train",
    ),
    GuidePage("docs/user-guide/groups.md", before=_GROUP + _QUEUE),
    GuidePage(
        "docs/user-guide/pools.md",
        words={"node n1": "node sim-3", "everything": "training", "theirs": "training"}
        | {"gpupool NAME": "gpupool training"},
        before=_POOL,
    ),
    GuidePage(
        "docs/user-guide/allocate.md",
        words={"--filename -": "--filename - < tests/vectors/alloc-sample.jsonl"},
    ),
    GuidePage("docs/user-guide/simulate.md"),
    GuidePage("docs/cel.md", words={"dray cel check": "! dray cel check"}),
    GuidePage("docs/drivers.md"),
    GuidePage("docs/migration.md"),
    GuidePage(
        "docs/backup.md",
        words={
            "pools.yaml": "$FOLDER/pools.yaml",
            "kubectl apply": "kubectl delete gpupool moved\nkubectl apply",
        },
        before=_MOVED,
        after="kubectl get gpupool moved\nkubectl delete gpupool moved",
    ),
    GuidePage("docs/install.md"),
    GuidePage("docs/high-availability.md"),
    GuidePage("docs/upgrade.md"),
    GuidePage("docs/uninstall.md"),
)


def commands_of(path: str) -> list[str]:
    """The commands of a page, without comments."""
    blocks = _BLOCK.findall((ROOT / path).read_text("utf-8"))
    lines = (line for _, block in blocks for line in _COMMAND.findall(block))
    return [re.sub(r"  +# .*$", "", line) for line in lines]


def is_left_out(command: str) -> bool:
    """Whether the test of the guide runs it as the stack's own, or another test does."""
    return command in STACK or command.startswith((*RUN_ELSEWHERE, *NOT_RUN))
