"""What deploys saccade elsewhere: every file by its schema or linter, and by what the program itself takes."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement

from saccade.cli import load_command
from saccade.serving.http.metrics import Metrics
from saccade.serving.server import GRACE
from saccade.serving.settings import Settings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("[st]*.yaml"))
SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sbatch"))
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def check(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def understood(command: str, arguments: list[str]) -> None:
    """The command line takes these arguments."""
    load_command(command).make_context(command, list(arguments))


def instructions(path: Path) -> list[tuple[str, str]]:
    lines = re.sub(r"\\\n\s*", " ", path.read_text("utf-8")).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word.isupper()]


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def served() -> list[list[str]]:
    """The arguments of `saccade serve` in all files."""
    (container,) = documents(DEPLOY / "kubernetes" / "serve.yaml")[1]["spec"]["template"]["spec"]["containers"]
    steps = dict(instructions(DEPLOY / "Dockerfile"))
    first, serve, *options = json.loads(steps["ENTRYPOINT"])
    assert (first, serve) == ("saccade", "serve")
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["saccade"]["command"]
    return [[*options, *given] for given in (json.loads(steps["CMD"]), container["args"], composed)]


@pytest.mark.skipif(sys.platform != "linux" or not (BIN / "hadolint").exists(), reason="hadolint is not here")
def test_the_image_is_built_by_the_book() -> None:
    check(BIN / "hadolint", DEPLOY / "Dockerfile")


def test_the_image_has_what_it_needs_and_is_not_root() -> None:
    steps = instructions(DEPLOY / "Dockerfile")
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").split()
    assert ignored[0] == "*"
    for word, rest in steps:
        if word == "COPY" and "--from" not in rest:
            for name in rest.split()[:-1]:
                assert (ROOT / name).exists(), name
                assert f"!{name}" in ignored, name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    named = {"constraints.txt", project["project"]["readme"], *project["project"]["license-files"], "hatch_build.py"}
    assert {f"!{name}" for name in named} <= {*ignored}
    last = max(place for place, (word, _) in enumerate(steps) if word == "FROM")
    assert dict(steps[last:])["USER"] == "10001:10001"
    assert "/ready" in dict(steps)["HEALTHCHECK"]
    assert int(dict(steps)["EXPOSE"]) == Settings().port


@pytest.mark.parametrize("arguments", served(), ids=["Dockerfile", "kubernetes", "compose"])
def test_servers_are_started_with_options_that_there_are(arguments: list[str]) -> None:
    understood("serve", arguments)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_follow_their_schema(path: Path) -> None:
    found = documents(path)
    assert len(found) >= 2
    for one in found:
        kubernetes_validate.validate(one, "1.33", strict=True)


def test_a_pod_waits_for_the_server_and_scales_by_a_metric_that_there_is() -> None:
    _, deployment, _, _, autoscaler = documents(DEPLOY / "kubernetes" / "serve.yaml")
    settings = Settings()
    wait = settings.drain_wait + settings.drain_timeout + GRACE
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["saccade"]
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > wait
    assert float(composed["stop_grace_period"].removesuffix("s")) > wait
    (metric,) = autoscaler["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    metrics = Metrics()
    assert f"# TYPE {name} gauge".encode() in metrics.text()
    (rule,) = yaml.safe_load((DEPLOY / "kubernetes" / "adapter.yaml").read_text("utf-8"))["rules"]["custom"]
    assert rule["seriesQuery"].startswith(f"{name}{{")


@pytest.mark.parametrize(
    ("schema", "path"),
    [("compose-spec", "deploy/compose.yaml"), ("github-workflows", ".github/workflows/machines.yaml")],
)
def test_other_files_follow_their_schema(schema: str, path: str) -> None:
    check(BIN / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", ROOT / path)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder with commands of a cluster that say what they were asked; srun runs them."""
    said = tmp_path / "said"
    commands = {
        "scontrol": '[ "$1 $2" = "show hostnames" ] && printf "node7\\nnode8\\n"',
        "srun": 'while [[ $1 == --* ]]; do case $1 in --overlap) shift;; *) shift 2;; esac; done; exec "$@"',
        "torchrun": f'echo "torchrun $*" >> {said}',
        "ray": f'echo "ray $*" >> {said}; [ $1 = start ] || [ $(grep -c "ray start" {said}) = 2 ]',  # if both began
        "sleep": "exec /bin/sleep 0.02",
        "saccade": f'echo "saccade $* at $RAY_ADDRESS" >> {said}',
    }
    for name, body in commands.items():
        (path := tmp_path / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def run_job(cluster: Path, script: Path, *arguments: str) -> tuple[int, list[str]]:
    given = {"JOB_ID": "5", "NNODES": "2", "JOB_NODELIST": "node[7-8]", "GPUS_ON_NODE": "8", "CPUS_PER_TASK": "32"}
    path = {"PATH": f"{cluster}:{os.environ['PATH']}"}
    environment = {**os.environ, **path, **{f"SLURM_{name}": value for name, value in given.items()}}
    command = ["bash", str(script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    said = cluster / "said"
    return done.returncode, sorted(said.read_text("utf-8").splitlines()) if said.exists() else []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_jobs_pass_the_linter_and_say_how_they_are_used(script: Path, cluster: Path) -> None:
    if shutil.which("shellcheck", path=str(BIN)) is not None:
        check(BIN / "shellcheck", script)
    assert run_job(cluster, script) == (2, [])
    wanted = [line.split()[1].partition("=")[0] for line in script.read_text("utf-8").splitlines() if "#SBATCH" in line]
    assert {"--nodes", "--ntasks-per-node", "--time", "--output"} <= {*wanted}


def test_a_training_meets_at_its_first_machine(cluster: Path) -> None:
    code, (said,) = run_job(cluster, DEPLOY / "slurm" / "train.sbatch", "wmt.yaml", "seed=2", "--run", "runs/wmt")
    assert code == 0
    assert fnmatch.fnmatch(
        said, "torchrun --nnodes 2 --nproc-per-node 8 --max-restarts 10 * --rdzv-endpoint node7:29400 *"
    )
    assert said.endswith("--no-python -- saccade train wmt.yaml seed=2 --run runs/wmt")
    understood("train", ["wmt.yaml", "seed=2", "--run", "runs/wmt"])


def test_many_files_are_answered_by_a_cluster_of_ray(cluster: Path) -> None:
    code, said = run_job(cluster, DEPLOY / "slurm" / "predict.sbatch", "runs/wmt", "--input", "t/*.gz", "--output", "o")
    assert code == 0
    head, worker = [line for line in said if line.startswith("ray start")][::-1]
    assert head.startswith("ray start --head --port 6379 --num-cpus 32")
    assert worker.startswith("ray start --address node7:6379")
    (answer,) = [line for line in said if line.startswith("saccade")]
    assert answer == "saccade predict runs/wmt --input t/*.gz --output o --on ray --workers 64 at node7:6379"


def test_conda_needs_what_the_command_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = [Requirement(one) for one in (*project["dependencies"], *project["optional-dependencies"]["run"])]
    text = (DEPLOY / "conda" / "recipe.yaml").read_text("utf-8")
    recipe = yaml.safe_load(text.replace("${{ version }}", "0").replace("${{ PYTHON }}", "python"))
    assert (recipe["build"]["noarch"], recipe["build"]["script"]["env"]) == ("python", {"CC": "none"})  # no library
    found = dict[str, str](line.split() for line in recipe["requirements"]["run"])
    assert found.pop("python") == project["requires-python"]
    assert found == {CONDA_NAMES.get(one.name, one.name): str(one.specifier) for one in needs}
    assert recipe["context"]["version"] == project["version"]
