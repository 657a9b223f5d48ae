"""Discovery: versions, groups, resources, and enough OpenAPI for kubectl."""

from .resources import ApiResource, Registry
from .status import Object

VERSION: Object = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.0+dray-sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
REVIEWS: dict[tuple[str, str], dict[str, str]] = {
    ("authorization.k8s.io", "v1"): {
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    },
    ("authentication.k8s.io", "v1"): {
        "selfsubjectreviews": "SelfSubjectReview",
        "tokenreviews": "TokenReview",
    },
}
"""Reviews of the requester or of a token, which are not stored."""
_SUBRESOURCES = {
    "status": ("get", "patch", "update"),
    "binding": ("create",),
    "eviction": ("create",),
    "token": ("create",),
}
_SUBRESOURCE_KINDS = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}


def core_versions(address: str) -> Object:
    """/api"""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def _versions(registry: Registry) -> dict[str, list[str]]:
    groups = registry.groups()
    for group, version in REVIEWS:
        groups.setdefault(group, []).append(version)
    return groups


def group_list(registry: Registry) -> Object:
    """/apis"""
    groups = [_group(name, versions) for name, versions in sorted(_versions(registry).items())]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Object | None:
    """/apis/GROUP"""
    versions = _versions(registry).get(name)
    if versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: list[str]) -> Object:
    listed: list[Object] = [
        {"groupVersion": f"{name}/{version}", "version": version} for version in versions
    ]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(registry: Registry, name: str, version: str) -> Object | None:
    """/api/v1 and /apis/GROUP/VERSION"""
    reviews = REVIEWS.get((name, version), {})
    resources = registry.of_group(name, version)
    if not resources and not reviews:
        return None
    entries = [entry for resource in resources for entry in _entries(resource)]
    entries += [
        {"name": plural, "singularName": "", "namespaced": False, "kind": kind, "verbs": ["create"]}
        for plural, kind in reviews.items()
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{name}/{version}" if name else version,
        "resources": entries,
    }


def _entries(resource: ApiResource) -> list[Object]:
    entry: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return [entry, *(_subresource(resource, name) for name in resource.subresources)]


def _subresource(resource: ApiResource, name: str) -> Object:
    entry: Object = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(_SUBRESOURCES[name]),
    }
    if name in _SUBRESOURCE_KINDS:
        group_name, version, kind = _SUBRESOURCE_KINDS[name]
        entry |= {"kind": kind, "group": group_name, "version": version}
    return entry


def openapi_index(registry: Registry) -> Object:
    """/openapi/v3"""
    paths = {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}}
    for name, versions in _versions(registry).items():
        for version in versions:
            path = f"apis/{name}/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def openapi(registry: Registry, name: str, version: str) -> Object | None:
    """/openapi/v3/…: paths that support `fieldValidation`, and the CRDs' schemas.

    kubectl needs only these to leave validation to the server.
    """
    resources = registry.of_group(name, version)
    if not resources and (name, version) not in REVIEWS:
        return None
    prefix = f"/apis/{name}/{version}" if name else f"/api/{version}"
    paths: Object = {}
    schemas: Object = {}
    for resource in resources:
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        base = f"{prefix}{scope}/{resource.plural}"
        kind = {"group": name, "version": version, "kind": resource.kind}
        paths[base] = {"post": _operation(kind)}
        paths[base + "/{name}"] = {"put": _operation(kind), "patch": _operation(kind)}
        schema: Object = dict(resource.schema) if resource.schema else {"type": "object"}
        schema["x-kubernetes-group-version-kind"] = [kind]
        schemas[f"{name or 'core'}.{version}.{resource.kind}"] = schema
    return {
        "openapi": "3.0.0",
        "info": {"title": "dray sandbox", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(kind: Object) -> Object:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    return {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": kind,
    }


def openapi_v2(registry: Registry) -> Object:
    """/openapi/v2: no definitions; a client that needs them falls back to its own."""
    return {
        "swagger": "2.0",
        "info": {"title": "dray sandbox", "version": VERSION["gitVersion"]},
        "paths": {},
        "definitions": {},
    }


OPENAPI_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""As on real servers since 1.27. Clients request it with an ``@``, which is no media type in Go."""


def openapi_v2_protobuf() -> bytes:
    """The same as gnostic's ``openapi.v2.Document``: swagger (1), info (2), paths (8).

    kubectl requests only this form if a kind is not served; without it, its error would name the
    wire format instead of the kind.
    """
    info = _field(1, b"dray sandbox") + _field(2, VERSION["gitVersion"].encode())
    return _field(1, b"2.0") + _field(2, info) + _field(8, b"")


def _field(number: int, content: bytes) -> bytes:
    """One length-delimited field of a protobuf message; up to 127 bytes."""
    return bytes((number << 3 | 2, len(content))) + content
