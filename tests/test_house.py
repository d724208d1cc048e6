"""The house itself: imports flow one way, public names are complete, pages and README are true."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import saccade
from floors import FLOORS, floor_of
from saccade.tasks import TASKS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "saccade"


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


def test_no_folder_holds_more_than_16_files() -> None:
    for root in (PACKAGE, ROOT / "tests"):
        for folder in (root, *(path for path in root.rglob("*") if path.is_dir() and path.name != "__pycache__")):
            assert sum(path.is_file() for path in folder.iterdir()) <= 16, folder


def test_no_two_files_of_tests_have_the_same_name() -> None:
    """pytest imports them by their bare names."""
    seen: dict[str, Path] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        assert path.name not in seen, f"{path} and {seen[path.name]}"
        seen[path.name] = path


def test_triton_is_imported_only_in_kernels() -> None:
    for path in PACKAGE.rglob("*.py"):
        if "kernels" not in path.parts:
            assert not re.search(r"^\s*(import|from) triton\b", path.read_text(encoding="utf-8"), re.MULTILINE), path


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
    [ROOT / "README.md", ROOT / "docs" / "attention.md", *sorted((ROOT / "docs" / "scores").glob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_python_in_the_documentation_runs(path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert blocks or path.name == "README.md"


def documents(*, with_history: bool) -> list[Path]:
    """All pages; the log, decisions and changes of the past keep the names that things had then."""
    history = {ROOT / "CHANGELOG.md", ROOT / "docs" / "log.md", *(ROOT / "docs" / "decisions").glob("*.md")}
    found = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if with_history or path not in history]


def anchors_of(path: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", documents(with_history=True), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for link, _, anchor in re.findall(r"\]\(([^)#\s]*)(#([^)\s]+))?\)", path.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        page = path.parent / link if link else path
        assert page.exists(), f"{path}: {link}"
        assert not anchor or anchor in anchors_of(page), f"{path}: {link}#{anchor}"


@pytest.mark.parametrize("path", documents(with_history=False), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_pages_name_exist(path: Path) -> None:
    """A path begins at the root or in the package."""
    for name in re.findall(r"`(\w[\w./]*/\w+\.(?:py|cu|cuh|hpp|cpp))`", path.read_text(encoding="utf-8")):
        assert (ROOT / name).exists() or (PACKAGE / name).exists(), f"{path}: {name}"


@pytest.mark.parametrize("path", documents(with_history=False), ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_the_package_in_pages_exist(path: Path) -> None:
    for name in re.findall(r"\bsaccade(?:\.[a-zA-Z]\w*)+", path.read_text(encoding="utf-8")):
        pkgutil.resolve_name(name)
    for module, names in re.findall(
        r"^from (saccade[\w.]*) import (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE
    ):
        for one in names.split(", "):
            pkgutil.resolve_name(f"{module}.{one.strip()}")


def test_the_readme_is_short_and_begins_with_how_to_use_it() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert next(number for number, line in enumerate(lines, 1) if "pip install" in line) <= 20
    assert lines.index("```python") + 1 <= 35


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_tree_of_a_page_names_every_folder(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for folder in (path.parent for path in PACKAGE.glob("*/__init__.py")):
        assert f" {folder.name}/" in text, f"{page}: {folder.name}/ is missing from the tree"


def test_contributing_quotes_the_three_lines_of_attention() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    quoted = re.findall(r"```python\n(.*?)```", text.split("## The three lines")[1], re.DOTALL)[0].strip().splitlines()
    files = [PACKAGE / "attention" / name for name in ("attend.py", "reference.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in files if path.exists())
    assert len(quoted) == 3
    for line in quoted:
        assert line in map(str.strip, source.splitlines()), f"CONTRIBUTING.md quotes a line that is gone: {line}"


def functions_of(path: Path) -> set[str]:
    """The functions of a module and the methods of its classes, as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


def test_the_reading_path_of_a_training_step_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## A training step")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (.*) \|$", section, re.MULTILINE)
    assert 4 <= len(rows) <= 6
    for file, functions in rows:
        missing = set(re.findall(r"`([\w.]+)`", functions)) - functions_of(PACKAGE / file)
        assert not missing, f"CONTRIBUTING.md: {file} has no {', '.join(sorted(missing))}"


ABOVE_TASKS = ("runs", "bulk", "serving", "lab", "bench", "cli")
# Strings that are spelled like a task's name and no question which task it is.
OTHER_MEANINGS = {
    "serving/static/attention/arcs.js": {"point"},  # of a drawing
    "serving/static/shell/empty.js": {"point"},
    "serving/html/tree.py": {"translate"},  # HTML's attribute translate="no"
    "bench/html/sanitizers.py": {"translate"},  # the same
    "bench/repeat/cases.py": {
        "classify",
        "tag",
        "caption",
        "glimpse",
        "write",
        "remember",
        "point",
        "speak",
        "answer",
    },  # configs, which name their task
    "serving/static/main.js": {"answer"},  # what the page does when a model has answered
    "cli/bench/__init__.py": {"glimpse"},  # the name of a benchmark: saccade bench glimpse
}
# A task's own module may be imported by benchmarks and experiments that are about it; all others ask `TASKS`.
MAY_IMPORT_TASKS = ("lab", "bench", "cli/bench")


def above_tasks(ending: str) -> list[Path]:
    return sorted(path for room in ABOVE_TASKS for path in (PACKAGE / room).rglob(f"*{ending}"))


def task_names_in(path: Path) -> set[str]:
    """The string literals of a file that are a task's name; of JavaScript also keys of objects."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        literals = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
        return set(TASKS) & {one for one in literals if isinstance(one, str)}
    return {name for name in TASKS if re.search(rf"""(["'`]){name}\1|[{{,]\s*{name}\s*:""", text)}


@pytest.mark.parametrize(
    "path",
    [*above_tasks(".py"), *above_tasks(".js"), *above_tasks(".html"), *sorted((PACKAGE / "inspection").rglob("*.js"))],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_nothing_above_the_tasks_knows_a_task_by_its_name(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    assert task_names_in(path) <= OTHER_MEANINGS.get(name, set())
    if path.suffix == ".py" and not name.startswith(MAY_IMPORT_TASKS):
        own = tuple(f"saccade.tasks.{task}" for task in TASKS)
        assert [module for module in imports_of(path) if module.startswith(own)] == []


def test_a_tasks_name_is_seen(tmp_path: Path) -> None:
    for name, text in {
        "a.py": 'x = model.task == "caption"',
        "b.py": 'KINDS = {"caption": 1}',
        "c.js": 'if (task === "caption") return',
        "d.js": "const VIEWS = { text: a, caption: b };",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert task_names_in(tmp_path / name) == {"caption"}, name
    (tmp_path / "e.js").write_text("const transform = `translate(${x} ${y})`; picture.caption", encoding="utf-8")
    assert task_names_in(tmp_path / "e.js") == set()


Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function
QUESTIONS = {"What", "Whether", "Which", "Who", "Whose", "Whoever", "How", "Where", "When", "Why", "As", "Of", "That"}
NOUNS = {"A", "An", "The", "Each", "Every", "Everything", "All"}


@cache
def definitions() -> list[tuple[str, Documented]]:
    """All modules, classes and functions of the package, each with its place."""
    return [
        (f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}", node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, Documented)
    ]


def functions() -> list[tuple[str, Function]]:
    return [(place, node) for place, node in definitions() if isinstance(node, Function)]


def docstrings() -> list[tuple[str, str]]:
    return [(place, text) for place, node in definitions() if (text := ast.get_docstring(node))]


def test_public_classes_have_names_of_their_own() -> None:
    names = Counter(node.name for _, node in definitions() if isinstance(node, ast.ClassDef))
    repeated = [name for name, count in names.items() if count > 1 and not name.startswith("_")]
    assert len(repeated) <= 10, repeated


def test_docstrings_are_sentences_and_no_questions() -> None:
    assert [place for place, text in docstrings() if re.split(r"\W", text)[0] in QUESTIONS] == []


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    acting = [one for one in functions() if not any("property" in ast.unparse(each) for each in one[1].decorator_list)]
    assert [place for place, node in acting if (ast.get_docstring(node) or "Do").split()[0] in NOUNS] == []


def test_few_docstrings_are_too_short_to_add_something() -> None:
    short = [f"{place}: {text}" for place, text in docstrings() if len(text) < 26]
    assert len(short) <= 30, short


def test_few_functions_are_long() -> None:
    long = [place for place, node in functions() if (node.end_lineno or 0) - node.lineno >= 50]
    assert len(long) < 0.01 * len(functions()), long
