"""Writes docs/licences.md and docs/sbom.json; `make licences` runs it.

cyclonedx-py reads the environment (CycloneDX, https://cyclonedx.org); this keeps what the extras bring, sorted by them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).parent
SETS = {"": "`pip install saccade`", "run": "`[run]`", "serve": "`[serve]`", "sound": "`[sound]`"}
SETS |= {"export": "`[export]`", "tensorboard": "`[tensorboard]`"}
TOOLS = {"pip", "setuptools"}  # they install; saccade needs neither
IN_FILES = {"protobuf": "BSD-3-Clause", "transformers": "Apache-2.0"}  # whose metadata name no licence
CLASSIFIERS = {"BSD License": "BSD", "Apache Software License": "Apache-2.0", "MIT License": "MIT"}


def needs(extra: str = "") -> set[str]:
    """Return the names of all that `saccade[extra]` needs, directly or not."""
    found: set[str] = set()
    left = [("saccade", {extra})]
    while left:
        name, extras = left.pop()
        for requirement in map(Requirement, requires(name) or ()):
            wanted = [{"extra": extra} for extra in extras]
            if requirement.marker is not None and not any(requirement.marker.evaluate(each) for each in wanted):
                continue
            own = canonicalize_name(requirement.name)
            if own == "saccade" or own not in found:
                left.append((own, requirement.extras or {""}))
            found.add(own)
    return found - {"saccade"}


def licence(component: dict[str, Any]) -> str:
    """Return a component's licence as its metadata declare it."""
    found = []
    for entry in component.get("licenses", ()):
        named = entry.get("license", {})
        text = entry.get("expression") or named.get("id") or named.get("name", "")
        text = text.rpartition(" :: ")[2]
        found.append(CLASSIFIERS.get(text, text))
    return " AND ".join(dict.fromkeys(found)) or IN_FILES[component["name"]]


def write_table(components: Iterable[dict[str, Any]]) -> str:
    known = {canonicalize_name(component["name"]): component for component in components}
    told: set[str] = set()
    lines = [
        "# Licences of what saccade needs",
        "",
        "saccade itself is under Apache-2.0. Each package stands below the first extra that brings "
        "it, with the version of",
        "`constraints.txt` and the licence that its metadata declare. [sbom.json](sbom.json) has all of it as a "
        "bill of",
        "materials in CycloneDX's format. `make licences` writes both anew; a test compares them with what "
        "is installed.",
        "The wheel of soundfile holds libsndfile (LGPL-2.1), that of torch for CUDA brings NVIDIA's libraries "
        "under their terms.",
        "The extra `docs` builds the site (Zensical, Markdown, Pygments: MIT and BSD) and is in none of these lists.",
        "The extra `speech` is in none of these lists, and not in `all`: the wheel of espeakng-loader holds "
        "eSpeak NG (GPL-3.0).",
    ]
    for extra, title in SETS.items():
        names = sorted((needs(extra) & set(known)) - told - TOOLS)
        told |= set(names)
        lines += ["", f"## {title}", "", "| package | version | licence |", "|---|---|---|"]
        for name in names:
            found = known[name]
            lines.append(f"| {found['name']} | {re.sub(r'[+].*', '', found['version'])} | {licence(found)} |")
    return "\n".join(lines) + "\n"


def keep_needed(bill: dict[str, Any]) -> dict[str, Any]:
    """Leave out what only tests need, and links."""
    needed = needs("all") - TOOLS
    kept = [part for part in bill["components"] if canonicalize_name(part["name"]) in needed]
    for part in kept:
        part.pop("externalReferences", None)
    names = {part["bom-ref"] for part in kept} | {"root-component"}
    dependencies = [
        {**entry, "dependsOn": sorted(names & set(entry.get("dependsOn", ())))}
        for entry in bill["dependencies"]
        if entry["ref"] in names
    ]
    return {**bill, "components": kept, "dependencies": dependencies}


def main() -> None:
    bill = keep_needed(json.load(sys.stdin))
    (FOLDER / "sbom.json").write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (FOLDER / "licences.md").write_text(write_table(bill["components"]), encoding="utf-8")


if __name__ == "__main__":
    main()
