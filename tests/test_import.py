"""What `import saccade` costs: nothing is loaded before it is used, and attention needs torch alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

import saccade

HEAVY = {
    "PIL", "filelock", "jinja2", "matplotlib", "psutil", "pydantic", "rich", "sacrebleu", "safetensors", "scipy",
    "sentencepiece", "typer", "yaml",
}  # fmt: skip
MOST_MODULES = 80


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
    assert own(modules) == {"saccade"}
    assert "torch" not in modules


def test_a_name_that_is_missing_is_said_so() -> None:
    with pytest.raises(AttributeError, match="module 'saccade' has no attribute 'atend'"):
        saccade.atend  # type: ignore[attr-defined] # noqa: B018


def test_public_names_are_listed_before_their_use() -> None:
    assert set(saccade.__all__) <= set(dir(saccade))
    assert saccade.load.__module__ == "saccade.runs.load"
