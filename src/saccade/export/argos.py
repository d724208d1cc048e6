"""Argos Translate (and so LibreTranslate): a package with CTranslate2, SentencePiece and a splitter of sentences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

from saccade.attention.positions import Learned
from saccade.data.text.languages import name_of
from saccade.data.text.tokenizer import SentencePiece
from saccade.decoding import BeamOptions, Stepper
from saccade.export import ctranslate2
from saccade.export.ctranslate2 import CTranslate2Engine
from saccade.export.proof import Engine, Ids, Sample, search_with
from saccade.export.splitter import make_splitter
from saccade.models.transformer import Transformer
from saccade.tasks.base import Portable

ENDING = ".argosmodel"
RULES = BeamOptions(  # of Argos, and of CTranslate2 where Argos says nothing
    width=4, length_penalty=0.2, length_offset=0, patience=1, min_length=1, max_length=256, max_length_factor=256
)
MOST_READ = 1024  # pieces of a sentence; CTranslate2 cuts what is longer
PROGRAM = "argos-translate-lt"  # the distribution that LibreTranslate installs
TRANSLATE = """
import json, sys, warnings
warnings.simplefilter("ignore")
from argostranslate import package, translate
package.install_from_path(sys.argv[1])
languages = {one.code: one for one in translate.get_installed_languages()}
translation = languages[sys.argv[2]].get_translation(languages[sys.argv[3]])
print(json.dumps([translation.translate(text) for text in json.load(sys.stdin)]))
"""


def refuse(portable: Portable) -> str | None:
    """Say what of a run a package can't say."""
    if portable.languages is None:
        return "a run whose languages are not known (set languages.source and languages.target)"
    both = (portable.source, portable.target)
    if not all(isinstance(tokenizer, SentencePiece) for tokenizer in both):
        return "words or characters (it has SentencePiece; tokenizer.kind: unigram or bpe)"
    if cast(SentencePiece, portable.source).model != cast(SentencePiece, portable.target).model:
        return "tokenizer.shared: false (it has one SentencePiece model for both sides)"
    if (reason := ctranslate2.refuse(portable)) is not None:
        return reason
    positions = cast(Transformer, portable.network).positions
    if isinstance(positions, Learned) and len(positions.table) < MOST_READ:
        return f"model.positions: learned, up to {len(positions.table)} (it reads up to {MOST_READ:,}, and would fail)"
    return None


def write(portable: Portable, folder: Path, quantization: str) -> Mapping[str, object]:
    """Write the folder that is packed."""
    inside = find_inside(portable, folder)
    for part in ("model", "minisbd"):
        (inside / part).mkdir(parents=True)
    facts = ctranslate2.write(portable, inside / "model", quantization)
    source, target = portable.languages or ("", "")
    (inside / "sentencepiece.model").write_bytes(cast(SentencePiece, portable.source).model)
    (inside / "minisbd" / "rules.onnx").write_bytes(make_splitter(source))
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.9.0",
        "from_code": source,
        "from_name": name_of(source),
        "to_code": target,
        "to_name": name_of(target),
    }
    (inside / "metadata.json").write_text(json.dumps(metadata, indent=1), "utf-8")
    (inside / "README.md").write_text(f"# {name_of(source)} to {name_of(target)}\n\nMade by saccade.\n", "utf-8")
    return {**facts, "languages": [source, target]}


def find_inside(portable: Portable, folder: Path) -> Path:
    """Return the one folder that a package holds."""
    return folder / "_".join(("translate", *(portable.languages or ())))


def load(portable: Portable, folder: Path) -> CTranslate2Engine:
    """Load the CTranslate2 model inside the package, which Argos runs."""
    return CTranslate2Engine(portable, find_inside(portable, folder) / "model")


def run_program(
    portable: Portable, package: Path, engine: Engine, sample: Sample, outputs: Ids
) -> Mapping[str, object] | None:
    """Install the package into Argos in a folder of its own, translate offline, and compare; None: it isn't installed.

    Argos has a length penalty of its own, and CTranslate2 may end a search before the best output: so its texts are
    also compared with those that our search writes by the same rules; of these, all that differ are named.
    """
    try:
        found = version(PROGRAM)
    except PackageNotFoundError:
        return None
    written = [_space(text) for text in _ask_program(package, portable.languages or (), sample.texts[: len(outputs)])]
    sources, network = sample.sources[: len(outputs)], cast(Stepper, portable.network)
    searched = {
        "same": outputs,
        "same_by_its_rules": search_with(RULES, network, sources, portable.join),
        "same_as_engine": cast(CTranslate2Engine, engine).search_as(
            sources, beam_size=RULES.width, length_penalty=RULES.length_penalty
        ),
    }
    texts = {name: [_space(portable.target.decode(ids)) for ids in ids_of] for name, ids_of in searched.items()}
    counts = {name: sum(map(str.__eq__, written, own)) for name, own in texts.items()}
    rows = zip(sample.texts, written, texts["same_by_its_rules"], strict=False)
    others = [dict(zip(("source", PROGRAM, "saccade"), row, strict=True)) for row in rows if row[1] != row[2]]
    return {"name": PROGRAM, "version": found, **counts, "of": len(written), "different": others}


def _ask_program(package: Path, languages: Sequence[str], texts: list[str]) -> list[str]:
    """Install a package into Argos in a folder that is removed afterwards, and return its translations."""
    with tempfile.TemporaryDirectory() as home:
        places = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), home)
        offline = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
        done = subprocess.run(
            [sys.executable, "-c", TRANSLATE, str(package), *languages],
            input=json.dumps(texts),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **places, **offline, "ARGOS_PACKAGES_DIR": f"{home}/packages"},
        )
    if done.returncode:
        raise RuntimeError(f"{package.name}: Argos ended with an error:\n{done.stderr}")
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _space(text: str) -> str:
    """Return a text with a space for each underscore, as Argos writes."""
    return " ".join(text.replace("_", " ").split())
