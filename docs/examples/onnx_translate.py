"""Translate with an exported model, in ONNX Runtime and numpy alone: greedy search or a beam, one sentence at a time.

saccade export runs/demo onnx demo-onnx
python docs/examples/onnx_translate.py demo-onnx --beam 4 < sentences.txt
"""

from __future__ import annotations

import argparse
import json
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
        self.source, self.target = (Tokenizer(folder, side, self.config) for side in ("source", "target"))

    def start(self, ids: list[int]) -> tuple[Arrays, Arrays]:
        """Read a source: what stays the same for all steps, and the past of the first one.

        An RNN's past is its first state, which the encoder returns; a Transformer's are caches without steps.
        """
        given = {"source": np.array([[*ids, self.config["end"]]]), "source_length": np.array([len(ids) + 1])}
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
    """SentencePiece, or a list of words or characters."""

    def __init__(self, folder: Path, side: str, config: dict[str, Any]) -> None:
        self.names, self.unknown = config[side], config["unknown"]
        path = folder / f"tokenizer.{side}.model"
        self.pieces: Any = None
        if path.exists():
            import sentencepiece

            self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
        else:
            kind = json.loads((folder / f"tokenizer.{side}.json").read_text("utf-8"))["kind"]
            self.glue = " " if kind == "words" else ""
            self.ids = {name: number for number, name in enumerate(self.names) if number > self.unknown}

    def encode(self, text: str) -> list[int]:
        if self.pieces is not None:
            return list(self.pieces.encode(text))
        return [self.ids.get(part, self.unknown) for part in (text.split() if self.glue else text)]

    def decode(self, ids: list[int]) -> str:
        if self.pieces is not None:
            return " ".join(self.pieces.decode(ids).split())
        return str(self.glue.join(self.names[number] for number in ids))


def search(model: Model, source: list[int], beam: int, limit: int) -> list[int]:
    """Return the ids with the largest log p that a beam finds; a beam of one is greedy search."""
    fixed, past = model.start(source)
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
    parser = argparse.ArgumentParser(description="Translate lines of the standard input.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--limit", type=int, help="The most ids of an output, </s> included.")
    given = parser.parse_args()
    model = Model(given.folder)
    for line in sys.stdin:
        source = model.source.encode(" ".join(line.split()))
        limit = given.limit or 2 * len(source) + 12
        print(model.target.decode(search(model, source, given.beam, limit) if source else []))


if __name__ == "__main__":
    main()
