"""How many requests a process sends to the API server, by resource."""

import prometheus_client

_NO_ANSWER = "none"
_METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "read"}


class RequestMetrics:
    """Counts answers by verb, resource and code. Names of objects are not labels."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        self._requests = prometheus_client.Counter(
            "dray_kube_requests",
            "Requests to the API server, without watches; code none: no answer came",
            ["verb", "resource", "code"],
            registry=registry,
        )

    def answered(self, method: str, path: str, status: int | None) -> None:
        """Count a request; ``status`` is None if no answer came."""
        code = _NO_ANSWER if status is None else str(status)
        self._requests.labels(_METHODS.get(method, "other"), resource_of(path), code).inc()


def resource_of(path: str) -> str:
    """The resource of a request's path, with its subresource: ``resourceclaims/status``."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    resource, _, rest = parts[:1], parts[1:2], parts[2:3]
    return "/".join((*resource, *rest)) or "other"
