"""The product has no import cycles, between modules or between packages."""

from tools.sizes import ROOT, cycles, packages_of, sizes


def test_the_product_has_no_import_cycle() -> None:
    found = sizes(ROOT)
    assert (found["module_cycles"], found["package_cycles"]) == (0, 0)
    assert found["files"] > 500


def test_a_cycle_is_found_once_with_all_its_members() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}
    assert cycles(imports) == [{"b", "c"}, {"e"}]


def test_modules_of_a_package_with_packages_count_one_by_one() -> None:
    modules = ("top", "top.app", "top.inner", "top.inner.one", "top.inner.two")
    assert packages_of(modules) == {
        "top": "top",
        "top.app": "top.app",
        "top.inner": "top.inner",
        "top.inner.one": "top.inner",
        "top.inner.two": "top.inner",
    }
