"""Settings: arguments (``--nats.url=…``) over the environment (``DRAY_NATS__URL``) over a TOML file
named by ``DRAY_CONFIG``.

A service subclasses ``Settings`` and adds its own groups. ``load`` reads them once, at the
composition root. If any are wrong, it names them all and stops the process.
"""

import os
import socket
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from dray.api.names import DRAY_NAMESPACE
from dray.runtime.redaction import is_secret
from dray.runtime.units import parse_bytes, parse_duration, split_commas

__all__ = [
    "ByteSize",
    "CommaList",
    "Duration",
    "HealthSettings",
    "KubeSettings",
    "LogSettings",
    "NatsSettings",
    "Settings",
    "SettingsGroup",
    "load",
]

PREFIX = "DRAY_"
_CONFIG_VARIABLE = "DRAY_CONFIG"
_WRONG_SETTINGS = 2
"""Exit code of a process whose settings are wrong."""

Duration = Annotated[float, BeforeValidator(parse_duration)]
"""In seconds, written with its unit."""
ByteSize = Annotated[int, BeforeValidator(parse_bytes)]
"""In bytes, written with its unit."""
CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_commas)]
"""Texts separated by commas in the environment, a list in TOML."""


class SettingsGroup(BaseModel):
    """A nested group of settings. ``load`` warns about unknown names and does not refuse them."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_default=True)


class NatsSettings(SettingsGroup):
    """How to reach the bus."""

    url: str = "nats://127.0.0.1:4222"
    """Servers, separated by commas."""
    user: str = ""
    password: SecretStr = SecretStr("")
    ca_file: Path | None = None
    """PEM certificates of the authorities of ``tls://`` servers, instead of the system's."""


class KubeSettings(SettingsGroup):
    """How to reach Kubernetes."""

    kubeconfig: str | None = None
    """A file. If absent: in-cluster, else the variable KUBECONFIG."""


class HealthSettings(SettingsGroup):
    """The address of /healthz, /readyz and /metrics."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    """0: any free port."""


class LogSettings(SettingsGroup):
    """Level and format of logs."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"


class Settings(BaseSettings):
    """Settings of every process. Subclasses add their groups as fields."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore", frozen=True
    )

    instance: str = Field(default_factory=socket.gethostname, min_length=1)
    """Name of this process among the processes of its service."""
    namespace: str = Field(default=DRAY_NAMESPACE, min_length=1)
    """dray's own namespace."""
    nats: NatsSettings = NatsSettings()
    kube: KubeSettings = KubeSettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()
    record: bool = False
    """Whether the process publishes what it consumes and decides, for ``dray record``. It is kept
    for an hour. The allocator's decisions are always on the bus."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the TOML file."""
        sources = (init_settings, env_settings)
        if path := os.environ.get(_CONFIG_VARIABLE):
            return (*sources, TomlConfigSettingsSource(settings_cls, Path(path)))
        return sources


S = TypeVar("S", bound=Settings)


def load(cls: type[S], arguments: Sequence[str] = ()) -> S:
    """The settings of this process. Prints the names of all wrong settings and exits with 2.
    ``--help`` prints all settings and exits with 0."""
    if {"-h", "--help"} & set(arguments):
        print("\n".join(_help(cls)))
        raise SystemExit(0)
    try:
        os.environ |= _variables(cls, arguments)
        _check_config_file()
        settings = cls()
    except ValidationError as error:
        _stop([_described(cls, problem) for problem in error.errors()])
    except (SettingsError, OSError, ValueError) as error:
        _stop([str(error)])
    for name in (*_unknown_variables(cls, os.environ), *_unknown_keys(cls)):
        print(f"dray: {name} is not a setting of this service; is it misspelt?", file=sys.stderr)
    return settings


def _variables(cls: type[Settings], arguments: Sequence[str]) -> dict[str, str]:
    """The environment variables for the arguments. Raises ValueError."""
    variables = {}
    for argument in arguments:
        written, equals, value = argument.partition("=")
        key = written.removeprefix("--")
        group, _, name = key.partition(".")
        known = _groups(cls).get(group)
        exists = name in known if known is not None else group in cls.model_fields and not name
        if not argument.startswith("--") or not equals or not exists:
            raise ValueError(  # without the value: it may be a password
                f"the argument {written!r} is not a setting of this service; expected "
                "--group.name=value, such as --log.level=debug"
            )
        variables[PREFIX + key.upper().replace(".", "__")] = value
    return variables


def _help(cls: type[Settings]) -> Iterator[str]:
    """Every setting as an argument, with its default."""
    yield f"usage: {Path(sys.argv[0]).name} [--group.name=value ...]"
    yield ""
    yield f"Settings are also read from variables, such as {PREFIX}LOG__LEVEL, and from the TOML"
    yield f"file that {_CONFIG_VARIABLE} names. They are, with their defaults:"
    groups = _groups(cls)
    for name, field in cls.model_fields.items():
        if name in groups:
            yield from (f"  --{name}.{key}{_default(one)}" for key, one in groups[name].items())
        else:
            yield f"  --{name}{_default(field)}"


def _default(field: FieldInfo) -> str:
    if field.is_required() or field.default_factory is not None:
        return "=..."
    return "=" + ("" if field.default is None else str(field.default))


def _unknown_variables(cls: type[Settings], environment: Mapping[str, str]) -> Iterator[str]:
    """Variables that name a group of ``cls``, but no setting of the group."""
    for variable in sorted(environment):
        for group, known in _groups(cls).items():
            prefix = f"{PREFIX}{group.upper()}__"
            if variable.upper().startswith(prefix):
                name = variable[len(prefix) :].lower().split("__")[0]
                if name not in known:
                    yield variable


def _groups(cls: type[Settings]) -> dict[str, dict[str, FieldInfo]]:
    """Every group's settings."""
    return {
        name: dict(field.annotation.model_fields)
        for name, field in cls.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def _unknown_keys(cls: type[Settings]) -> Iterator[str]:
    """Keys of the file that are in a group of ``cls``, but are no setting of the group."""
    path = os.environ.get(_CONFIG_VARIABLE)
    content = tomllib.loads(Path(path).read_text("utf-8")) if path else {}
    for group, known in _groups(cls).items():
        for key in content.get(group, {}):
            if key not in known:
                yield f"{group}.{key} in {path}"


def _check_config_file() -> None:
    path = os.environ.get(_CONFIG_VARIABLE)
    if not path:
        return
    if not Path(path).is_file():
        raise ValueError(f"{_CONFIG_VARIABLE}: there is no file {path!r}; name one, or unset it")
    try:
        tomllib.loads(Path(path).read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{_CONFIG_VARIABLE}: {path!r} is not TOML: {error}") from error


def _stop(problems: list[str]) -> NoReturn:
    for problem in problems:
        print(f"dray: {problem}", file=sys.stderr)
    raise SystemExit(_WRONG_SETTINGS)


def _described(cls: type[Settings], problem: Any) -> str:
    path = [str(part) for part in problem["loc"]]
    name = PREFIX + "__".join(part.upper() for part in path)
    if problem["type"] == "missing":
        return f"{name} is not set; expected: {_purpose(cls, path)}"
    seen = "(hidden)" if is_secret(name) else repr(problem["input"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{name} is {seen}; {message[0].lower()}{message[1:]}"


def _purpose(cls: type[BaseModel], path: list[str]) -> str:
    field: FieldInfo | None = None
    model: Any = cls
    for part in path:
        field = getattr(model, "model_fields", {}).get(part)
        model = field.annotation if field else None
    return (field.description if field else None) or "a value"
