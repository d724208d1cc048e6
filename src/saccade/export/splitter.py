"""A sentence splitter as an ONNX graph of rules, in the form that MiniSBD reads: Argos needs no download with it.

A text is a row of characters. Each has features (an end mark, a space, a letter of an abbreviation, ...), a convolution
looks around each character for abbreviations and initials, and products of shifted features say where sentences end.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.text.sentences import ABBREVIATIONS

MARKS = {
    "dot": ".",
    "end": ".!?…‽؟।॥．",
    "wide": "。！？｡",  # these need no space after them
    "closing": "\"'”’»›)]}」』）】〉》",
    "space": " ",
}
LETTERS = sorted({letter for word in ABBREVIATIONS for letter in word})
FEATURES = [*MARKS, "lower", "word", *LETTERS]
PADDING, UNKNOWN = "<PAD>", "<UNK>"
SENTENCE_END, NUM_CLASSES = 2, 3  # of MiniSBD's classes of characters; 0 is inside a token
REACH = max(map(len, ABBREVIATIONS)) + 2  # characters that an abbreviation takes, with the one before and its dot


def make_splitter(language: str) -> bytes:
    """Return the model as a file's bytes."""
    import onnx
    from onnx import TensorProto, helper

    table, units = _list_units()
    weight, least = _make_patterns()
    constants = {"table": table, "patterns": weight, "least": least, **_make_scalars()}
    inputs = [
        helper.make_tensor_value_info("units", TensorProto.INT64, ["batch", "length"]),
        helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", "length", "count"]),
    ]
    output = helper.make_tensor_value_info("classes", TensorProto.FLOAT, ["batch", "length", NUM_CLASSES])
    graph = helper.make_graph(
        _make_nodes(helper.make_node),
        "sentences",
        inputs,
        [output],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    vocabulary = {"lang": language, "lower": False, "_unit2id": units, "_id2unit": list(units)}
    config = {"feat_funcs": ["end_of_para"], "batch_size": 1}
    helper.set_model_props(
        model, {"lang_code": language, "config": json.dumps(config), "vocab": json.dumps(vocabulary)}
    )
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _list_units() -> tuple[NDArray[np.float32], dict[str, int]]:
    """Return the features of each unit, and the number of each character; characters with equal features share one."""
    rows: dict[tuple[bool, ...], int] = {_features("", word=False): 0, _features("", word=True): 1}
    units = {PADDING: 0, UNKNOWN: 1}  # a character that isn't listed is taken for a letter
    for character in map(chr, range(0x10000)):
        if character.isupper() or character.islower() or character.isascii() or character in "".join(MARKS.values()):
            row = _features(character, word=character.isalnum())
            units[character] = rows.setdefault(row, len(rows))
    return np.array(list(rows), np.float32), units


def _features(character: str, *, word: bool) -> tuple[bool, ...]:
    marks = [bool(character) and character in marks for marks in MARKS.values()]
    return (*marks, character.islower(), word, *(character.lower() == letter for letter in LETTERS))


def _make_patterns() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the weights of a convolution [P, C, REACH] whose last tap is a dot, and how much a match sums up to."""
    words = [[{letter} for letter in word] for word in sorted(ABBREVIATIONS)]
    patterns = [*words, [{"word"}]]  # a single letter or digit: an initial, or 1. in a list
    weight = np.zeros((len(patterns), len(FEATURES), REACH), np.float32)
    least = np.zeros((1, len(patterns), 1), np.float32)
    for number, pattern in enumerate(patterns):
        for back, names in enumerate([{"dot"}, *reversed(pattern)], 1):
            for name in names:
                weight[number, FEATURES.index(name), -back] = 1
        weight[number, FEATURES.index("word"), -len(pattern) - 2] = -1
        least[0, number, 0] = len(pattern) + 0.5
    return weight, least


def _make_scalars() -> dict[str, NDArray[Any]]:
    slices = {f"at_{name}": np.array([FEATURES.index(name)], np.int64) for name in (*MARKS, "lower")}
    edges = {"zero": [0], "from_1": [1], "from_2": [2], "to_end": [sys.maxsize], "to_last": [-1], "axis_2": [2]}
    pads = {"pad_1": [0, 0, 0, 0, 0, 1], "pad_2": [0, 0, 0, 0, 0, 2], "pad_before": [0, 0, 1, 0, 0, 0]}
    whole = {name: np.array(value, np.int64) for name, value in {**edges, **pads}.items()}
    return {**slices, **whole, "one": np.ones((1, 1, 1), np.float32), "half": np.full((1, 1, 1), 0.5, np.float32)}


def _make_nodes(node: Any) -> list[Any]:
    """Make nodes: 1 - x is `not`, a product is `and`, the largest is `or`."""
    nodes = [
        node("Gather", ["table", "units"], ["found"]),
        node("Transpose", ["found"], ["seen"], perm=[0, 2, 1]),
        node("Conv", ["seen", "patterns"], ["sums"], pads=[REACH - 1, 0]),
        node("Greater", ["sums", "least"], ["matches"]),
        node("Cast", ["matches"], ["matched"], to=1),
        node("ReduceMax", ["matched"], ["short"], axes=[1], keepdims=1),
    ]
    nodes += [node("Gather", ["seen", f"at_{name}"], [name], axis=1) for name in (*MARKS, "lower")]

    def later(name: str, steps: int) -> str:
        nodes.append(node("Slice", [name, f"from_{steps}", "to_end", "axis_2"], [f"{name}_cut{steps}"]))
        nodes.append(node("Pad", [f"{name}_cut{steps}", f"pad_{steps}"], [f"{name}_after{steps}"]))
        return f"{name}_after{steps}"

    def earlier(name: str) -> str:
        nodes.append(node("Pad", [name, "pad_before"], [f"{name}_padded"]))
        nodes.append(node("Slice", [f"{name}_padded", "zero", "to_last", "axis_2"], [f"{name}_before"]))
        return f"{name}_before"

    def joined(kind: str, *names: str) -> str:
        result = f"{kind}_{len(nodes)}"
        nodes.append(node(kind, list(names), [result]))
        return result

    def negated(name: str) -> str:
        return joined("Sub", "one", name)

    ended = joined("Mul", "end", negated("short"))
    quoted = joined("Mul", "closing", earlier(ended))
    twice = joined("Mul", "closing", earlier(quoted))
    ending = joined("Max", ended, quoted, twice)
    spaced = joined("Mul", joined("Mul", ending, later("space", 1)), negated(later("lower", 2)))
    unspaced = joined("Mul", "wide", negated(joined("Max", later("wide", 1), later("closing", 1))))
    last = joined("Max", spaced, joined("Max", unspaced, joined("Mul", "closing", earlier("wide"))))
    inside = joined("Mul", joined("Add", last, "one"), "half")  # 0.5, or 1 at an end, where 2 is larger
    never = joined("Sub", last, last)
    nodes.append(node("Concat", [inside, never, joined("Add", last, last)], ["stacked"], axis=1))
    nodes.append(node("Transpose", ["stacked"], ["classes"], perm=[0, 2, 1]))
    return nodes
