"""Write with an exported model, in ONNX Runtime and numpy alone: greedy search or a beam, one output at a time.

saccade export runs/demo onnx demo-onnx
python docs/examples/onnx_translate.py demo-onnx --beam 4 < sentences.txt

A model that writes captions reads the names of .npy files: bytes [channels, rows, columns], or features
[places, channels].
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


class Model:
    """The two graphs of a folder, and its tokenizers."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text("utf-8"))
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
            for name in ("encoder", "decoder")
        )
        self.source = Tokenizer(folder, "source", self.config) if "source" in self.config else None
        self.target = Tokenizer(folder, "target", self.config)

    def read(self, line: str) -> Arrays | None:
        """Read a sentence, or the numbers in a file; None: there is nothing."""
        line = " ".join(line.split())
        if self.source is None:
            return self._read_numbers(np.load(line)[None]) if line else None
        if not (ids := self.source.encode(line)):
            return None
        return {"source": np.array([[*ids, self.config["end"]]]), "source_length": np.array([len(ids) + 1])}

    def _read_numbers(self, source: NDArray[Any]) -> Arrays:
        """Return a picture, features or a clip; of a clip also the number of its cells, over all frames."""
        if "frames" not in self.config:
            return {"source": source}
        cells = source.shape[1] * self.config["rows"] * self.config["columns"]
        return {"source": source, "source_length": np.array([cells])}

    def start(self, given: Arrays) -> tuple[Arrays, Arrays]:
        """Read a source: what stays the same for all steps, and the past of the first one.

        An RNN's past is its first state, which the encoder returns; a Transformer's are caches without steps.
        """
        names = [output.name for output in self.encoder.get_outputs()]
        found = {**given, **dict(zip(names, self.encoder.run(names, given), strict=True))}
        fixed, past = dict[str, Any](), dict[str, Any]()
        for name in (one.name for one in self.decoder.get_inputs() if one.name != "read"):
            if not name.startswith("past"):
                fixed[name] = found[name]
            else:
                past[name] = found[name] if name in found else found[name.replace("past", "memory")][:, :, :0]
        return fixed, past

    def step(self, read: list[int], fixed: Arrays, past: Arrays) -> tuple[NDArray[Any], Arrays]:
        """Read the last id of each hypothesis: log p of every next id [N, V], and the past after it.

        Ask for the output `attention`, too, for the weights on the source [N, layers, heads, 1, source].
        """
        rows = {name: np.repeat(value, len(read), 0) for name, value in fixed.items()}
        names = ["logits", *(name.replace("past", "present") for name in past)]
        logits, *present = self.decoder.run(names, {"read": np.array(read)[:, None], **rows, **past})
        score = logits[:, -1].astype(np.float64)
        score -= score.max(-1, keepdims=True)
        score -= np.log(np.exp(score).sum(-1, keepdims=True))
        score[:, [self.config["pad"], self.config["start"]]] = -np.inf  # never written
        return score, dict(zip(past, present, strict=True))


class Tokenizer:
    """SentencePiece, or a list of words or characters; an id is a place in the list of all names."""

    def __init__(self, folder: Path, side: str, config: dict[str, Any]) -> None:
        self.names, self.unknown = config[side], config["unknown"]
        self.ids = {name: number for number, name in enumerate(self.names) if number > self.unknown}
        path = folder / f"tokenizer.{side}.json"
        stored = json.loads(path.read_text("utf-8")) if path.exists() else {"kind": "sentencepiece"}
        self.glue = {"words": " ", "characters": ""}.get(stored["kind"])
        self.is_listed, self.begins_empty = stored["kind"] == "listed", stored.get("begins_empty", False)
        self.first = [self.ids[name] for name in stored.get("first", [])]  # they stand before each text
        if self.glue is None:
            import sentencepiece

            model: Any = {"model_file": str(path.with_suffix(".model"))}
            if self.is_listed:
                model = {"model_proto": base64.b64decode(stored["model"])}
            self.pieces = sentencepiece.SentencePieceProcessor(**model)

    def encode(self, text: str) -> list[int]:
        found = []
        if self.is_listed and (language := re.match(r">>\S+<<", text)) and language[0] in self.ids:
            found, text = [self.ids[language[0]]], text[language.end() :]
        parts = self.pieces.encode(text, out_type=str) if self.glue is None else text.split() if self.glue else text
        found += [self.ids.get(part, self.unknown) for part in parts]
        return [*self.first, *found] if found or self.begins_empty else []

    def decode(self, ids: list[int]) -> str:
        if self.glue is not None:
            return self.glue.join(self.names[number] for number in ids)
        names = {number: self.names[number] for number in ids if number > self.unknown and number not in self.first}
        if not self.is_listed:
            names[self.unknown] = self.pieces.id_to_piece(self.pieces.unk_id())
        written = self.pieces.decode_pieces([names[number] for number in ids if number in names])
        return " ".join(str(written).replace("▁", " ").split())


def search(model: Model, given: Arrays, beam: int, limit: int) -> list[int]:
    """Return the ids with the largest log p that a beam finds; a beam of one is greedy search."""
    fixed, past = model.start(given)
    hypotheses, scores, end = [[model.config["start"]]], np.zeros(1), model.config["end"]
    finished: list[tuple[float, list[int]]] = []
    for _ in range(limit):
        step, past = model.step([ids[-1] for ids in hypotheses], fixed, past)
        total = (scores[:, None] + step).ravel()
        best = np.argsort(-total, kind="stable")[: 2 * beam]
        kept: list[int] = []
        for rank, flat in enumerate(best.tolist()):
            parent, number = divmod(flat, step.shape[1])
            if number == end and rank < beam:  # it leaves the beam
                finished.append((float(total[flat]), hypotheses[parent][1:]))
            elif number != end and len(kept) < beam:
                kept.append(flat)
        parents = [flat // step.shape[1] for flat in kept]
        hypotheses = [[*hypotheses[flat // step.shape[1]], flat % step.shape[1]] for flat in kept]
        scores, past = total[kept], {name: value[parents] for name, value in past.items()}
        if finished and max(finished)[0] >= scores.max():  # log p only falls
            break
    return max(finished)[1] if finished else hypotheses[0][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write for each line of the standard input.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--limit", type=int, help="The most ids of an output, </s> included.")
    given = parser.parse_args()
    model = Model(given.folder)
    for line in sys.stdin:
        read = model.read(line)
        limit = given.limit or (40 if read is None or model.source is None else 2 * read["source"].shape[1] + 10)
        print("" if read is None else model.target.decode(search(model, read, given.beam, limit)))


if __name__ == "__main__":
    main()
