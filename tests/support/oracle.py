"""Attention in float64 NumPy, spelled from the equations alone: what the library is checked against.

Nothing here is fast and nothing is shared with ``saccade``: scores are taken one (t, s) pair at a time,
weights one row at a time, thresholds by bisection. Parameters keep the letters of their equations.
Shapes: query [..., T, Dq], key [..., S, Dk], value [..., S, Dv]; leading axes broadcast; positions from 0.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Integers = NDArray[np.integer]
Parameters = Mapping[str, Array]


def double(array: ArrayLike) -> Array:
    """The same numbers in float64, so that no step is taken in a lower precision."""
    return np.asarray(array, dtype=np.float64)


# Scores: how well key s answers query t.


def cosine(query: Array, key: Array) -> float:
    """cos(q, k) = q . k / (|q| |k|), and 0 where q or k is the zero vector."""
    query_norm, key_norm = math.hypot(*query), math.hypot(*key)
    if query_norm == 0 or key_norm == 0:
        return 0.0
    return float((query / query_norm) @ (key / key_norm))


def pair_score(name: str, q: Array, k: Array, s: int, parameters: Parameters) -> float:
    """e(q, k) for one query vector q [Dq] and one key vector k [Dk] at position s.

    general W [Dq, Dk]; reduced_rank U [r, Dq], V [r, Dk]; additive W [A, Dq], U [A, Dk], b [A], v [A];
    concat w [Dq + Dk] (linear: no tanh); cosine beta []; location W [max_length, Dq].
    """
    p = {letter: double(parameter) for letter, parameter in parameters.items()}
    equations: dict[str, Callable[[], ArrayLike]] = {
        "mean": lambda: 0.0,  # uniform weights: average pooling
        "dot": lambda: q @ k,  # Luong 2015, section 3.1
        "scaled_dot": lambda: q @ k / math.sqrt(len(q)),  # Vaswani 2017, section 3.2.1
        "general": lambda: q @ p["W"] @ k,  # Luong 2015, section 3.1
        "reduced_rank": lambda: (p["U"] @ q) @ (p["V"] @ k),  # general with W = U^T V
        "additive": lambda: p["v"] @ np.tanh(p["W"] @ q + p["U"] @ k + p["b"]),  # Bahdanau 2015, A.1.2
        "concat": lambda: p["w"] @ np.concatenate([q, k]),  # its q part is the same for every key
        "cosine": lambda: p["beta"] * cosine(q, k),  # Graves 2014, section 3.3.1
        "location": lambda: p["W"][s] @ q,  # Luong 2015, section 3.1, equation 8
    }
    assert name in equations, f"write the equation of the score {name!r} here, from its paper"
    return float(double(equations[name]()))


def score(name: str, query: ArrayLike, key: ArrayLike, parameters: Parameters) -> Array:
    """e_ts = score(q_t, k_s) for every pair, [..., T, S]."""
    query, key = double(query), double(key)
    leading = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    query = np.broadcast_to(query, leading + query.shape[-2:])
    key = np.broadcast_to(key, leading + key.shape[-2:])
    result = np.zeros((*leading, query.shape[-2], key.shape[-2]))
    for *batch, t, s in np.ndindex(result.shape):
        result[(*batch, t, s)] = pair_score(name, query[(*batch, t)], key[(*batch, s)], s, parameters)
    return result


score_all_pairs = score  # in attend, where an argument has the name ``score``


# Normalisers: the weights of one row that holds the scores of the allowed keys, at least one.


def softmax(row: Array) -> Array:
    """p_i = exp(e_i) / sum_j exp(e_j); the maximum is taken off first, which cancels."""
    exponential = np.exp(row - row.max())
    return double(exponential / exponential.sum())


def bisect(weights_at: Callable[[float], Array]) -> Array:
    """The weights at the threshold tau in [-1, 0] where they sum to 1; the sum must fall as tau rises.

    Halves the bracket until no double lies inside it. Its upper end is taken, where a key exactly on the
    threshold weighs 0; what is then missing from 1, a few rounding errors, is shared out.
    """
    low, high = -1.0, 0.0
    while low < (middle := (low + high) / 2) < high:
        if weights_at(middle).sum() >= 1:
            low = middle
        else:
            high = middle
    weights = weights_at(high)
    return double(weights / weights.sum())


def sparsemax(row: Array) -> Array:
    """p_i = [e_i - tau]_+ with sum_i p_i = 1 (Martins & Astudillo 2016, section 2.2).

    With the maximum taken off, the largest key alone weighs 1 at tau = -1, and nothing weighs anything at 0.
    """
    shifted = row - row.max()
    return bisect(lambda tau: np.maximum(shifted - tau, 0.0))


def entmax15(row: Array) -> Array:
    """p_i = [e_i / 2 - tau]_+^2 with sum_i p_i = 1: 1.5-entmax (Peters et al. 2019, section 3)."""
    shifted = (row - row.max()) / 2
    return bisect(lambda tau: np.maximum(shifted - tau, 0.0) ** 2)


def hard(row: Array) -> Array:
    """p_i = 1 for the largest e_i, the first of equals, else 0 (Xu 2015, section 4.1, when predicting)."""
    best = 0
    for candidate in range(len(row)):
        if row[candidate] > row[best]:
            best = candidate
    weights = np.zeros(len(row))
    weights[best] = 1.0
    return weights


NORMALIZERS = {"softmax": softmax, "sparsemax": sparsemax, "entmax15": entmax15, "hard": hard}


def normalize(name: str, score: ArrayLike, allowed: ArrayLike) -> Array:
    """The weights [..., T, S]: forbidden keys weigh exactly 0, a row with no allowed key is all zeros."""
    score, allowed = np.broadcast_arrays(double(score), np.asarray(allowed, dtype=np.bool_))
    weights = np.zeros(score.shape)
    for row in np.ndindex(score.shape[:-1]):
        if allowed[row].any():
            weights[row][allowed[row]] = NORMALIZERS[name](score[row][allowed[row]])
    return weights


# Masks: True where query t may attend to key s.


def mask(T: int, S: int, rule: Callable[[int, int], bool]) -> Mask:
    """The boolean [T, S] of a rule over (t, s)."""
    result = np.zeros((T, S), dtype=np.bool_)
    for t, s in np.ndindex(T, S):
        result[t, s] = rule(t, s)
    return result


def full(T: int, S: int) -> Mask:
    """Every query may attend to every key."""
    return mask(T, S, lambda _t, _s: True)


def causal(T: int, S: int, offset: int = 0) -> Mask:
    """s <= t + offset (Vaswani 2017, section 3.2.3)."""
    return mask(T, S, lambda t, s: s <= t + offset)


def window(T: int, S: int, radius: int, offset: int = 0) -> Mask:
    """|t + offset - s| <= radius (local-m, Luong 2015, section 3.2; restricted, Vaswani 2017, section 4)."""
    return mask(T, S, lambda t, s: abs(t + offset - s) <= radius)


def padding(lengths: Integers, T: int, S: int) -> Mask:
    """s < length, [*lengths.shape, T, S]."""
    lengths = np.asarray(lengths)
    result = np.zeros((*lengths.shape, T, S), dtype=np.bool_)
    for batch in np.ndindex(lengths.shape):
        result[(*batch, slice(None), slice(0, int(lengths[batch])))] = True
    return result


def document(query_id: Integers, key_id: Integers) -> Mask:
    """id_t = id_s: queries and keys of the same document, [..., T] and [..., S] to [..., T, S]."""
    same = np.asarray(query_id)[..., :, None] == np.asarray(key_id)[..., None, :]
    return np.asarray(same, dtype=np.bool_)


def local_p(
    query: ArrayLike, lengths: ArrayLike, num_keys: int, W: ArrayLike, v: ArrayLike, radius: float
) -> tuple[Mask, Array]:
    """Where a predicted window lies, and its Gaussian, both [..., T, S] (Luong 2015, section 3.2).

    p_t = length sigmoid(v . tanh(W q_t)); allowed |s - p_t| <= radius; exp(-(s - p_t)^2 / (2 sigma^2)) with
    sigma = radius / 2. ``lengths`` meets query's leading axes from the left. Padding is left to the caller.
    """
    query, lengths = double(query), double(lengths)
    logit = np.tanh(query @ double(W).T) @ double(v)
    lengths = lengths.reshape(lengths.shape + (1,) * (logit.ndim - lengths.ndim))
    centre = lengths * (1 + np.tanh(logit / 2)) / 2  # sigmoid(x) = (1 + tanh(x / 2)) / 2, without overflow
    distance = np.arange(num_keys) - centre[..., None]
    gaussian = np.exp(-(distance**2) / (2 * (radius / 2) ** 2))
    return np.asarray(np.abs(distance) <= radius, dtype=np.bool_), double(gaussian)


# Attention: score, normalise, weighted sum.


def attend(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    score: str = "scaled_dot",
    normalizer: str = "softmax",
    allowed: ArrayLike | None = None,
    parameters: Parameters | None = None,
    factor: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """c_t = sum_s a_ts v_s, a_t = normalise(e_t) * factor, e_ts = score(q_t, k_s): output and weights.

    ``factor`` (local-p's Gaussian) multiplies weights already normalised: the sum may leave 1.
    """
    scores = score_all_pairs(score, query, key, parameters or {})
    weights = normalize(normalizer, scores, True if allowed is None else allowed)
    weights = weights * (1.0 if factor is None else double(factor))
    return double(weights @ double(value)), weights


def self_attend(x: ArrayLike) -> Array:
    """y_i = sum_j softmax_j(x_i . x_j) x_j: self-attention with no weights at all."""
    return attend(x, x, x, score="dot")[0]


def multi_head(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    W_query: ArrayLike,
    W_key: ArrayLike,
    W_value: ArrayLike,
    W_output: ArrayLike,
    biases: Mapping[str, ArrayLike] | None = None,
    num_heads: int,
    allowed: ArrayLike | None = None,
) -> Array:
    """[head_1; ...; head_h] W^O, head_i = attend(q W_i^Q, k W_i^K, v W_i^V) (Vaswani 2017, section 3.2.2).

    Matrices are [out, in] as in torch.nn.Linear; head i owns the i-th equal share of their rows.
    ``biases`` may hold "query", "key", "value", "output"; ``allowed`` [..., T, S] serves every head.
    """
    biases = biases or {}

    def project(name: str, x: ArrayLike, matrix: ArrayLike) -> Array:
        return double(double(x) @ double(matrix).T + double(biases.get(name, 0.0)))

    queries = np.split(project("query", query, W_query), num_heads, axis=-1)
    keys = np.split(project("key", key, W_key), num_heads, axis=-1)
    values = np.split(project("value", value, W_value), num_heads, axis=-1)
    heads = [attend(q, k, v, allowed=allowed)[0] for q, k, v in zip(queries, keys, values, strict=True)]
    return project("output", np.concatenate(heads, axis=-1), W_output)


def structured(
    hidden: ArrayLike, W1: ArrayLike, W2: ArrayLike, allowed: ArrayLike | None = None
) -> tuple[Array, Array, Array]:
    """M = A H, A = softmax(W2 tanh(W1 H^T)), penalty ||A A^T - I||_F^2 (Lin 2017, sections 2.1 and 2.2).

    hidden [..., S, D], W1 [A, D], W2 [r, A]; M [..., r, D], A [..., r, S]; allowed broadcasts to A's shape.
    """
    hidden = double(hidden)
    scores = double(W2) @ np.tanh(double(W1) @ np.swapaxes(hidden, -1, -2))
    A = normalize("softmax", scores, True if allowed is None else allowed)
    excess = A @ np.swapaxes(A, -1, -2) - np.eye(A.shape[-2])
    return double(A @ hidden), A, double((excess**2).sum(axis=(-1, -2)))
