"""Tokenization of the folders of each family: SentencePiece models, names of ids, and tokens of languages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saccade.errors import UserError
from saccade.imports.folder import Fields, read_bytes
from saccade.imports.vocabulary import Names, read_names

Codes = tuple[str, str] | None  # of the languages of sources and targets
PEGASUS_START = 103  # ids of Pegasus before its <unk>: <mask_1>, <mask_2>, and <unk_2> to <unk_102>


class Files(NamedTuple):
    """The files of a folder that say what its model is."""

    folder: Path
    config: Fields
    generation: Fields  # of old folders the config
    tokenizer: Fields

    @classmethod
    def of(cls, folder: Path) -> Files:
        config = Fields(folder / "config.json")
        generation = Fields(folder / "generation_config.json", optional=True)
        tokenizer = Fields(folder / "tokenizer_config.json", optional=True)
        return cls(folder, config, generation if generation.content else config, tokenizer)

    def vocabulary_sizes(self) -> tuple[int, int]:
        """Return the sizes of both sides' vocabularies."""
        size = self.config.size("vocab_size")
        shares = self.config.read("share_encoder_decoder_embeddings", bool, True)
        return size, size if shares else self.config.size("decoder_vocab_size", size)


class Layout(NamedTuple):
    """The tokenizers of a folder, for sources and targets.

    `lists` are the files that name the ids. `tokens` are no text: languages, masks. `first` stands before each text;
    `codes` are the languages that were asked for.
    """

    models: tuple[Path, Path]
    lists: tuple[Path, Path]
    names: tuple[Names, Names]
    tokens: frozenset[str] = frozenset()
    first: tuple[Sequence[str], Sequence[str]] = ((), ())
    codes: Codes = None


def read_layout(files: Files, languages: Codes) -> Layout:
    """Read how a folder splits texts; only a family with tokens of languages takes languages."""
    family = files.config.choose("model_type", LAYOUTS)
    if family == "m2m_100":
        return _read_many(files, languages)
    if languages is not None:
        raise UserError(
            f"--languages: given, but {files.config.path} has model_type {family}, which has none to choose"
        )
    return LAYOUTS[family](files)


def _read_marian(files: Files) -> Layout:
    folder, sizes = files.folder, files.vocabulary_sizes()
    separate = files.tokenizer.read("separate_vocabs", bool, False)
    lists = folder / "vocab.json", folder / ("target_vocab.json" if separate else "vocab.json")
    source, target = (read_names(path, size) for path, size in zip(lists, sizes, strict=True))
    return Layout((folder / "source.spm", folder / "target.spm"), lists, (source, target))


def _read_pegasus(files: Files) -> Layout:
    """Read Pegasus' own tokenizer: <pad>, </s>, the pieces that it was trained with, <unk> and the others."""
    model = files.folder / "spiece.model"
    if not model.is_file():  # an export of ours has Marian's
        return _read_marian(files)
    start = files.tokenizer.read("offset", int, PEGASUS_START)
    pieces = _list_pieces(model)
    trained = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, start))][:start]
    listed = dict(enumerate([*pieces[:2], *trained, *pieces[2:]]))
    if len(listed) > files.config.size("vocab_size"):
        raise files.config.refuse("vocab_size", f"{len(listed)} or more, as {model.name} has {len(pieces)} pieces")
    return Layout((model, model), (model, model), (listed, listed), frozenset(trained))


def _read_many(files: Files, languages: Codes) -> Layout:
    """Read the tokenizer of M2M100, or of NLLB; a token that names its language stands before each text."""
    model = files.folder / "sentencepiece.bpe.model"
    kind = files.tokenizer.read("tokenizer_class", str, files.config.read("tokenizer_class", str, "M2M100Tokenizer"))
    if kind.startswith("Nllb"):
        path, names, spelled = _read_nllb(files)
    else:
        path, names, spelled = _read_m2m(files)
    codes = languages or _read_codes(files.tokenizer)
    if codes is None:
        raise UserError(f"--languages: none given; this model translates between {len(spelled)}: {_list_some(spelled)}")
    for code in codes:
        if code not in spelled:
            raise UserError(f"--languages: {code!r} given; allowed: {_list_some(spelled)}")
    first = ([spelled[codes[0]]], [spelled[codes[1]]])
    tokens = frozenset([*spelled.values(), "<mask>"])
    return Layout((model, model), (path, path), (names, names), tokens, first, codes)


def _read_m2m(files: Files) -> tuple[Path, Names, dict[str, str]]:
    """Read a list of pieces; the languages follow it, in the order that M2M100's tokenizer knows."""
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    path = files.folder / "vocab.json"
    names = read_names(path, files.config.size("vocab_size"))
    codes: Sequence[str] = FAIRSEQ_LANGUAGE_CODES[
        files.tokenizer.choose("language_codes", FAIRSEQ_LANGUAGE_CODES, "m2m100")
    ]
    spelled = {code: f"__{code}__" for code in codes}
    if len(names) + len(codes) > files.config.size("vocab_size"):
        allowed = (
            f"{len(names) + len(codes)} or more: {path.name} has {len(names)} pieces, and {len(codes)} languages follow"
        )
        raise files.config.refuse("vocab_size", allowed)
    return path, names | dict(enumerate(spelled.values(), len(names))), spelled


def _read_nllb(files: Files) -> tuple[Path, Names, dict[str, str]]:
    """Read tokenizer.json: its pieces, and its tokens; those that no other part names are languages."""
    if files.tokenizer.read("legacy_behaviour", bool, False):
        raise files.tokenizer.refuse("legacy_behaviour", "false: the language stands before the text")
    path = files.folder / "tokenizer.json"
    whole, size = Fields(path), files.config.size("vocab_size")
    pieces = whole.read("model", dict).get("vocab")
    if not isinstance(pieces, dict):
        raise UserError(f"{path}: model.vocab: a table of pieces and their ids is wanted, and this is none")
    numbers: dict[Any, Any] = dict(pieces)
    for token in whole.read("added_tokens", list):
        numbers[token.get("content")] = token.get("id")
    names = dict[int, str]()
    for name, number in numbers.items():
        if not isinstance(number, int) or not isinstance(name, str) or not 0 <= number < size:
            raise UserError(f"{path}: {name}: {number} given; allowed: an id from 0 to {size - 1}")
        names[number] = name
    added = [token["content"] for token in whole.read("added_tokens", list)]
    return path, names, {name: name for name in added if not name.startswith("<")}


def _read_codes(tokenizer: Fields) -> Codes:
    source, target = (tokenizer.read(name, str, "") for name in ("src_lang", "tgt_lang"))
    return (source, target) if source and target else None


def _list_pieces(model: Path) -> list[str]:
    import sentencepiece

    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=read_bytes(model))
    except RuntimeError:
        raise UserError(f"{model}: this is no SentencePiece model") from None
    return [str(processor.id_to_piece(number)) for number in range(processor.vocab_size())]


def _list_some(codes: Sequence[str] | dict[str, str]) -> str:
    return ", ".join([*codes][:12]) + (", ..." if len(codes) > 12 else "")


LAYOUTS: dict[str, Callable[..., Layout]] = {"marian": _read_marian, "pegasus": _read_pegasus, "m2m_100": _read_many}
