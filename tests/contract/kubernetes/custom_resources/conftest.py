"""A CustomResourceDefinition that is served."""

from typing import Any

import pytest
from tests.contract.kubernetes.custom_resources.widgets import GROUP, definition


@pytest.fixture
async def widgets(api: Any) -> Any:
    """The resource's name for `api`, of a new established CRD."""
    plural = f"w{api.namespace}s"
    await api.create("customresourcedefinitions", definition(plural))
    name = f"{plural}.{GROUP}"
    resource = f"{GROUP}/v1/{plural}"

    async def served() -> bool:
        crd = await api.get("customresourcedefinitions", name)
        conditions = crd["status"]["conditions"] or []
        if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            return False
        try:
            await api.get(resource)
        except AssertionError:
            return False
        return True

    await api.until(served)
    return resource
