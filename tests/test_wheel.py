"""A wheel holds all of the package and nothing else, and works in another folder, where there is no checkout."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


LIBRARY = "saccade/export/native/native.so"
COMPILER = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def run(*command: str | Path, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, folder=ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment of its own, which borrows the other packages from this one."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=ROOT)
    scripts = folder / "bin"
    run(sys.executable, "-m", "pip", "--python", scripts / "python", "install", "-q", "--no-deps", wheel, folder=folder)
    (folder / SITE / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return scripts


def test_a_wheel_has_every_file_of_the_package_and_the_recipes(wheel: Path) -> None:
    package = ROOT / "src" / "saccade"
    files = [path for path in package.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".so", ".o")]
    expected = {f"saccade/{path.relative_to(package).as_posix()}" for path in files}
    expected |= {f"saccade/recipes/{path.name}" for path in (ROOT / "configs").iterdir()}
    expected |= {LIBRARY} if COMPILER else set()
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {".cu", ".cuh", ".js", ".css", ".html", ".svg", ".yaml"} <= {Path(name).suffix for name in found}
    assert "saccade/py.typed" in found


def test_an_installed_wheel_trains_and_predicts(scripts: Path, tmp_path: Path) -> None:
    where = run(scripts / "python", "-c", "import saccade; print(saccade.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(scripts.parent)
    assert "reviews" in run(scripts / "saccade", "recipes", folder=tmp_path)
    run(scripts / "saccade", "data", "reviews", folder=tmp_path)
    run(scripts / "saccade", "train", "reviews", "--threads", "1", "training.max_steps=3", folder=tmp_path)
    assert (tmp_path / "runs" / "reviews" / "report.html").stat().st_size > 10_000
    assert run(scripts / "saccade", "predict", "runs/reviews", "a good bed .", folder=tmp_path).strip()


@pytest.mark.skipif(not COMPILER, reason="the wheel was built without a C compiler")
def test_an_installed_wheel_has_the_native_library(wheel: Path, scripts: Path, tmp_path: Path) -> None:
    """It is found in the package, without a compiler and without a cache; the wheel is for this platform alone."""
    assert wheel.name.endswith(
        f"{sysconfig.get_platform().replace('-', '_').replace('.', '_').removeprefix('linux')}.whl"
    )
    system, release = platform.libc_ver()
    if system == "glibc":  # what an index takes
        found = re.search(r"-py3-none-manylinux_2_(\d+)_", wheel.name)
        assert found is not None
        assert 17 <= int(found[1]) <= int(release.removeprefix("2."))
    code = "from saccade.export.native import library; print(library.PACKAGED.exists(), library.list_kernels()[-1])"
    assert run("env", "CC=none", f"SACCADE_CACHE={tmp_path}", scripts / "python", "-c", code, folder=tmp_path) == (
        "True plain\n"
    )
    assert not list(tmp_path.iterdir())


def test_an_installed_wheel_has_the_page_of_the_server(scripts: Path, tmp_path: Path) -> None:
    code = "from saccade.serving.http.pages import routes; print(*(route.path for route in routes()))"
    paths = run(scripts / "python", "-c", code, folder=tmp_path).split()
    assert {"/", "/docs.css", "/static/main.js", "/shared/viewer.js"} <= set(paths)
