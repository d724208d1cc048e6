"""Tests of trust on models of Hugging Face: their probabilities, their weights, and the effect of other weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from saccade.errors import UserError
from saccade.inspection.trust.subjects import keep_embeddings

SOFTMAXES = {nn.functional.softmax, torch.softmax, Tensor.softmax}


def find_family(model: Any) -> str:
    """Return what a model does with a text: it writes another, goes on, fills gaps, chooses a label, or only reads."""
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        if not model.can_generate():
            raise UserError(f"model: {name} has no head that writes; load it with AutoModelForSeq2SeqLM")
        return "writer"
    if name.endswith("ForMaskedLM"):
        return "filler"
    if name.endswith("ForSequenceClassification"):
        return "labeller"
    return "continuer" if model.can_generate() else "reader"


@final
class HuggingFaceSubject:
    """A model of Hugging Face whose attention can be tested: p(answer | text), and the weights at the answer's steps.

    An answer is the ids of an output (of a writer </s> included), of what stands at the text's gaps, or of a label.
    The weights of a writer are those on the source. Others have the rows that tell the answer: those of the gaps, those
    before the pieces that go on, and for a label the first (the last, if no piece reads a later one).
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.family = model, find_family(model)
        self.gap = -1 if tokenizer.mask_token_id is None else int(tokenizer.mask_token_id)
        self.unknown: int | None = tokenizer.unk_token_id
        given = (model.config.get_text_config().pad_token_id, tokenizer.pad_token_id)
        self.pad = next((one for one in given if one is not None), 0)
        ends = (tokenizer.bos_token_id, tokenizer.eos_token_id, self.pad)
        self.end = next(one for one in ends if one is not None)
        self.switch = _Switch()
        self.attention: list[nn.Module] = [self.switch]
        self.device: torch.device = model.device
        config = model.config
        self.num_outputs = int(config.num_labels if self.family == "labeller" else config.get_text_config().vocab_size)

    @property
    def start(self) -> int:
        """The id that a writer reads first."""
        holders = (self.model.generation_config, self.model.config)
        names = ("decoder_start_token_id", "bos_token_id")
        found = (getattr(holder, name, None) for name in names for holder in holders)
        return next(one for one in found if one is not None)

    def read(self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor, **options: Any) -> Any:
        """Run the model on texts with their answers, and return what it returns."""
        given: dict[str, Tensor] = {}
        if self.family == "continuer":
            source_NS, length_N = _join(source_NS, length_N, answer_NT[:, :-1])
        elif self.family == "writer":
            start_N1 = torch.full_like(answer_NT[:, :1], self.start)
            given["decoder_input_ids"] = torch.cat([start_N1, answer_NT[:, :-1]], 1)
        is_read_NS = torch.arange(source_NS.shape[1], device=source_NS.device) < length_N[:, None]
        given |= {"input_ids": source_NS.where(is_read_NS, self.pad), "attention_mask": is_read_NS.long()}
        with disable_dropout(self.model):
            return self.model(**given, return_dict=True, **options)

    def logits(
        self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor, leaves: list[Tensor] | None = None
    ) -> Tensor:
        if self.switch.numbers is None:
            self._find_softmaxes(source_NS[:1, : int(length_N[0])], length_N[:1], answer_NT[:1])
        with keep_embeddings(self._embedding, leaves), self.switch.watching():
            found = self.read(source_NS, length_N, answer_NT)
        return self.pick_logits(found, source_NS, length_N, answer_NT)

    def pick_logits(self, found: Any, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities [N, T, V] at the steps of the answers."""
        logits: Tensor = found.logits
        if self.family == "labeller":
            return logits.unsqueeze(1)
        row_NT1 = self._rows(source_NS, length_N, answer_NT).unsqueeze(-1)
        return logits.gather(1, row_NT1.expand(-1, -1, logits.shape[-1]))

    def weights(self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor) -> Tensor:
        found = self.read(source_NS, length_N, answer_NT, output_attentions=True)
        if self.family == "writer":
            return torch.stack(found.cross_attentions, 1)
        weight_NLHSS = torch.stack(found.attentions, 1)
        row_NT = self._rows(source_NS, length_N, answer_NT)
        if self.family == "labeller":
            row_NT = (length_N[:, None] - 1) * (not weight_NLHSS.triu(1).any())
        size = (*weight_NLHSS.shape[:3], -1, weight_NLHSS.shape[-1])
        return weight_NLHSS.gather(3, row_NT[:, None, None, :, None].expand(*size))[..., : source_NS.shape[1]]

    def _rows(self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor) -> Tensor:
        """Return the steps of the model that tell each step of the answers, [N, T]."""
        step_T = torch.arange(answer_NT.shape[1], device=answer_NT.device)
        if self.family == "continuer":
            return (length_N[:, None] - 1 + step_T).clamp(max=source_NS.shape[1] + len(step_T) - 2)
        if self.family == "filler":  # shorter answers are padded; so are their rows, with any
            is_gap_NS = source_NS.eq(self.gap).int()
            return is_gap_NS.argsort(dim=1, descending=True, stable=True)[:, : len(step_T)]
        return step_T.expand(len(answer_NT), -1)

    @property
    def _embedding(self) -> nn.Module:
        reader = self.model.get_encoder() if self.family == "writer" else self.model
        found: nn.Module = reader.get_input_embeddings()
        return found

    @torch.no_grad()
    def _find_softmaxes(self, *given: Tensor) -> None:
        """Find which softmaxes of a pass are the weights that the model returns."""
        with self.switch.watching() as watch:
            found = self.read(*given, output_attentions=True)
        wanted = found.cross_attentions if self.family == "writer" else found.attentions
        numbers = {at for at, one in enumerate(watch.seen) if any(_is_same(one, weights) for weights in wanted)}
        if len(numbers) != len(wanted):
            raise UserError(
                "trust: this model's weights are no softmax of its scores, so that no others can be put there"
            )
        self.switch.numbers = numbers


@contextmanager
def disable_dropout(model: Any) -> Iterator[None]:
    """Leave dropout out inside the block."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@final
class _Switch(nn.Module):
    """All attentions of a model that are tested: `numbers` says which softmaxes of a pass give their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.normalizer: nn.Module = _Softmax()
        self.numbers: Collection[int] | None = None

    @contextmanager
    def watching(self) -> Iterator[_Watch]:
        """Put the normalizer into the place of these softmaxes inside the block."""
        with _Watch(self.normalizer, self.numbers) as watch:
            yield watch


class _Softmax(nn.Module):
    def forward(self, score_TS: Tensor, mask_TS: Tensor | None = None) -> Tensor:
        del mask_TS  # the scores of forbidden keys are already the least number
        return score_TS.softmax(-1)


@final
class _Watch(TorchFunctionMode):
    """Counts the softmaxes over four axes; keeps what they return, or replaces it."""

    def __init__(self, normalizer: nn.Module, numbers: Collection[int] | None) -> None:
        super().__init__()
        self.normalizer, self.numbers, self.count, self.seen = normalizer, numbers, 0, list[Tensor]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func not in SOFTMAXES or found.dim() != 4:
            return found
        self.count += 1
        if self.numbers is None:
            self.seen.append(found)
        elif self.count - 1 in self.numbers and not isinstance(self.normalizer, _Softmax):
            score = args[0] if args else kwargs["input"]
            return self.normalizer(score.to(found.dtype), score > torch.finfo(score.dtype).min / 2)
        return found


def _is_same(one: Tensor, weights: Tensor) -> bool:
    """Tell whether two tensors are one, or one of them is the other in less precision."""
    if one.shape != weights.shape:
        return False
    return one.data_ptr() == weights.data_ptr() or (one.dtype != weights.dtype and one.to(weights.dtype).equal(weights))


def _join(source_NS: Tensor, length_N: Tensor, more_NT: Tensor) -> tuple[Tensor, Tensor]:
    """Put more ids behind each text, before its padding."""
    joined = torch.cat([source_NS, torch.zeros_like(more_NT)], 1)
    step_T = torch.arange(more_NT.shape[1], device=more_NT.device)
    return joined.scatter(1, length_N[:, None] + step_T, more_NT), length_N + more_NT.shape[1]
