"""Looks into models that Hugging Face's library has loaded: their weights become the insights of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from rich.console import Console
from torch import Tensor

from saccade.data.text.corpus import clean
from saccade.errors import UserError
from saccade.huggingface.pieces import PieceReader
from saccade.huggingface.subject import HuggingFaceSubject, disable_dropout
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.trust.cases import TextAndAnswer, TrustTest
from saccade.inspection.trust.evidence import NO_WORD, TrustCase
from saccade.tasks.base import Predictor, Result, Traits, several

LENGTHS = {"max_length", "max_new_tokens"}  # options of `generate`
MOST_NEW = 128  # pieces that are written, if neither is set
MOST_PIECES = 1024  # of a text: weights are as many as their square, for every layer and head
TASKS = {
    "writer": "text to text",
    "continuer": "text that goes on",
    "filler": "gaps in a text",
    "labeller": "text to label",
    "reader": "text",
}
SIDES = {"cross": ("output", "source"), "encoder": ("source", "source"), "decoder": ("output", "read")}
Given = tuple[Tensor, Tensor, Tensor]  # a source, its length and its answer


class HuggingFaceAnswer(NamedTuple):
    """A model's answer to a text, the pieces of it (or its label), and the log-probability of each."""

    text: str
    pieces: list[str]
    log_probabilities: list[float]

    def line(self) -> str:
        return self.text

    def plain(self) -> dict[str, Any]:
        return {**self._asdict(), "score": sum(self.log_probabilities)}

    def show(self, console: Console) -> None:
        """Do nothing: an answer has no more to show."""

    def draw(self, path: Path) -> None:
        raise UserError(f"{path}: an answer has no weights; draw what was seen")


class EncodedText(NamedTuple):
    """A text, the ids of its pieces, and those of the answer."""

    text: str
    source: list[int]
    answer: list[int]


@final
class HuggingFaceModel(Predictor):
    """A model of Hugging Face with its tokenizer: BERT, GPT-2, T5, Marian and all others that return their weights.

    What it says of texts, its insights and the test of its trust are those of a run. `generate` are options of its own
    `generate`, of models that write.
    """

    def __init__(self, model: Any, tokenizer: Any = None, generate: Mapping[str, Any] | None = None) -> None:
        _check_model(model)
        tokenizer = _find_tokenizer(model) if tokenizer is None else tokenizer
        if not hasattr(tokenizer, "convert_ids_to_tokens"):
            raise UserError(f"tokenizer: {type(tokenizer).__name__} given; allowed: the model's own (AutoTokenizer)")
        self.model, self.tokenizer, self.generate = model, tokenizer, generate
        self.subject, self.pieces = HuggingFaceSubject(model, tokenizer), PieceReader(tokenizer)
        self.family = self.subject.family
        if generate is not None and self.family not in ("writer", "continuer"):
            raise UserError(f"generate: given, but {type(model).__name__} writes nothing")

    @property
    def traits(self) -> Traits:
        return Traits(TASKS[self.family], kinds=tuple(SIDES), look_options=("targets",))

    def stream(self, inputs: Iterable[str]) -> Iterator[Result]:
        return (one.answer for text in several(inputs) for one in self.look([text]))

    @torch.no_grad()
    def look(self, inputs: Iterable[str], *, targets: Iterable[str] | None = None) -> list[Insight]:
        """Return what the model saw of each text while it answered, or with `targets`, while it reads these."""
        texts = list(several(inputs))
        given = [None] * len(texts) if targets is None else list(targets)
        return [self._look(self._ask(text, target)) for text, target in zip(texts, given, strict=True)]

    def trust_test(self) -> TrustTest:
        if self.family == "reader":
            name = type(self.model).__name__
            raise UserError(f"trust: {name} has no head that gives probabilities; AutoModelForMaskedLM loads one")
        return TrustTest(self.subject, self._make_cases)

    def _look(self, asked: EncodedText) -> Insight:
        given = self._to_tensors(asked)
        found = self.subject.read(*given, output_attentions=True)
        sides, weights = self._describe(asked, found)
        maps = {
            kind: Map(queries, keys, _join_layers(weights[kind], self.model, sides[queries], sides[keys]))
            for kind, (queries, keys) in SIDES.items()
            if kind in weights
        }
        if "encoder" in maps and self.family != "writer" and _reads_forward(maps["encoder"].weight_LHTS):
            maps = {"decoder": maps["encoder"]}
        return Insight(self.traits.task, self._tell(asked, found, given), sides, maps)

    def _describe(self, asked: EncodedText, found: Any) -> tuple[dict[str, TextSide], dict[str, Any]]:
        """Return the sides of an insight, and the weights of each kind of attention as the model returned them."""
        source, side = asked.source, self.pieces.side
        if self.family != "writer":
            ids = [*source, *asked.answer[:-1]] if self.family == "continuer" else source
            text = asked.text if ids == source else self._spell(ids)
            return {"source": side(text, ids)}, {"encoder": found.attentions}
        output, read = side(self._spell(asked.answer), asked.answer), side("", [self.subject.start, *asked.answer[:-1]])
        names = {"cross": "cross_attentions", "encoder": "encoder_attentions", "decoder": "decoder_attentions"}
        weights = {kind: getattr(found, name) for kind, name in names.items()}
        return {"source": side(asked.text, source), "output": output, "read": read}, weights

    def _tell(self, asked: EncodedText, found: Any, given: Given) -> HuggingFaceAnswer:
        """Return what the model says: its answer, and how likely each piece of it is."""
        if not asked.answer:
            return HuggingFaceAnswer(asked.text, [], [])
        step_TV = self.subject.pick_logits(found, *given)[0].float().log_softmax(-1).cpu()
        steps = step_TV.gather(1, torch.tensor(asked.answer)[:, None])[:, 0].tolist()
        if self.family == "labeller":
            label = self.model.config.id2label[asked.answer[0]]
            return HuggingFaceAnswer(label, [label], steps)
        pieces = self.pieces.side("", asked.answer).pieces
        if self.family == "filler":
            rest = iter(asked.answer)
            filled = [next(rest) if number == self.subject.gap else number for number in asked.source]
            return HuggingFaceAnswer(self._spell(filled), pieces, steps)
        return HuggingFaceAnswer(self._spell(asked.answer), pieces, steps)

    def _ask(self, text: str, target: str | None) -> EncodedText:
        """Encode a text and a given answer, or let the model answer."""
        asked = EncodedText(clean(text), self._encode(clean(text)), [])
        if target is not None:
            return asked._replace(answer=self._encode_target(asked, clean(target)))
        if self.family == "reader":
            return asked
        if self.family == "writer" or self.generate is not None:
            return asked._replace(answer=self._generate(asked))
        num_steps = asked.source.count(self.subject.gap) if self.family == "filler" else 1
        blank = asked._replace(answer=[0] * num_steps)
        if not blank.answer:
            return blank
        given = self._to_tensors(blank)
        found = self.subject.read(*given)
        return blank._replace(answer=self.subject.pick_logits(found, *given)[0].argmax(-1).tolist())

    def _encode(self, text: str) -> list[int]:
        ids = list(self.tokenizer(text)["input_ids"])
        if set(ids) <= self.pieces.special - {self.subject.gap}:
            raise UserError("text: it is blank; there is nothing to look at")
        sizes = (getattr(self.model.config, "max_position_embeddings", None), self.tokenizer.model_max_length)
        most = min(MOST_PIECES, *(size for size in sizes if size is not None))
        if len(ids) > most:
            raise UserError(f"text: it has {len(ids):,} pieces; at most {most:,} can be looked at")
        return ids

    def _encode_target(self, asked: EncodedText, target: str) -> list[int]:
        if not target:
            raise UserError("target: it is blank; leave it out for the model's own answer")
        if self.family == "reader":
            raise UserError(f"target: given, but {type(self.model).__name__} answers nothing")
        if self.family == "labeller":
            labels = {label: number for number, label in self.model.config.id2label.items()}
            if target not in labels:
                raise UserError(f"target: {target!r} given; allowed: {', '.join(labels)}")
            return [labels[target]]
        if self.family == "writer":
            return list(self.tokenizer(text_target=target)["input_ids"])
        if self.family == "filler":
            ids = list(self.tokenizer(f" {target}", add_special_tokens=False)["input_ids"])
            if len(ids) != asked.source.count(self.subject.gap):
                gaps = f"{asked.source.count(self.subject.gap)} of {self.tokenizer.mask_token}"
                raise UserError(f"target: {target!r} has {len(ids)} pieces; the text has {gaps}")
            return ids
        return self._encode_rest(asked, target)

    def _encode_rest(self, asked: EncodedText, target: str) -> list[int]:
        """Encode what a text goes on with, as it is split behind the text."""
        whole, start = list(self.tokenizer(f"{asked.text} {target}")["input_ids"]), len(asked.source)
        if whole[:start] != asked.source or len(whole) == start:
            raise UserError(f"target: {target!r} given; it can't be told from the text when both are split together")
        return whole[start:]

    def _generate(self, asked: EncodedText) -> list[int]:
        """Let the model write; what it read first is left out."""
        source_1S = torch.tensor([asked.source], device=self.model.device)
        mask_1S, options, own = torch.ones_like(source_1S), dict(self.generate or {}), self.model.generation_config
        if not LENGTHS & options.keys() and all(getattr(own, name, None) is None for name in LENGTHS):
            options["max_new_tokens"] = MOST_NEW
        with disable_dropout(self.model):
            written = self.model.generate(input_ids=source_1S, attention_mask=mask_1S, **options)
        ids: list[int] = written[0].tolist()[1 if self.family == "writer" else len(asked.source) :]
        if not ids:
            raise UserError("generate: nothing was written; allow more (max_new_tokens)")
        return ids

    def _to_tensors(self, asked: EncodedText) -> Given:
        device = self.model.device
        source_1S, answer_1T = (torch.tensor([ids], device=device) for ids in (asked.source, asked.answer or [0]))
        return source_1S, torch.tensor([len(asked.source)], device=device), answer_1T

    def _spell(self, ids: Sequence[int]) -> str:
        return clean(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def _make_cases(self, pairs: Sequence[TextAndAnswer]) -> Iterator[TrustCase]:
        """Make cases of texts; special pieces are never erased and never ranked."""
        for text, target in pairs:
            with torch.no_grad():
                asked = self._ask(text, target)
            if not asked.answer:
                raise UserError(f"text: {text[:40]!r} has no gap; write {self.tokenizer.mask_token} where one is")
            side = self.pieces.side(asked.text, asked.source)
            is_kept = {
                word: number not in self.pieces.special
                for word, number in zip(side.word_of_piece, asked.source, strict=True)
            }
            kept = [word for word, is_word in is_kept.items() if is_word]
            place = {word: index for index, word in enumerate(kept)}
            numbers = [place.get(word, NO_WORD) for word in side.word_of_piece]
            yield TrustCase([side.words[word] for word in kept], asked.source, numbers, asked.answer)


def _check_model(model: Any) -> None:
    """Refuse what is no model of Hugging Face, and one that doesn't tell its weights."""
    name, config = type(model).__name__, getattr(model, "config", None)
    way = getattr(config, "_attn_implementation", None)
    if way is None:
        raise UserError(f"model: {name} given; allowed: a model of Hugging Face (a run has a method `look` of its own)")
    if way != "eager":
        raise UserError(
            f"model: {name} computes attention with {way}, which returns no weights; load it with "
            "from_pretrained(..., attn_implementation='eager')"
        )


def _find_tokenizer(model: Any) -> Any:
    """Return the tokenizer that lies where a model was loaded from; nothing is downloaded."""
    from transformers import AutoTokenizer

    place = model.name_or_path
    if place:
        with suppress(OSError, ValueError, KeyError):
            found = AutoTokenizer.from_pretrained(place, local_files_only=True)
            if len(found) > len(found.all_special_ids):  # without files it may be an empty one
                return found
    where = f"in {place}" if place else "beside this model, which was loaded from nowhere"
    raise UserError(f"tokenizer: not given, and there is none {where}; give the model's own")


def _join_layers(weights: Sequence[Tensor] | None, model: Any, queries: TextSide, keys: TextSide) -> Tensor:
    """Return the weights of all layers, [L, H, T, S]."""
    shape = (len(queries.pieces), len(keys.pieces))
    if not weights or any(one is None or one.shape[2:] != shape for one in weights):
        raise UserError(
            f"model: {type(model).__name__} returns no weight for each pair of pieces; there is nothing to draw"
        )
    return torch.stack([one[0] for one in weights]).float().cpu()


def _reads_forward(weight_LHTT: Tensor) -> bool:
    """Tell whether no piece reads a later one."""
    return weight_LHTT.shape[-1] > 1 and not bool(weight_LHTT.triu(1).any())
