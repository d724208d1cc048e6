"""What `import saccade` costs: nothing is loaded before it is used, and attention needs torch alone."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import saccade
from saccade.runs.load import load
from saccade.tasks.base import Predictor

ROOT = Path(__file__).parents[1]

HEAVY = {
    "PIL", "filelock", "jinja2", "matplotlib", "psutil", "pydantic", "rich", "sacrebleu", "safetensors", "scipy",
    "sentencepiece", "typer", "yaml",
}  # fmt: skip
MOST_MODULES = 80
DISTRIBUTIONS = {"PIL": "pillow", "yaml": "pyyaml", "starlette": "fastapi"}
PEERS = {"ctranslate2", "joeynmt", "transformers"}  # what benchmarks compare with, where it is installed
OF_HTML = {"html5lib", "playwright", "nh3", "bleach"}  # what saccade bench html asks; they are in `dev`


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running `code`."""
    program = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(); print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def own(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "saccade"}


def test_attention_loads_torch_and_few_modules() -> None:
    modules = loaded_by("import saccade; saccade.attend, saccade.MultiHeadAttention, saccade.SCORES, saccade.masks")
    assert "torch" in modules
    assert modules & HEAVY == set()
    assert len(own(modules)) <= MOST_MODULES


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_command_line_answers_without_torch(option: str) -> None:
    code = (
        f"sys.argv = ['saccade', '{option}']; from saccade.cli import main, typer\ntry: main()\nexcept SystemExit: pass"
    )
    modules = loaded_by(code)
    assert "typer" in modules
    assert modules & {"numpy", "pydantic", "torch"} == set()
    assert len(own(modules)) <= 4


def test_importing_the_package_loads_nothing() -> None:
    modules = loaded_by("import saccade; saccade.__version__")
    assert own(modules) == {"saccade", "saccade.errors"}
    assert "torch" not in modules


def test_a_source_tree_that_is_not_installed_is_imported() -> None:
    code = """
import importlib.metadata as metadata
def version(name): raise metadata.PackageNotFoundError(name)
metadata.version = version
import saccade
assert saccade.__version__ == "0+unknown"
"""
    assert "saccade" in loaded_by(code)


def test_a_name_that_is_missing_is_said_so() -> None:
    with pytest.raises(AttributeError, match="module 'saccade' has no attribute 'atend'"):
        saccade.atend  # type: ignore[attr-defined] # noqa: B018


def test_public_names_are_listed_before_their_use() -> None:
    assert set(saccade.__all__) <= set(dir(saccade))


def test_load_is_typed() -> None:
    assert saccade.load is load
    assert inspect.signature(saccade.load, eval_str=True).return_annotation is Predictor


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0].lower() for requirement in requirements}


def imported_by(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"saccade"}


def test_every_library_is_declared_where_it_is_needed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: names_of(needed) for name, needed in project["optional-dependencies"].items()}
    core = names_of(project["dependencies"])
    for path in (ROOT / "src" / "saccade").rglob("*.py"):
        room = path.relative_to(ROOT / "src" / "saccade").parts[0]
        further = {
            "serving": extras["serve"],
            "data": extras["sound"],
            "datasets": extras["speech"],
            "export": extras["export"],
            "huggingface": extras["export"],
            "imports": extras["export"],
        }.get(room, set())
        declared = core | extras["run"] | further
        libraries = {DISTRIBUTIONS.get(name, name).replace("_", "-") for name in imported_by(path)}
        assert libraries <= declared | (PEERS | OF_HTML if room == "bench" else set()) | {"triton"}, path


ALONE = f"""
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {sorted(HEAVY - {"filelock"})}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

import importlib, pkgutil, sys, torch
sys.meta_path.insert(0, Missing())
for name in [name for name in sys.modules if name.partition(".")[0] in {sorted(HEAVY)}]:
    del sys.modules[name]
"""


def test_models_need_torch_and_numpy_alone() -> None:
    rooms = {f"saccade.{name}" for name in ("ops", "attention", "data", "layers", "models", "decoding")}
    code = f"""{ALONE}
for room in {sorted(rooms)}:
    for found in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{{room}}."):
        if ".kernels." not in found.name:
            importlib.import_module(found.name)
"""
    assert rooms <= loaded_by(code)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import saccade; saccade.load('run')", r"ImportError: saccade\.load needs \w+: pip install 'saccade\[run\]'"),
        ("from saccade import train", r"ImportError: saccade\.train needs \w+: pip install 'saccade\[run\]'"),
        ("from saccade.__main__ import main; main()", r"saccade: the command line needs typer: pip install .*"),
    ],
)
def test_a_missing_extra_is_named_with_the_line_that_installs_it(code: str, message: str) -> None:
    done = subprocess.run([sys.executable, "-c", ALONE + code], capture_output=True, text=True, check=False)
    assert re.fullmatch(message, done.stderr.splitlines()[-1])
    assert ("Traceback" in done.stderr) == ("ImportError" in message)


def test_a_library_that_is_missing_in_a_command_is_one_line() -> None:
    code = ALONE.replace("'typer', ", "").replace("'rich', ", "") + "from saccade.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "train", "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"saccade: this command needs \w+: pip install 'saccade\[run\]'\n", done.stderr)
