"""The types of requests and responses, as /openapi.json shows them."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from saccade.tasks.base import MOST_BEAM

ModelName = Annotated[
    str | None, Field(default=None, description="The name of a model in /v1/models; by default the first that fits.")
]
MOST_TEXTS = 1000  # of one request
MOST_TERMS = 1000
MOST_COLUMNS = 64  # of a text that is given word by word
TERMS: Any = {"propertyNames": {"pattern": r"\w"}, "additionalProperties": {"type": "string", "pattern": r"\w"}}
Code = Annotated[
    Annotated[str, Field(min_length=1)] | None,
    Field(default=None, description="The code of the language; by default the model's."),
]
Texts = Annotated[
    str | Annotated[list[str], Field(fail_fast=True, max_length=MOST_TEXTS)],
    Field(description="A text, or a list of texts."),
]


Words = Annotated[
    dict[str, Annotated[list[str], Field(fail_fast=True)]],
    Field(
        max_length=MOST_COLUMNS,
        description="A text word by word: its `words`, and under its name each further column that the model reads.",
        examples=[{"words": ["Anna", "sings"], "pos": ["NNP", "VBZ"]}],
    ),
]


def _describe_terms(schema: dict[str, Any]) -> None:
    """Say that neither side of a term is blank."""
    next(one for one in schema["anyOf"] if one.get("type") == "object").update(TERMS)


class Request(BaseModel):
    """A request; unknown fields are refused, and values of another type: 0 is not false."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _read_whole_numbers(cls, given: Any) -> Any:
        """Read 3.0 as 3: JSON has one kind of number. Of unknown fields one is kept: each would make an error."""
        if not isinstance(given, dict):
            return given
        unknown = itertools.islice((name for name in given if name not in cls.model_fields), 1)
        return {name: _whole(given[name]) for name in itertools.chain(cls.model_fields, unknown) if name in given}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Decoding(Request):
    """Search options; the defaults are those of the run."""

    beam: Annotated[int | None, Field(default=None, ge=1, le=MOST_BEAM, description="Hypotheses kept; 1 is greedy.")]
    num_best: Annotated[int, Field(default=1, ge=1, le=MOST_BEAM, description="Outputs for each sentence.")]
    length_penalty: Annotated[float | None, Field(default=None, ge=0, le=10, description="0 ranks by log p alone.")]
    no_repeat_ngram: Annotated[
        int | None,
        Field(default=None, ge=0, le=16, description="Never write the same n tokens in a row twice; 0: no limit."),
    ]

    def options(self, width: int) -> dict[str, Any]:
        """Return the options of a translator with a beam of `width`."""
        given = {"length_penalty": self.length_penalty, "no_repeat_ngram": self.no_repeat_ngram, "width": self.beam}
        if self.num_best > 1:
            given |= {"num_best": self.num_best, "width": self.beam or max(self.num_best, width)}
        return {name: value for name, value in given.items() if value is not None}


class TranslateRequest(Decoding):
    """Texts to translate, and the results to return."""

    q: Texts
    source: Code
    target: Code
    model: ModelName
    alignment: Annotated[bool, Field(default=False, description="Align the words.")]
    tokens: Annotated[
        bool, Field(default=False, description="Return the pieces of each output with their probabilities.")
    ]
    split: Annotated[
        bool | None,
        Field(
            default=None,
            description="true: split texts into sentences; false: leave each text whole; by default as the model's "
            "texts are (see /v1/models): sentences are split, documents only where they are too long.",
        ),
    ]
    glossary: Annotated[
        dict[str, str] | None,
        Field(
            default=None,
            max_length=MOST_TERMS,
            json_schema_extra=_describe_terms,
            description="Terms, and how they are to be written: they go before those of the server.",
            examples=[{"cat": "chat"}],
        ),
    ]
    terms: Annotated[
        Literal["annotate", "constrain"] | None,
        Field(default=None, description="How outputs get the terms, if not as the model does it by itself."),
    ]
    placeholders: Annotated[
        Literal["keep", "ignore"] | None,
        Field(default=None, description="keep: {0}, %s, tags, addresses and URLs stay; by default as the run says."),
    ]

    confidence: Annotated[
        bool, Field(default=False, description="Tell how sure the model is of each word and sentence.")
    ]

    def words(self) -> dict[str, Any]:
        """Return the options about words that are given, as a call of a model takes them."""
        glossary = None if self.glossary is None else tuple(self.glossary.items())
        given = {"glossary": glossary, "terms": self.terms, "placeholders": self.placeholders}
        options = {name: value for name, value in given.items() if value is not None}
        return {**options, "confidence": True} if self.confidence else options


class Token(BaseModel):
    """A piece of an output, its probability, and its word; the last is </s>, a word of its own, if the output ended."""

    text: str
    probability: float
    word: Annotated[int, Field(description="Its place among the words, counted from 0.")]


WhyCut = Annotated[
    Literal["length", "loop"] | None,
    Field(default=None, description="length: it reached its greatest length; loop: it went in circles."),
]


class Term(BaseModel):
    """A term of a glossary in a sentence, and how it is in the output: as asked, in another form, missing."""

    source: str
    target: str
    way: str


class Kept(BaseModel):
    """A placeholder of a sentence, and how it came into the output: copied, aligned, by length."""

    text: str
    way: str


class WordConfidence(BaseModel):
    """The share of a sentence's words that is expected to be right, and the probability of each word to be so."""

    sentence: float
    words: list[tuple[str, float]]


class Output(BaseModel):
    """One of several outputs, with its score."""

    text: str
    score: Annotated[float, Field(description="log p, normalised by length.")]
    cut: WhyCut


class Sentence(BaseModel):
    """A sentence and its translation. Alignments are Pharaoh's: pairs of words source-output, counted from 0."""

    source: str
    text: str
    score: float
    ended: Annotated[bool, Field(description="False: the output was cut.")]
    cut: WhyCut
    others: Annotated[list[Output], Field(description="The next best outputs.")]
    source_words: list[str] | None = None
    words: list[str] | None = None
    alignment: Annotated[str | None, Field(default=None, examples=["0-0 1-2 2-1"])]
    tokens: list[Token] | None = None
    terms: list[Term] | None = None
    kept: list[Kept] | None = None
    confidence: WordConfidence | None = None


class Translation(BaseModel):
    """The answer to a text, and its parts: sentences, or more where the model's texts are not sentences."""

    text: str
    sentences: list[Sentence]
    note: Annotated[str | None, Field(default=None, description="Said of a document that was split: it is too long.")]


class TranslateResponse(BaseModel):
    """Translations in the order of the texts."""

    model: str
    source: Annotated[str | None, Field(description="The code of the language; null: the model names none.")]
    target: Annotated[str | None, Field(description="The code of the language; null: the model names none.")]
    translations: list[Translation]


LOOKED_AT: list[Any] = [  # as JSON Schema has it: a text that is not blank, a picture, or a sound
    {"required": ["text"], "properties": {"text": {"type": "string", "pattern": r"\S"}}},
    {"required": ["image"], "properties": {"image": {"type": "string", "minLength": 1}}},
    {"required": ["sound"], "properties": {"sound": {"type": "string", "minLength": 1}}},
]


class LookRequest(Decoding):
    """One text (or picture, or sound), and the weights to show."""

    model_config = ConfigDict(json_schema_extra={"anyOf": LOOKED_AT})

    text: Annotated[str | None, Field(default=None, description="For models that read texts.")]
    image: Annotated[
        str | None,
        Field(
            default=None,
            description="For models that read pictures: base64 of a PNG or JPEG file; of a clip: GIF, PNG or WebP.",
        ),
    ]
    sound: Annotated[str | None, Field(default=None, description="For models that hear: base64 of a WAV file.")]
    target: Annotated[
        str | None, Field(default=None, description="For translators: look at this output instead of their own.")
    ]
    model: ModelName
    kinds: Annotated[
        Annotated[
            list[Literal["cross", "copy", "encoder", "decoder", "pooling"]],
            Field(fail_fast=True, min_length=1, max_length=5),
        ]
        | None,
        Field(default=None, description="The kinds of attention; by default the one that reads the source."),
    ]
    layers: Annotated[
        Annotated[list[int], Field(fail_fast=True, min_length=1, max_length=64)] | None,
        Field(default=None, description="Only these, counted from 0."),
    ]
    heads: Annotated[
        Annotated[list[int], Field(fail_fast=True, min_length=1, max_length=64)] | None,
        Field(default=None, description="Only these, counted from 0."),
    ]
    norms: Annotated[bool, Field(default=False, description="Also the norms of the weighted values (Kobayashi 2020).")]
    views: Annotated[
        list[Literal["rollout", "flow"]],
        Field(default=[], fail_fast=True, max_length=2, description="Views through all layers."),
    ]


class Side(BaseModel):
    """A text that a model reads or writes: its pieces and words."""

    text: str
    pieces: list[str]
    words: list[str]
    word_of_piece: list[int]


class Attention(BaseModel):
    """Weights [layer][head][query piece][key piece] of two sides; the keys of a picture are its cells, row by row."""

    queries: str
    keys: str
    weights: list[list[list[list[float]]]]
    norms: list[list[list[list[float]]]] | None = None
    shape: list[int] | None = None
    layers: list[int] | None = None
    heads: list[int] | None = None


class View(BaseModel):
    """A view through all layers: weights [query piece][key piece]."""

    queries: str
    keys: str
    weights: list[list[float]]


class Aligning(BaseModel):
    """The head that aligns words best."""

    layer: int
    head: int | None
    shift: int


class LookResponse(BaseModel):
    """An answer, and what the model read for it."""

    task: str
    line: Annotated[str, Field(description="The answer as a line to read.")]
    answer: dict[str, Any]
    sides: dict[str, Side]
    attention: dict[str, Attention]
    aligning: Aligning | None
    views: dict[str, View] | None = None
    others: list[Output] | None = None
    picture: Annotated[
        str | None,
        Field(
            default=None, description="Of a clip: its frames side by side, as `attention` has them; a data: address."
        ),
    ]


class Language(BaseModel):
    """The code and the name of a language."""

    code: str
    name: str


class Languages(BaseModel):
    """A source and a target language."""

    source: Language
    target: Language


class ModelDescription(BaseModel):
    """A model of this server and what it can do."""

    name: str
    task: str
    title: Annotated[str, Field(description="The task as a title to read.")]
    reads: Annotated[str, Field(description="Its input: text, picture or sound.")]
    answers: Annotated[
        str, Field(description="The kind of its answers: text, elements, label, spans, path, continuation; or line.")
    ]
    streams: Annotated[bool, Field(description="Whether an answer can be sent while it is written.")]
    languages: Languages | None = None
    texts: Annotated[
        str | None,
        Field(
            default=None, description="What its texts are, if its answers are texts: sentences, documents, anything."
        ),
    ]
    labels: list[str] | None = None
    columns: Annotated[
        list[str] | None,
        Field(default=None, description="If it answers each word: the further columns that it reads behind a word."),
    ]
    beam: Annotated[int | None, Field(default=None, description="The beam of the run, if it writes texts.")]
    kinds: Annotated[list[str], Field(description="The kinds of attention that /v1/look shows.")]
    layers: Annotated[dict[str, int], Field(description="The number of layers of each kind.")]
    heads: Annotated[dict[str, int], Field(description="The number of heads of each kind.")]
    views: Annotated[list[str], Field(description="The views through all layers that /v1/look shows.")]
    norms: Annotated[bool, Field(description="Whether /v1/look also gives the norms of the weighted values.")]
    picture: Annotated[
        dict[str, int] | None,
        Field(
            default=None,
            description="For models that read pictures: channels, rows, columns; the side of a glimpse (patch); "
            "of clips the most frames.",
        ),
    ]
    examples: Annotated[list[str], Field(default=[], description="Texts to try: examples.txt in the run's folder.")]


class ModelsResponse(BaseModel):
    """All models, in the order of the command line."""

    version: str
    models: list[ModelDescription]


class TextsRequest(Request):
    """Texts to answer with one model."""

    q: Texts
    model: ModelName


class WordsRequest(TextsRequest):
    """Texts to answer word by word, as they are or as lists of words."""

    q: Annotated[  # type: ignore[assignment]
        str | Words | Annotated[list[str | Words], Field(fail_fast=True, max_length=MOST_TEXTS)],
        Field(description="A text, or its words with their further columns, or a list of these."),
    ]


class StreamedRequest(TextsRequest):
    """Texts to answer, or one whose answer is sent while it is written."""

    stream: Annotated[bool, Field(default=False, description="Send server-sent events, for one text.")]


class Answers(BaseModel):
    """An answer for each input, as `saccade predict --json` writes them."""

    model: str
    answers: list[dict[str, Any]]


class PictureRequest(Request):
    """A picture, PNG or JPEG (a clip: GIF, PNG, WebP): base64 in JSON, or a file in a form, whose values are texts."""

    model_config = ConfigDict(strict=False)

    image: Annotated[str | bytes, Field(description="Base64 (or a data: address), or the file.")]
    model: ModelName


class SoundRequest(Decoding):
    """A sound, WAV: base64 in JSON, or a file in a form. Values of a form are texts."""

    model_config = ConfigDict(strict=False)

    sound: Annotated[str | bytes, Field(description="Base64 (or a data: address), or the file.")]
    model: ModelName


class Problem(BaseModel):
    """An error, described in one line."""

    error: str


class LibreDetection(BaseModel):
    """A language and its confidence in percent."""

    confidence: float
    language: str


class LibreTranslation(BaseModel):
    """A translation. If q is a list, each field is one; `alternatives` and `detectedLanguage` come only on request."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: LibreDetection | list[LibreDetection] | None = None


class LibreLanguage(BaseModel):
    """A language and its target languages."""

    code: str
    name: str
    targets: list[str]


class LibreSuccess(BaseModel):
    """The answer to a suggestion that was saved."""

    success: bool


class LibreSettings(BaseModel):
    """The settings for a front end."""

    apiKeys: bool
    charLimit: int
    filesTranslation: bool
    frontendTimeout: int
    keyRequired: bool
    language: dict[str, Language]
    suggestions: bool
    supportedFilesFormat: list[str]


class Status(BaseModel):
    """The state of the server: ok."""

    status: str
