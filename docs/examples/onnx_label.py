"""Label texts, or tag their words, with an exported model, in ONNX Runtime and numpy alone.

saccade export runs/reviews onnx reviews-onnx
python docs/examples/onnx_label.py reviews-onnx < texts.txt

A model of dialogues reads its lines as one dialogue; a blank line ends it, and a line may be `speaker TAB text`.
A line of a model of documents is one document, with a TAB between its sentences.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx_translate import Tokenizer  # the example beside this one

Arrays = dict[str, NDArray[Any]]
Ids = dict[str, int]


class Model:
    """The graph of a folder."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text("utf-8"))
        self.graph = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        self.inputs = [one.name for one in self.graph.get_inputs()]

    def __call__(self, given: Arrays, output: str) -> NDArray[Any]:
        """Return one output for the inputs that the graph has; `attention` is another."""
        (found,) = self.graph.run([output], {name: given[name] for name in self.inputs})
        return np.asarray(found)


class Classifier:
    """Labels for texts, and for each what was said before it, if the model reads that."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.model, self.config = model, model.config
        self.tokenizer = Tokenizer(folder, "source", self.config)
        self.before: list[tuple[str, list[int]]] = []  # speakers and ids

    def answer(self, line: str) -> str:
        speaker, tab, text = line.partition("\t")
        if not self.config["context"] or not tab:
            speaker, text = "", line
        if self.config["context"] and not line.strip():
            self.before = []
            return ""
        if "max_sentences" in self.config:
            self.before = [("", ids) for ids in self.encode_document(line)]
        else:
            told = [*self.before, (" ".join(speaker.split()), self.encode(text)[: self.config["max_length"]])]
            self.before = told[-self.config["context"] - 1 :]
        logits = self.model(self.gather(), "logits")[0]
        if "threshold" in self.config:  # several labels at once
            share = 1 / (1 + np.exp(-logits))
            given = np.flatnonzero(share >= self.config["threshold"])
            return " ".join(f"{self.config['labels'][at]} {share[at]:.3f}" for at in given)
        share = np.exp(logits - logits.max())
        return f"{self.config['labels'][logits.argmax()]} {share.max() / share.sum():.3f}"

    def encode(self, text: str) -> list[int]:
        """Write a text as in training, and return its ids; a blank one is the id of </s>."""
        words = text.replace("▁", " ").split()
        if self.config["split_punctuation"]:
            words = re.findall(r"\w+(?:[-'’]\w+)*|[^\w\s]", " ".join(words))
        spelled = " ".join(words).lower() if self.config["lowercase"] else " ".join(words)
        return self.tokenizer.encode(spelled) or [self.config["end"]]

    def encode_document(self, line: str) -> list[list[int]]:
        """Return the ids of each sentence; a long one is read in parts."""
        most, sentences = self.config["max_length"], [one for one in line.split("\t") if one.strip()] or [""]
        encoded = (self.encode(sentence) for sentence in sentences)
        parts = [ids[start : start + most] for ids in encoded for start in range(0, len(ids), most)]
        return parts[: self.config["max_sentences"]]

    def gather(self) -> Arrays:
        """Return the last texts as one window."""
        speakers, texts = zip(*self.before, strict=True)
        same = [2 if not (one and speakers[-1]) else int(one == speakers[-1]) for one in speakers]
        return {
            "ids": pad(texts),
            "length": np.array([len(ids) for ids in texts]),
            "window": np.arange(len(texts))[None],
            "window_length": np.array([len(texts)]),
            "speaker": np.array([same]),
        }


class Tagger:
    """Tags for the words of a sentence, each sentence for itself."""

    def __init__(self, model: Model) -> None:
        self.model, self.config = model, model.config
        if "feature" in model.inputs:
            raise SystemExit("this model reads further columns beside the words; a line of words does not have them")
        names = ("words", "characters", "shapes")
        self.words, self.characters, self.shapes = (number_all(self.config, name) for name in names)

    def answer(self, line: str) -> str:
        words = line.split()
        if not words:
            return ""
        tags = [self.show(self.config["tags"][number]) for number in self.model(self.gather(words), "tags")[0]]
        return "\n".join([*(f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)), ""])

    def gather(self, words: list[str]) -> Arrays:
        spellings = list(dict.fromkeys(words))
        folded = [re.sub(r"\d", "0", word.lower()) for word in words]
        characters = [self.spell(word) for word in spellings]
        places = [[at for at, other in enumerate(folded) if other == word] for word in dict.fromkeys(folded)]
        repeated = [at[start : start + 16] for at in places for start in range(0, len(at), 16)]
        repeated = [run for run in repeated if len(run) > 1]
        return {
            "length": np.array([len(words)]),
            "word": np.array([[self.words.get(word, self.config["unknown"]) for word in folded]]),
            "spelling": np.array([[spellings.index(word) for word in words]]),
            "character": pad(characters),
            "character_length": np.array([len(ids) for ids in characters]),
            "shape": np.array([self.shapes.get(self.draw(word), self.config["unknown"]) for word in spellings]),
            "place": pad(repeated),
            "place_length": np.array([len(run) for run in repeated], np.int64),
        }

    def show(self, tag: str) -> str:
        """Spell a tag in BIO; a model may spell the last word of a span E, and a span of one word S."""
        return re.sub("^S-", "B-", re.sub("^E-", "I-", tag)) if self.config["spelling"] == "bioes" else tag

    def spell(self, word: str) -> list[int]:
        """Return the ids of a word's characters; of a long word the beginning and the end are read."""
        longest = self.config["longest_word"]
        kept = word if len(word) <= longest else word[: longest // 2] + word[-longest // 2 :]
        ids = (self.characters.get(character, self.config["unknown"]) for character in kept)
        return [self.config["start"], *ids, self.config["end"]]

    def draw(self, word: str) -> str:
        """Return a word's shape: X for capitals, x for small letters, 0 for digits, two at most in a row."""
        kinds = ("X" if c.isupper() else "x" if c.islower() else "0" if c.isdigit() else c for c in word)
        return re.sub(r"(.)\1+", r"\1\1", "".join(kinds))[: self.config["longest_shape"]]


def number_all(config: dict[str, Any], name: str) -> Ids:
    """Number names by their places; the special ones are no names of words."""
    return {symbol: number for number, symbol in enumerate(config[name]) if number > config["unknown"]}


def pad(rows: Any) -> NDArray[np.int64]:
    """Return rows of ids as a table, with zeros behind them."""
    table = np.zeros((len(rows), max(map(len, rows), default=0)), np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def answer(folder: Path, lines: Iterator[str]) -> Iterator[str]:
    """Answer every line."""
    model = Model(folder)
    reader = Tagger(model) if model.config["answers"] == "tags" else Classifier(model, folder)
    return (reader.answer(line) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Label the lines of the standard input, or tag their words.")
    parser.add_argument("folder", type=Path)
    for found in answer(parser.parse_args().folder, iter(sys.stdin)):
        print(found)


if __name__ == "__main__":
    main()
