"""Word error rate: how many words must be put in, taken out or changed, in percent of the words that were said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def word_errors(output: str, reference: str) -> int:
    """Count the fewest insertions, deletions and substitutions of words between two texts (Levenshtein 1966).

    d_ij = min(d_i-1,j + 1, d_i,j-1 + 1, d_i-1,j-1 + [x_i != y_j]); the second term of a whole row is a running minimum.
    """
    written, said = output.split(), np.array(reference.split(), object)
    at = np.arange(len(said) + 1)
    row = at
    for number, word in enumerate(written, 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (said != word))
        row = np.minimum.accumulate(np.concatenate([[number], best]) - at) + at
    return int(row[-1])


def word_error_rate(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Divide errors of all outputs by words of all references, in percent; these count as one where there is none."""
    num_words = sum(len(reference.split()) for reference in references)
    return 100 * sum(map(word_errors, outputs, references)) / max(1, num_words)
