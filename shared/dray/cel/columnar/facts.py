"""The properties of a device that have a column each, and a device made of a few of them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dray.cel.device import DeviceView, Names
from dray.cel.values import Value


class Path(NamedTuple):
    """``device.<field>``, or the value of one name in one domain of it."""

    field: str
    domain: str = ""
    name: str = ""


DRIVER: Final = Path("driver")
SHARED: Final = Path("allowMultipleAllocations")
LAYOUT: Final = Path("layout")
"""Which names a device has in which domains, without their values: few fleets have many."""
MAPS: Final = ("attributes", "capacity")

Keys = tuple[tuple[str, tuple[str, ...]], ...]
"""Names by domain, in the order that the device has them."""
Layout = tuple[Keys, Keys]
"""Those of the attributes, and those of the capacity."""


def layout_of(view: DeviceView) -> Layout:
    """Which names a device has."""
    return _keys(view.attributes_by_domain), _keys(view.capacity_by_domain)


def named(layout: Layout) -> Iterator[Path]:
    """The paths of all names in a layout."""
    for field, domains in zip(MAPS, layout, strict=True):
        for domain, names in domains:
            for name in names:
                yield Path(field, domain, name)


def facts_of(view: DeviceView) -> Iterator[tuple[Path, Value]]:
    """Every property of a device that can be evaluated, the layout included."""
    yield DRIVER, view.driver
    yield SHARED, view.allow_multiple_allocations
    yield LAYOUT, layout_of(view)
    for field, domains in zip(
        MAPS, (view.attributes_by_domain, view.capacity_by_domain), strict=True
    ):
        for domain, values in domains.items():
            for name, value in values.items():
                yield Path(field, domain, name), value


def view_from(facts: Iterable[tuple[Path, Value]]) -> DeviceView:
    """A device of which only ``facts`` are known.

    With a layout among them, it has all names in their order; values that are not among the
    facts are then null, and the caller has made sure that nothing reads them.
    """
    known = dict(facts)
    layout: Layout = known.get(LAYOUT, ((), ()))
    view = DeviceView(known.get(DRIVER, ""), {}, {}, known.get(SHARED, False))
    domains = {"attributes": view.attributes_by_domain, "capacity": view.capacity_by_domain}
    for path in named(layout):
        domains[path.field].setdefault(path.domain, Names())[path.name] = None
    for path, value in known.items():
        if path.field in MAPS:
            domains[path.field].setdefault(path.domain, Names())[path.name] = value
    return view


def _keys(domains: Mapping[str, Mapping[str, Value]]) -> Keys:
    return tuple((domain, tuple(values)) for domain, values in domains.items())
