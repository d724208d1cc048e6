"""The text corpora of a run: their tokenizers and stores, and what is said about them before training."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console

from saccade.config.base import HeldOutPart
from saccade.config.load import check_config, read_config
from saccade.data.held_out import Amount, find_limit
from saccade.data.sound.recordings import Recordings, Sounds
from saccade.data.store import Encode, EncodePair, Store, count_duplicates, encode_sides, prepare_store
from saccade.data.text.beside import encode_beside
from saccade.data.text.corpus import BY_NAME, Corpus, Pair, PartOfPairs
from saccade.data.text.headers import ODD, is_odd
from saccade.data.text.sentences import tell_texts
from saccade.data.text.tokenizer import (
    AnyTokenizer,
    ListedPieces,
    SentencePiece,
    Vocabulary,
    run_seeded,
)
from saccade.data.text.word_pairs import learn_word_pairs
from saccade.decoding.limits import PairLengths
from saccade.errors import UserError
from saccade.tasks import console as watch
from saccade.tasks.base import DataCount
from saccade.tasks.translate.config import CorpusFiles, OldData, TrainingCorpus, TranslateConfig, TranslateData
from saccade.tasks.translate.wording.annotate import Annotator

NUM_TOLD = 1000  # pairs of a corpus that tell what its texts are
SPLITTING = {
    "sentences": "a server splits a text into sentences",
    "documents": "a server gives a text to the model whole, unless it is too long",
    "anything": "a server gives a text to the model whole",
}
VARIANTS = 8  # of a corpus cut into pieces at random
Tokenizers = tuple[AnyTokenizer, AnyTokenizer]


SetName = Literal["data.valid", "data.test"]
SETS: tuple[SetName, ...] = ("data.valid", "data.test")
QUIET = Console(quiet=True)


def training_corpora(config: TranslateConfig) -> list[Corpus]:
    """Return every corpus to train on, old ones last, without the pairs that are or were held out."""
    whole, old, data = _whole_corpora(config), _old_corpora(config), config.data
    limit, old_limit = _find_limit(data.valid, whole), _find_limit(None if data.old == "auto" else data.old.valid, old)
    return [*_leave_out(whole, [limit]), *_leave_out(old, [limit, old_limit])]


def _leave_out(whole: list[Corpus], limits: list[int | None]) -> list[Corpus]:
    """Return the corpora without pairs whose source has a hash below a limit."""
    limit = max((one for one in limits if one is not None), default=None)
    return whole if limit is None else [replace(one, part=PartOfPairs(limit, is_held_out=False)) for one in whole]


def held_out_corpora(config: TranslateConfig, name: SetName) -> list[Corpus]:
    """Return what a held-out set is read from: its own files, or a part of every corpus to train on."""
    files = config.data.test if name == "data.test" else config.data.valid
    if isinstance(files, CorpusFiles):
        return [_corpus(config, files, name)]
    whole = _whole_corpora(config)
    limit = _find_limit(files, whole)
    assert limit is not None
    return [replace(one, name=name, part=PartOfPairs(limit, is_held_out=True)) for one in whole]


def _whole_corpora(config: TranslateConfig) -> list[Corpus]:
    return [_corpus(config, files, name) for name, files in config.data.corpora.items()]


def _old_corpora(config: TranslateConfig) -> list[Corpus]:
    """Return the corpora that an earlier run learned from."""
    if config.data.old == "auto":
        return []
    columns = replace(config.pair_columns, given=config.data.old.side_columns)
    return [Corpus(files.source, files.target, name, columns) for name, files in config.data.old_corpora.items()]


def settle_old(config: TranslateConfig) -> TranslateConfig:
    """Return the config with the files of the old pairs that are mixed in: those of the run it begins with."""
    data = config.data
    if not data.old_share:
        return config
    if data.old == "auto":
        config = config.model_copy(update={"data": data.model_copy(update={"old": _read_old(config)})})
    try:
        for corpus in _old_corpora(config):
            corpus.files()
    except UserError as error:
        where = "name where they are now in data.old, or leave data.old_share out"
        raise UserError(
            f"data.old_share: {data.old_share} given, but not all old texts are there ({error}); {where}"
        ) from None
    return config


def _read_old(config: TranslateConfig) -> OldData:
    path = Path(str(config.base)) / "config.yaml"
    earlier = check_config(read_config(path, ()), str(path), {"translate": TranslateConfig}).data
    if earlier.train is None:
        said = f"data.old_share: {config.data.old_share} given, but {config.base} was imported and names no texts"
        raise UserError(f"{said}; name some in data.old, or leave data.old_share out")
    valid = earlier.valid if isinstance(earlier.valid, HeldOutPart) else None
    return OldData(train=[*earlier.corpora.values()], columns=earlier.columns, valid=valid)


def _corpus(config: TranslateConfig, files: CorpusFiles, name: str) -> Corpus:
    return Corpus(files.source, files.target, name, config.pair_columns)


def _find_limit(part: object, whole: list[Corpus]) -> int | None:
    """Return the hash of a source below which its pairs are held out; None if none are."""
    if not isinstance(part, HeldOutPart):
        return None
    ages = (path.stat().st_mtime_ns for corpus in whole for path in corpus.files())
    return _find_limit_once(part.amount, tuple(whole), tuple(ages))


@functools.lru_cache(maxsize=8)
def _find_limit_once(amount: Amount, whole: tuple[Corpus, ...], ages: tuple[int, ...]) -> int:
    """Read the sources only once for each state of the files."""
    del ages
    return find_limit(amount, (pair.source for corpus in whole for pair in corpus.pairs() if "" not in pair))


def find_annotator(config: TranslateConfig) -> Annotator:
    """Return what writes terms into a share of the sources to train on; the corpora are read for it once."""
    whole = training_corpora(config)
    ages = (path.stat().st_mtime_ns for corpus in whole for path in corpus.files())
    return _learn_once(config.data.terms, tuple(whole), tuple(ages))


@functools.lru_cache(maxsize=2)
def _learn_once(share: float, whole: tuple[Corpus, ...], ages: tuple[int, ...]) -> Annotator:
    del ages
    return Annotator(learn_word_pairs(pair for corpus in whole for pair in corpus.pairs()), share)


def first_pairs(config: TranslateConfig) -> Iterator[Pair]:
    """Yield the first pairs of each corpus to train on, which tell what its texts are."""
    for corpus in training_corpora(config):
        yield from itertools.islice(corpus.pairs(), NUM_TOLD)


def settle_texts(config: TranslateConfig, console: Console) -> TranslateConfig:
    """Return the config with what its texts are, told by the first sources of each corpus."""
    if config.texts != "auto" or config.features is not None:
        return config
    sources = (pair.source for pair in first_pairs(config) if pair.source)
    texts = tell_texts(sources, have_languages=config.find_languages() is not None)
    watch.say(console, f"texts: {texts} ({SPLITTING[texts]})")
    return config.model_copy(update={"texts": texts})


def stores(config: TranslateConfig, both: Tokenizers, root: Path, console: Console = QUIET) -> list[Store]:
    """Store the pairs of each training corpus as ids, made once and found again; once more for each variant."""
    marks, alpha = [fingerprint(tokenizer) for tokenizer in both], config.tokenizer.sampling

    def prepared(pairs: Corpus, variant: int) -> Store:
        drawn = {"sampling": alpha, "variant": variant} if alpha else {}
        terms = {"terms": config.data.terms} if config.data.terms else {}
        copies = {"copies": True} if config.model.copies else {}
        return prepare_store(
            root,
            lambda: watch.show_progress(console, pairs.pairs(), f"preparing {pairs.name}"),
            pairs.files(),
            encode=_encoder(config, both),
            identity={**corpus_identity(pairs), "tokenizers": marks, **drawn, **terms, **copies},
            limits=config.data.limits,
            rewrite=lambda pair: find_annotator(config)(pair) if terms else pair,
        )

    variants = range(VARIANTS if alpha else 1)
    return [
        run_seeded(variant + 1, functools.partial(prepared, pairs, variant)) if alpha else prepared(pairs, variant)
        for variant in variants
        for pairs in training_corpora(config)
    ]


def _encoder(config: TranslateConfig, both: Tokenizers) -> EncodePair:
    """Return what encodes pairs; where a model copies, words that are not in the vocabulary have ids beside it."""
    alpha = config.tokenizer.sampling
    if config.model.copies and isinstance(both[0], Vocabulary):
        return functools.partial(encode_beside, both[0])
    return encode_sides(_encode_side(both[0], alpha), _encode_side(both[1], alpha))


def _encode_side(tokenizer: AnyTokenizer, alpha: float) -> Encode:
    if alpha and isinstance(tokenizer, SentencePiece | ListedPieces):
        return tokenizer.sampler(alpha)
    return tokenizer.encode


def corpus_identity(corpus: Corpus) -> dict[str, Any]:
    """Return what the pairs of a corpus depend on, beside the content of its files."""
    files = {"source": corpus.source, "target": corpus.target}
    has_columns = corpus.target is None and corpus.columns != BY_NAME
    columns = {"columns": asdict(corpus.columns)} if has_columns else {}
    return {"files": files, **columns, **({"part": asdict(corpus.part)} if corpus.part else {})}


def measure_pairs(stores: Sequence[Store], recordings: Sequence[Recordings]) -> list[PairLengths]:
    """Measure the pairs of each corpus as decoding counts them: outputs and texts with </s>."""
    if recordings:
        heard = [own.all_lengths(store.source) for own, store in zip(recordings, stores, strict=True)]
        found = [PairLengths.of(own, store.target.lengths + 1) for own, store in zip(heard, stores, strict=True)]
    else:
        found = [_measure(store) for store in stores if len(store)]
    return [one for one in found if one.num_pairs]


def _measure(store: Store) -> PairLengths:
    blocks = zip(store.source.blocks(), store.target.blocks(), strict=True)
    return PairLengths.join(PairLengths.of(source.lengths + 1, target.lengths + 1) for source, target in blocks)


def weigh_variants(data: TranslateData, stores: Sequence[Store]) -> list[float]:
    """Return how often each store is read an epoch; of several variants of a corpus, each in part."""
    weights = _weigh(data, stores)
    variants = len(stores) // len(weights)
    return [weight / variants for weight in weights] * variants


def _weigh(data: TranslateData, stores: Sequence[Store]) -> list[float]:
    """Return how often each corpus is read an epoch; the old ones so that they have their share of its pairs."""
    weights, num_new = [files.weight for files in _name_corpora(data).values()], len(data.corpora)
    pairs = [weight * len(store) for weight, store in zip(weights, stores, strict=False)]
    new, old = sum(pairs[:num_new]), sum(pairs[num_new:])
    more = data.old_share / (1 - data.old_share) * new / old if old else 0.0
    return [*weights[:num_new], *(weight * more for weight in weights[num_new:])]


def _name_corpora(data: TranslateData) -> dict[str, TrainingCorpus]:
    return {**data.corpora, **data.old_corpora}


def fingerprint(tokenizer: AnyTokenizer | Sounds) -> str:
    """Hash a tokenizer, to tell it from any other."""
    if isinstance(tokenizer, Sounds):
        content = str(tokenizer.mel).encode()
    else:
        listed = [*getattr(tokenizer, "first", ()), *getattr(tokenizer, "symbols", ())]
        content = getattr(tokenizer, "model", b"") + "\n".join(listed).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class HeldOut(NamedTuple):
    """A set that is never trained on: what it is read from, and its pairs."""

    name: str
    corpora: list[Corpus]
    pairs: list[Pair]


def read_held_out(config: TranslateConfig) -> list[HeldOut]:
    """Read the validation and test pairs, first of all: a mistake in them shows before anything is learned."""
    for training in _whole_corpora(config):
        training.files()  # they are there
    held = list[HeldOut]()
    for name in SETS if config.data.test is not None else SETS[:1]:
        own = held_out_corpora(config, name)
        held.append(HeldOut(name, own, [pair for corpus in own for pair in corpus.pairs()]))
    for one, _, pairs in held:
        if not pairs and isinstance(part := config.data.valid, HeldOutPart):
            raise UserError(f"data.valid: {part.amount} given; it holds out no pair; allowed: a count, or a file")
        if not any(all(pair) for pair in pairs):
            raise UserError(f"{one}: no pair with text on both sides")
    return held


def say(config: TranslateConfig, stores: list[Store], sets: list[HeldOut], console: Console) -> None:
    """Print how many pairs there are to train on and why others aren't; and warnings about the held-out ones."""
    texts = training_corpora(config)
    if isinstance(part := config.data.valid, HeldOutPart):
        num_held = len(sets[0].pairs)
        num_all = num_held + sum(
            len(store) + sum(store.left_out.values()) for store in stores[: len(config.data.corpora)]
        )
        said = f"{num_held:,} of the {_pairs(num_all)} of data.train, chosen by a hash of the source"
        watch.say(console, f"data.valid: {said} ({part.amount})")
    lines = [_pairs(len(store)) + _describe_left_out(text, store) for text, store in zip(texts, stores, strict=True)]
    if len(stores) > 1:
        weights = _weigh(config.data, stores)
        for line, weight, (name, files) in zip(lines, weights, _name_corpora(config.data).items(), strict=True):
            watch.say(console, f"{name}, {files.source}, weight {weight:.3g}: {line}")
        lines = [_pairs(sum(len(store) for store in stores))]
    watch.say(console, f"{lines[0]} to train on")
    for corpus in _whole_corpora(config) if config.features is None else ():
        firsts = list(itertools.islice(corpus.pairs(), NUM_TOLD))
        if any(is_odd(side) for side in zip(*firsts, strict=True)):
            watch.say(console, f"{corpus.place(0, 0)}: {ODD}", style="yellow")
    for warning in (warning for held in sets for warning in _warnings(held, stores)):
        watch.say(console, warning, style="yellow")


def count_pairs(data: TranslateData, stores: list[Store], sets: list[HeldOut]) -> list[DataCount]:
    """Count the pairs of each set, for the report; variants of a corpus are one."""
    training = [
        DataCount(name, len(store), {reason: count for reason, count in store.left_out.items() if count})
        for name, store in zip(_name_corpora(data), stores, strict=False)
    ]
    blank = [sum("" in pair for pair in held.pairs) for held in sets]
    held_out = [
        DataCount(held.name, len(held.pairs) - count, {"blank": count} if count else {})
        for held, count in zip(sets, blank, strict=True)
    ]
    return [one._replace(name=one.name.removeprefix("data.")) for one in (*training, *held_out)]


def _pairs(count: int) -> str:
    return f"{count:,} pair{'' if count == 1 else 's'}"


def _describe_left_out(corpus: Corpus, store: Store) -> str:
    """List the reasons with their counts and the first place of each."""
    reasons = [
        f"{count:,} {reason}, the first at {corpus.place(*store.first_left_out[reason])}"
        for reason, count in store.left_out.items()
        if count
    ]
    return f" (left out: {'; '.join(reasons)})" if reasons else ""


def _warnings(held: HeldOut, stores: list[Store]) -> list[str]:
    def some(count: int) -> str:
        return f"{held.name}: {count:,} of its {_pairs(len(held.pairs))} {'is' if count == 1 else 'are'}"

    found = []
    blank = [row for row, pair in enumerate(held.pairs) if "" in pair]
    if blank:
        place = held.corpora[0].place(blank[0], held.pairs[blank[0]].index(""))
        found.append(f"{some(len(blank))} left out, blank on a side; the first at {place}")
    if seen := count_duplicates(held.pairs, stores):
        found.append(f"{some(seen)} also in the training text")
    return found
