"""A small writer of ONNX graphs: functions of names, and the parts of attention models made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.export.projections import Affine

OPSET = 17
FAR = -1e9  # the score of a forbidden key; its weight is 0
Typed = tuple[str, type]  # a value and the type of its numbers


@final
class Graph:
    """Nodes and constants; a value is its name."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix  # of the names of values
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.inputs: list[tuple[str, int, list[str | int]]] = []
        self.outputs: list[tuple[str, int, list[str | int]]] = []

    def __call__(self, operator: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        """Add a node and return its value, or its values if there are several."""
        from onnx import helper

        names = [f"{self.prefix}{operator.lower()}_{len(self.nodes)}_{number}" for number in range(count)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, name=names[0], **attributes))
        return names[0] if count == 1 else names

    def constant(self, value: Tensor | Sequence[Any] | float, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self.constants)}"
        array = value.detach().float().numpy() if isinstance(value, Tensor) else np.array(value, dtype)
        self.constants[name] = array.copy(order="C")
        return name

    @staticmethod
    def type_of(dtype: type) -> int:
        """Return ONNX's number of a type."""
        return _type_of(dtype)

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def number(self, value: int) -> str:
        """Store a whole number without axes."""
        return self.constant(value, np.int64)

    def input(self, name: str, dtype: type, shape: list[str | int]) -> str:
        self.inputs.append((name, _type_of(dtype), shape))
        return name

    def output(self, name: str, value: str, dtype: type, shape: list[str | int]) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append((name, _type_of(dtype), shape))

    def scan(
        self,
        step: Callable[..., Sequence[str]],
        states: Sequence[Typed],
        read: Sequence[Typed],
        *,
        written: type,
        backwards: bool = False,
    ) -> list[str]:
        """Run a step for every row along the first axis of what is read; return the last states and what it writes.

        `step(body, *states, *rows)` adds nodes to the graph `body`, and returns the later states and a row to write.
        """
        from onnx import helper

        body = Graph(f"{self.prefix}step_{len(self.nodes)}_")
        body.constants = self.constants  # they are stored once, outside
        given, types = [*states, *read], [*(dtype for _, dtype in states), written]
        names = [f"{body.prefix}given_{number}" for number in range(len(given))]
        made = step(body, *names)
        inputs, outputs = (
            [helper.make_tensor_value_info(name, _type_of(dtype), None) for name, dtype in zip(*side, strict=True)]
            for side in ((names, [dtype for _, dtype in given]), (made, types))
        )
        found: list[str] = self(
            "Scan",
            *(value for value, _ in given),
            count=len(made),
            body=helper.make_graph(body.nodes, "step", inputs, outputs),
            num_scan_inputs=len(read),
            scan_input_directions=[int(backwards)] * len(read),
            scan_output_directions=[int(backwards)],
        )
        return found

    def size(self, value: str, axis: int) -> str:
        """Return the length of an axis, a number without axes."""
        return self("Gather", self("Shape", value), self.number(axis))

    def steps(self, first: str, count: str) -> str:
        """Return the whole numbers from `first` on."""
        return self("Range", first, self("Add", first, count), self.number(1))

    def affine(self, x: str, part: Affine) -> str:
        return self("Add", self("MatMul", x, self.constant(part.weight.mT)), self.constant(part.bias))

    def heads(self, x_BTD: str, num_heads: int) -> str:
        """Split into heads, [B, H, T, K]."""
        return self("Transpose", self("Reshape", x_BTD, self.integers(0, 0, num_heads, -1)), perm=[0, 2, 1, 3])

    def join(self, x_BHTK: str) -> str:
        return self("Reshape", self("Transpose", x_BHTK, perm=[0, 2, 1, 3]), self.integers(0, 0, -1))

    def norm(self, x: str, norm: nn.LayerNorm) -> str:
        weight, bias = self.constant(norm.weight), self.constant(norm.bias)
        return self("LayerNormalization", x, weight, bias, axis=-1, epsilon=norm.eps)

    def activate(self, x: str, name: str) -> str:
        if name == "relu":
            return self("Relu", x)
        if name in ("silu", "swiglu"):
            return self("Mul", x, self("Sigmoid", x))
        erf = self("Erf", self("Mul", x, self.constant(1 / math.sqrt(2))))
        return self("Mul", self("Mul", x, self.constant(0.5)), self("Add", erf, self.constant(1.0)))

    def pair_up(self, left: str, right: str) -> str:
        """Interleave the last axes of two values."""
        last = self.integers(-1)
        both = self("Concat", self("Unsqueeze", left, last), self("Unsqueeze", right, last), axis=-1)
        kept = self("Slice", self("Shape", left), self.integers(0), last)
        return self("Reshape", both, self("Concat", kept, last, axis=0))

    def circle(self, at_T: str, rate: Tensor) -> tuple[str, str]:
        """Return the sines and cosines of places times rates, [T, D / 2]; angles are as precise as the rates."""
        dtype = np.float64 if rate.dtype == torch.float64 else np.float32
        place = self("Unsqueeze", self("Cast", at_T, to=self.type_of(dtype)), self.integers(1))
        angle = self("Mul", place, self.constant(rate.tolist(), dtype))
        sine, cosine = (self("Cast", self(name, angle), to=self.type_of(np.float32)) for name in ("Sin", "Cos"))
        return sine, cosine

    def rotate(self, x_BHTK: str, at_T: str, rate: Tensor) -> str:
        """Turn pairs of queries or keys (rotary positions)."""
        sine, cosine = self.circle(at_T, rate)
        split = self("Reshape", x_BHTK, self.integers(0, 0, 0, -1, 2))
        even, odd = (self("Gather", split, self.number(side), axis=-1) for side in (0, 1))
        turned = self("Sub", self("Mul", even, cosine), self("Mul", odd, sine))
        other = self("Add", self("Mul", even, sine), self("Mul", odd, cosine))
        return self.pair_up(turned, other)

    def unit(self, x: str) -> str:
        """Return x / |x|; zero stays zero."""
        length = self("ReduceL2", x, axes=[-1], keepdims=1)
        return self("Div", x, self("Max", length, self.constant(1e-30)))

    def to_bytes(self) -> bytes:
        """Return the model as a file's bytes; it is checked first."""
        import onnx
        from onnx import helper

        inputs, outputs = (
            [helper.make_tensor_value_info(*one) for one in several] for several in (self.inputs, self.outputs)
        )
        stored = [onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "saccade", inputs, outputs, stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())


def _type_of(dtype: type) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def list_biases(bias: Any, most: int) -> Tensor:
    """Return a relative bias for each distance from -most to most, [H, 2 most + 1]."""
    distance = torch.arange(-most, most + 1)
    found: Tensor = bias.table[bias._bucket(distance)].mT
    return found
