"""docs/user-guide/settings.md names every setting of every service, with its default."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from dray.runtime.settings import PREFIX, Settings
from dray.runtime.units import parse_duration
from dray_allocator.settings import AllocatorSettings
from dray_claim_controller.settings import ControllerSettings
from dray_node_agent.settings import NodeAgentSettings
from dray_webhook.settings import WebhookSettings

PAGE = Path(__file__).parents[3] / "docs" / "user-guide" / "settings.md"
SERVICES = (WebhookSettings, ControllerSettings, AllocatorSettings, NodeAgentSettings)
ROW = re.compile(r"^\| `(DRAY_\w+)` \| (.*?) \| ", re.MULTILINE)


def settings(model: type[BaseModel], prefix: str = PREFIX) -> Iterator[tuple[str, str]]:
    """Variable and default of every setting."""
    for name, field in model.model_fields.items():
        variable = prefix + name.upper()
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from settings(inner, variable + "__")
        else:
            yield variable, default(field)


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "the host's name"
    readers = repr(field.metadata)
    if "parse_bytes" in readers:
        return f"`{field.default // 2**20}MiB`"
    return shown(field.default, "parse_duration" in readers)


def shown(value: Any, is_duration: bool) -> str:
    match value:
        case None | "" | ():
            return "none"
        case SecretStr():
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return f"`{','.join(value)}`"
        case float() if is_duration:
            return f"`{duration(value)}`"
        case _:
            return f"`{value}`"


def duration(seconds: float) -> str:
    for unit, length_s in (("m", 60.0), ("s", 1.0), ("ms", 0.001)):
        if seconds >= length_s and (count := round(seconds / length_s, 6)) == int(count):
            return f"{int(count)}{unit}"
    raise AssertionError(f"no unit fits {seconds} s")


def documented() -> dict[str, str]:
    return dict(ROW.findall(PAGE.read_text("utf-8")))


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.__name__)
def test_every_setting_is_on_the_page_with_its_default(service: type[Settings]) -> None:
    found = dict(settings(service))
    page = documented()
    assert {name: page.get(name) for name in found} == found


def test_the_page_names_only_settings_that_exist() -> None:
    known = {name for service in SERVICES for name, _ in settings(service)}
    assert set(documented()) - known == {"DRAY_CONFIG"}


def test_durations_are_written_as_settings_read_them() -> None:
    for seconds in (0.2, 0.3, 1.0, 15.0, 60.0, 600.0):
        assert parse_duration(duration(seconds)) == seconds
