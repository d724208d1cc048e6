"""The search settings of a Hugging Face folder, as a section of our config; what our search can't do is refused."""

from __future__ import annotations

from typing import Any

from saccade.imports.folder import Fields
from saccade.imports.vocabulary import SpecialIds, TokenizerIds

NEUTRAL: dict[str, tuple[Any, ...]] = {  # settings of `generate`, and the values that change nothing
    "do_sample": (False,),
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "diversity_penalty": (0.0,),
    "num_beam_groups": (1,),
    "guidance_scale": (1.0,),
    "min_new_tokens": (0,),
    "begin_suppress_tokens": ([],),
    "sequence_bias": (),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "constraints": (),
}
MOST_FACTOR, MOST_EXTRA = 3.0, 20  # tokens of an output for each of its source, and more


def read_search(generation: Fields, num_positions: int) -> dict[str, Any]:
    """Return the section `decoding`."""
    for name, allowed in NEUTRAL.items():
        generation.choose(name, (None, *allowed), None)
    most = generation.size("max_new_tokens", generation.size("max_length", num_positions) - 1, least=0)
    return {
        "beam": generation.size("num_beams", 1),
        "length_penalty": generation.read("length_penalty", float, 1.0),
        "length_offset": 0,
        "min_length": max(0, generation.size("min_length", 0, least=0) - 1),  # <s> counts there
        "max_length": max(1, min(most, num_positions)),
        "max_length_factor": MOST_FACTOR,
        "max_length_extra": MOST_EXTRA,
        "no_repeat_ngram": generation.size("no_repeat_ngram_size", 0, least=0),
        "max_source_length": num_positions - 1,
    }


def find_silent(generation: Fields, special: SpecialIds, target: TokenizerIds) -> list[int]:
    """Return the ids whose probability goes to the others: those that are forbidden, if the search renormalizes.

    Without that, <pad> and <s> keep their probability and are not written, as here.
    """
    begins = [int(target.number_V[number]) for number in target.tokenizer.encode("")]
    generation.choose("forced_bos_token_id", (None, *begins), None)
    bad = generation.read("bad_words_ids", list, [])
    if any(not isinstance(ids, list) or len(ids) != 1 for ids in bad):
        raise generation.refuse("bad_words_ids", "lists of one id")
    forbidden = [*(ids[0] for ids in bad), *generation.read("suppress_tokens", list, [])]
    if generation.read("renormalize_logits", bool, False):
        return forbidden
    if further := [number for number in forbidden if number not in (special.pad, special.start)]:
        allowed = f"{special.pad} and {special.start}, <pad> and <s>; {further[0]} only with renormalize_logits: true"
        raise generation.refuse("bad_words_ids" if bad else "suppress_tokens", allowed)
    return []
