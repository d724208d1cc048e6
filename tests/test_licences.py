"""docs/licences.md and docs/sbom.json tell of every package that an extra brings, in the version that is installed."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

from packaging.utils import canonicalize_name

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))
import licences  # type: ignore[import-not-found]  # noqa: E402  a script beside the documentation


def test_all_that_is_needed_is_listed() -> None:
    bill = json.loads((DOCS / "sbom.json").read_text("utf-8"))
    found = {canonicalize_name(part["name"]): part["version"].partition("+")[0] for part in bill["components"]}
    needed = licences.needs("all") - licences.TOOLS
    assert {"torch", "pydantic", "fastapi", "ctranslate2", "tensorboard"} <= needed, "the extras are walked"
    assert "hypothesis" not in needed, "what only tests need is left out"
    expected = {name: version(name).partition("+")[0] for name in needed}
    assert found == expected, "make licences writes it anew"
    assert (DOCS / "licences.md").read_text("utf-8") == licences.write_table(bill["components"])


def test_every_package_has_a_licence() -> None:
    bill = json.loads((DOCS / "sbom.json").read_text("utf-8"))
    assert all(licences.licence(part) for part in bill["components"])
