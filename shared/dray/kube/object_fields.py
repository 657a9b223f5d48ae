"""The fields of Kubernetes objects that ``convert`` reads. Pure.

Lists hold a hundred thousand objects, and nobody reads most fields of an object. Decoded into these
types, an object is a dict of the fields that are read. This takes half the time, and the values
need no further check. An object with another shape than in its API has to be decoded whole.
"""

from collections.abc import Mapping
from typing import Any, Final, Required, TypedDict

import msgspec

from dray.api.json_codec import MOST_CONTAINERS, containers
from dray.kube.convert_metadata import is_revision
from dray.kube.ports import BIND_REQUESTS, CLAIMS, NODES, PODS, SLICES, Object, Resource

Texts = dict[str, str] | None


class OwnerFields(TypedDict, total=False):
    """``metav1.OwnerReference``."""

    kind: str
    name: str
    uid: str
    controller: bool | None


class MetadataFields(TypedDict, total=False):
    """``metav1.ObjectMeta``."""

    name: Required[str]
    namespace: str
    uid: Required[str]
    resourceVersion: Required[str]
    creationTimestamp: str | None
    deletionTimestamp: str | None
    labels: Texts
    annotations: Texts
    ownerReferences: list[OwnerFields] | None
    finalizers: list[str] | None
    managedFields: msgspec.Raw


class ResourceRequirementsFields(TypedDict, total=False):
    """``v1.ResourceRequirements``."""

    limits: Texts
    requests: Texts


class PortFields(TypedDict, total=False):
    """``v1.ContainerPort``."""

    containerPort: int
    hostIP: str
    hostPort: int
    protocol: str


class ContainerFields(TypedDict, total=False):
    """``v1.Container``."""

    name: str
    ports: list[PortFields] | None
    resources: ResourceRequirementsFields | None
    restartPolicy: str | None
    restartPolicyRules: list[dict[str, Any]] | None


class NameField(TypedDict):
    """The name of an item in a list."""

    name: str


class TolerationFields(TypedDict, total=False):
    """``v1.Toleration`` and ``resource.DeviceToleration``."""

    key: str
    operator: str
    value: str
    effect: str
    tolerationSeconds: int | None


class SpreadFields(TypedDict, total=False):
    """``v1.TopologySpreadConstraint``."""

    whenUnsatisfiable: str


class PodClaimFields(TypedDict, total=False):
    """``v1.PodResourceClaim`` and its status."""

    name: Required[str]
    resourceClaimName: str | None
    resourceClaimTemplateName: str | None


class RequirementFields(TypedDict, total=False):
    """``v1.NodeSelectorRequirement``."""

    key: Required[str]
    operator: Required[str]
    values: list[str] | None


class TermFields(TypedDict, total=False):
    """``v1.NodeSelectorTerm``."""

    matchExpressions: list[RequirementFields] | None
    matchFields: list[RequirementFields] | None


class NodeSelectorFields(TypedDict):
    """``v1.NodeSelector``."""

    nodeSelectorTerms: list[TermFields] | None


class LabelSelectorFields(TypedDict, total=False):
    """``metav1.LabelSelector``."""

    matchLabels: Texts
    matchExpressions: list[RequirementFields] | None


class PodAffinityTermFields(TypedDict, total=False):
    """``v1.PodAffinityTerm``."""

    labelSelector: LabelSelectorFields | None
    namespaces: list[str] | None
    namespaceSelector: dict[str, Any] | None
    topologyKey: str


class PodAffinityFields(TypedDict, total=False):
    """``v1.PodAffinity`` and ``v1.PodAntiAffinity``."""

    requiredDuringSchedulingIgnoredDuringExecution: list[PodAffinityTermFields] | None


class NodeAffinityFields(TypedDict, total=False):
    """``v1.NodeAffinity``."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeSelectorFields | None


class AffinityFields(TypedDict, total=False):
    """``v1.Affinity``."""

    nodeAffinity: NodeAffinityFields | None
    podAffinity: PodAffinityFields | None
    podAntiAffinity: PodAffinityFields | None


class PodSpecFields(TypedDict, total=False):
    """``v1.PodSpec``."""

    affinity: AffinityFields | None
    containers: list[ContainerFields] | None
    hostNetwork: bool
    hostUsers: bool | None
    initContainers: list[ContainerFields] | None
    nodeName: str
    nodeSelector: Texts
    overhead: Texts
    priority: int | None
    resourceClaims: list[PodClaimFields] | None
    resources: ResourceRequirementsFields | None
    schedulerName: str
    schedulingGates: list[NameField] | None
    schedulingGroup: dict[str, Any] | None
    tolerations: list[TolerationFields] | None
    topologySpreadConstraints: list[SpreadFields] | None
    volumes: list[dict[str, Any]] | None
    workloadRef: dict[str, Any] | None


class ContainerStatusFields(TypedDict, total=False):
    """``v1.ContainerStatus``."""

    name: Required[str]
    allocatedResources: Texts
    resources: ResourceRequirementsFields | None


class ConditionFields(TypedDict, total=False):
    """``metav1.Condition``, and those of pods and nodes."""

    type: Required[str]
    status: Required[str]
    reason: str


class PodStatusFields(TypedDict, total=False):
    """``v1.PodStatus``."""

    allocatedResources: Texts
    conditions: list[ConditionFields] | None
    containerStatuses: list[ContainerStatusFields] | None
    extendedResourceClaimStatus: dict[str, Any] | None
    initContainerStatuses: list[ContainerStatusFields] | None
    phase: str
    resourceClaimStatuses: list[PodClaimFields] | None
    resources: ResourceRequirementsFields | None


class PodFields(TypedDict, total=False):
    """``v1.Pod``."""

    metadata: Required[MetadataFields]
    spec: Required[PodSpecFields]
    status: PodStatusFields | None


class ExpressionFields(TypedDict):
    """``resource.DeviceSelector``'s expression."""

    expression: str


class SelectorFields(TypedDict):
    """``resource.DeviceSelector``."""

    cel: ExpressionFields


class CapacityFields(TypedDict, total=False):
    """``resource.CapacityRequirements``."""

    requests: Texts


class SubRequestFields(TypedDict, total=False):
    """``resource.ExactDeviceRequest`` and ``resource.DeviceSubRequest``."""

    name: str
    adminAccess: bool | None
    allocationMode: str
    capacity: CapacityFields | None
    count: int
    derivedAttributes: list[NameField] | None
    deviceClassName: Required[str]
    selectors: list[SelectorFields] | None
    tolerations: list[TolerationFields] | None


class RequestFields(TypedDict, total=False):
    """``resource.DeviceRequest``."""

    name: Required[str]
    exactly: SubRequestFields | None
    firstAvailable: list[SubRequestFields] | None


class ConstraintFields(TypedDict, total=False):
    """``resource.DeviceConstraint``."""

    requests: list[str] | None
    matchAttribute: str | None
    distinctAttribute: str | None


class OpaqueFields(TypedDict, total=False):
    """``resource.OpaqueDeviceConfiguration``."""

    driver: Required[str]
    parameters: dict[str, Any] | None


class ConfigFields(TypedDict, total=False):
    """``resource.DeviceClaimConfiguration`` and ``resource.DeviceAllocationConfiguration``."""

    opaque: OpaqueFields | None
    requests: list[str] | None
    source: str


class DevicesFields(TypedDict, total=False):
    """``resource.DeviceClaim``."""

    config: list[ConfigFields] | None
    constraints: list[ConstraintFields] | None
    requests: list[RequestFields] | None


class ClaimSpecFields(TypedDict, total=False):
    """``resource.ResourceClaimSpec``."""

    devices: DevicesFields | None


class ResultFields(TypedDict, total=False):
    """``resource.DeviceRequestAllocationResult``."""

    request: Required[str]
    driver: Required[str]
    pool: Required[str]
    device: Required[str]
    adminAccess: bool | None
    bindingConditions: list[str] | None
    bindingFailureConditions: list[str] | None
    consumedCapacity: Texts
    shareID: str | None
    tolerations: list[TolerationFields] | None


class AllocatedFields(TypedDict, total=False):
    """``resource.DeviceAllocationResult``."""

    config: list[ConfigFields] | None
    results: list[ResultFields] | None


class AllocationFields(TypedDict, total=False):
    """``resource.AllocationResult``."""

    devices: AllocatedFields | None
    nodeSelector: NodeSelectorFields | None


class ConsumerFields(TypedDict, total=False):
    """``resource.ResourceClaimConsumerReference``."""

    uid: Required[str]


class ClaimStatusFields(TypedDict, total=False):
    """``resource.ResourceClaimStatus``."""

    allocation: AllocationFields | None
    reservedFor: list[ConsumerFields] | None


class ClaimFields(TypedDict, total=False):
    """``resource.ResourceClaim``."""

    metadata: Required[MetadataFields]
    spec: msgspec.Raw
    """``ClaimSpecFields``, or null. Not decoded yet: most claims have the spec of a template."""
    status: ClaimStatusFields | None


AttributeFields = TypedDict(  # noqa: UP013 - in a class the field would hide the type ``bool``
    "AttributeFields",
    {
        "bool": bool | None,
        "bools": list[bool] | None,
        "int": int | None,
        "ints": list[int] | None,
        "string": str | None,
        "strings": list[str] | None,
        "version": str | None,
        "versions": list[str] | None,
    },
    total=False,
)
"""``resource.DeviceAttribute``."""


class RangeFields(TypedDict, total=False):
    """``resource.CapacityRequestPolicyRange``."""

    min: str | None
    max: str | None
    step: str | None


class RequestPolicyFields(TypedDict, total=False):
    """``resource.CapacityRequestPolicy``."""

    default: str | None
    validRange: RangeFields | None
    validValues: list[str] | None


class DeviceCapacityFields(TypedDict, total=False):
    """``resource.DeviceCapacity``."""

    value: Required[str]
    requestPolicy: RequestPolicyFields | None


class CounterFields(TypedDict):
    """``resource.Counter``."""

    value: str


class CounterSetFields(TypedDict, total=False):
    """``resource.CounterSet``."""

    name: Required[str]
    counters: dict[str, CounterFields] | None


class CounterConsumptionFields(TypedDict, total=False):
    """``resource.DeviceCounterConsumption``."""

    counterSet: Required[str]
    counters: dict[str, CounterFields] | None
    compatibilityGroups: list[str] | None


class TaintFields(TypedDict, total=False):
    """``v1.Taint`` and ``resource.DeviceTaint``."""

    key: Required[str]
    value: str | None
    effect: Required[str]


class DeviceFields(TypedDict, total=False):
    """``resource.Device``."""

    name: Required[str]
    allNodes: bool | None
    allowMultipleAllocations: bool | None
    attributes: dict[str, AttributeFields] | None
    bindingConditions: list[str] | None
    bindingFailureConditions: list[str] | None
    bindsToNode: bool | None
    capacity: dict[str, DeviceCapacityFields] | None
    consumesCounters: list[CounterConsumptionFields] | None
    nodeAllocatableResources: dict[str, Any] | None
    nodeName: str | None
    nodeSelector: NodeSelectorFields | None
    taints: list[TaintFields] | None


class PoolFields(TypedDict, total=False):
    """``resource.ResourcePool``."""

    name: Required[str]
    generation: int
    resourceSliceCount: int


class SliceSpecFields(TypedDict, total=False):
    """``resource.ResourceSliceSpec``."""

    allNodes: bool | None
    devices: list[DeviceFields] | None
    driver: Required[str]
    nodeName: str | None
    nodeSelector: NodeSelectorFields | None
    perDeviceNodeSelection: bool | None
    pool: Required[PoolFields]
    sharedCounters: list[CounterSetFields] | None


class SliceFields(TypedDict):
    """``resource.ResourceSlice``."""

    metadata: MetadataFields
    spec: SliceSpecFields


class NodeSpecFields(TypedDict, total=False):
    """``v1.NodeSpec``."""

    taints: list[TaintFields] | None
    unschedulable: bool | None


class NodeStatusFields(TypedDict, total=False):
    """``v1.NodeStatus``."""

    allocatable: Texts
    capacity: Texts
    conditions: list[ConditionFields] | None


class NodeFields(TypedDict, total=False):
    """``v1.Node``."""

    metadata: Required[MetadataFields]
    spec: NodeSpecFields | None
    status: NodeStatusFields | None


class BareFields(TypedDict):
    """An object; only its metadata is read."""

    metadata: MetadataFields


_DECODERS: Final = {
    resource.plural: msgspec.json.Decoder[Any](fields)
    for resource, fields in (
        (PODS, PodFields),
        (CLAIMS, ClaimFields),
        (SLICES, SliceFields),
        (NODES, NodeFields),
        (BIND_REQUESTS, BareFields),
    )
}
HAS_FIELDS: Final = frozenset(_DECODERS)
"""Plurals of the kinds that have such a type."""
_MAY_BE_OPAQUE: Final = (CLAIMS.plural,)
"""Plurals of the kinds whose opaque parameters are read."""
_CLAIM_SPEC: Final = msgspec.json.Decoder(ClaimSpecFields | None)
_MANAGED: Final = b'"managedFields":'


def fields_of(resource: Resource, text: bytes) -> Object | None:
    """The fields of an object of ``HAS_FIELDS``; None: it has to be decoded whole. Nothing in the
    text may be nested too deep."""
    if resource.plural in _MAY_BE_OPAQUE and containers(text) > MOST_CONTAINERS:
        return None
    try:
        found: Object = _DECODERS[resource.plural].decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    metadata = found["metadata"]
    is_named = metadata["name"] and metadata["uid"]
    return found if is_named and is_revision(metadata["resourceVersion"]) else None


def claim_spec_fields(text: bytes) -> Mapping[str, Any]:
    """The fields of a claim's spec. Raises msgspec.DecodeError, UnicodeDecodeError."""
    return _CLAIM_SPEC.decode(text) or {}


def text_without_managed_fields(text: bytes, metadata: Mapping[str, Any]) -> bytes | None:
    """An object's text without ``managedFields``, which nobody reads; None if they aren't found."""
    if (managed := metadata.get("managedFields")) is None:
        return text
    # Search only for the name: to search for a long text, Python needs a long preparation.
    begin = text.find(_MANAGED)
    value, value_at = bytes(managed), begin + len(_MANAGED)
    end = value_at + len(value)
    if begin < 0 or text[value_at:end] != value or text.find(_MANAGED, end) >= 0:
        return None
    # Remove one of the commas around it, too.
    if text[begin - 1 : begin] == b",":
        begin -= 1
    elif text[end : end + 1] == b",":
        end += 1
    return text[:begin] + text[end:]
