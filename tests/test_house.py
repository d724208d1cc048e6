"""The house itself: imports flow one way, public names are complete, pages and README are true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import saccade

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "saccade"

# A module may import from its own floor and the floors before it.
FLOORS = [
    {"errors", "files"},
    {"ops"},
    {"attention", "data"},
    {"layers"},
    {"models"},
    {"decoding", "inspection", "training"},
    {"config"},
    {"tasks"},
    {"runs"},
    {"serving", "lab", "bench", "cli"},
]


def floor_of(module: str) -> int:
    name = module.split(".")[1] if "." in module else ""
    return next((index for index, rooms in enumerate(FLOORS) if name in rooms), -1)


def imports_of(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they lead"
            found += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name.startswith("saccade.")]


def wrong_arrows(path: Path, module: str) -> list[str]:
    own = floor_of(module)
    return [name for name in imports_of(path) if floor_of(name) > own]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_flow_one_way(path: Path) -> None:
    module = ".".join(["saccade", *path.relative_to(PACKAGE).with_suffix("").parts])
    if module != "saccade.__init__":
        assert wrong_arrows(path, module) == []


def test_a_wrong_arrow_is_seen(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from saccade.training import loop\n", encoding="utf-8")
    assert wrong_arrows(bad, "saccade.attention.bad") == ["saccade.training", "saccade.training.loop"]
    assert wrong_arrows(bad, "saccade.cli") == []
    bad.write_text("from saccade import cli\n", encoding="utf-8")
    assert wrong_arrows(bad, "saccade.attention.bad") == ["saccade.cli"]


def test_every_room_has_a_floor() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} <= set.union(*FLOORS)


def test_triton_is_imported_only_in_kernels() -> None:
    for path in PACKAGE.rglob("*.py"):
        if "kernels" not in path.parts:
            assert "import triton" not in path.read_text(encoding="utf-8"), path


def test_public_names_exist_and_are_documented() -> None:
    for name in saccade.__all__:
        thing = getattr(saccade, name)
        assert isinstance(thing, str | dict) or thing.__doc__, name
    assert re.fullmatch(r"\d+\.\d+\.\d+", saccade.__version__)


@pytest.mark.parametrize("name", list(saccade.SCORES))
def test_every_score_has_its_page_and_picture(name: str) -> None:
    page = ROOT / "docs" / "scores" / f"{name}.md"
    assert page.exists(), f"write docs/scores/{name}.md (see CONTRIBUTING.md) and run 'make pictures'"
    assert f"({name}.png)" in page.read_text(encoding="utf-8")
    assert page.with_suffix(".png").exists()


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", *sorted((ROOT / "docs" / "scores").glob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_python_in_the_documentation_runs(path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert blocks or path.name == "README.md"


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name
)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)\)", path.read_text(encoding="utf-8")):
        assert "://" in link or (path.parent / link).exists(), f"{path}: {link}"
