"""What builds of images leave behind is removed."""

from pathlib import Path

import pytest

from tools.images.builders import PART_OF, Builder

PROGRAM = """#!/bin/sh
# An image builder: `images` lists what is in the file `images` and not in the file `used`.
cd {folder} || exit 1
echo "$*" >> commands
case $1 in
  info) echo "graphDriverName: {driver}" ;;
  images) cat images ;;
  rmi) shift; for id; do grep -qx "$id" used || {{ sed -i "/^$id$/d" images; echo "$id"; }}; done
       ! grep -qxf used images ;;
esac
"""


def builder(folder: Path, *, driver: str = "overlay", used: str = "") -> Builder:
    """A builder with two unnamed images."""
    program = folder / "builder"
    program.write_text(PROGRAM.format(folder=folder, driver=driver))
    program.chmod(0o700)
    (folder / "images").write_text("one\ntwo\n")
    (folder / "used").write_text(used)
    return Builder(str(program))


def commands(folder: Path) -> list[str]:
    return (folder / "commands").read_text().splitlines()


@pytest.mark.parametrize(("driver", "kept"), [("overlay", " --filter until=24h"), ("vfs", "")])
def test_unnamed_images_of_dray_go_and_on_overlay_those_of_a_day_stay(tmp_path, driver, kept):
    builder(tmp_path, driver=driver).prune()

    listed = f"images --quiet --filter dangling=true --filter label={PART_OF}{kept}"
    assert commands(tmp_path) == ["info", listed, "rmi one two", listed]


def test_an_image_that_a_container_uses_stays(tmp_path):
    builder(tmp_path, used="two\n").prune()

    assert (tmp_path / "images").read_text() == "two\n"
    assert commands(tmp_path)[-1] == "rmi two"
