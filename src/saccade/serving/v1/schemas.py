"""What /v1 reads and writes: the types behind /openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from saccade.tasks.base import MOST_BEAM

ModelName = Annotated[
    str | None, Field(default=None, description="A model's name, as /v1/models lists them; else the first that fits.")
]
Texts = Annotated[str | list[str], Field(description="A text, or a list of texts.")]


class Request(BaseModel):
    """Fields that nobody knows are refused."""

    model_config = ConfigDict(extra="forbid")


class Decoding(Request):
    """How to search; what isn't given is as the run says."""

    beam: Annotated[int | None, Field(default=None, ge=1, le=MOST_BEAM, description="Hypotheses kept; 1 is greedy.")]
    num_best: Annotated[int, Field(default=1, ge=1, le=MOST_BEAM, description="Outputs for each sentence.")]
    length_penalty: Annotated[float | None, Field(default=None, ge=0, le=10, description="0 ranks by log p alone.")]
    no_repeat_ngram: Annotated[
        int | None, Field(default=None, ge=0, le=16, description="So many tokens in a row are never written twice.")
    ]

    def options(self, width: int) -> dict[str, Any]:
        """As a translator takes them, whose own beam is `width` wide."""
        given = {"length_penalty": self.length_penalty, "no_repeat_ngram": self.no_repeat_ngram, "width": self.beam}
        if self.num_best > 1:
            given |= {"num_best": self.num_best, "width": self.beam or max(self.num_best, width)}
        return {name: value for name, value in given.items() if value is not None}


class TranslateRequest(Decoding):
    """Texts to translate."""

    q: Texts
    source: Annotated[str | None, Field(default=None, description="The language's code; else the model's.")]
    target: Annotated[str | None, Field(default=None, description="The language's code; else the model's.")]
    model: ModelName
    alignment: Annotated[bool, Field(default=False, description="Which words stand for which.")]
    tokens: Annotated[bool, Field(default=False, description="The pieces of each output with their probabilities.")]
    split: Annotated[bool, Field(default=True, description="Long texts in sentences; false: each text is one.")]


class Token(BaseModel):
    """A piece of an output, and how sure the model was of it; the last is </s> where the output ended."""

    text: str
    probability: float


class Output(BaseModel):
    """One of several outputs."""

    text: str
    score: Annotated[float, Field(description="log p, normalised by length.")]


class Sentence(BaseModel):
    """A sentence and its translation. Alignments are Pharaoh's: pairs of words source-output, counted from 0."""

    source: str
    text: str
    score: float
    ended: Annotated[bool, Field(description="False: it was cut at its greatest length, or in a loop.")]
    others: Annotated[list[Output], Field(description="The next best.")]
    source_words: list[str] | None = None
    words: list[str] | None = None
    alignment: Annotated[str | None, Field(default=None, examples=["0-0 1-2 2-1"])]
    tokens: list[Token] | None = None


class Translation(BaseModel):
    """A text as it was translated, and its sentences."""

    text: str
    sentences: list[Sentence]


class TranslateResponse(BaseModel):
    """Translations in the order of the texts."""

    model: str
    source: str
    target: str
    translations: list[Translation]


class LookRequest(Decoding):
    """One text (or picture), and what to show of the way the model read it."""

    text: Annotated[str | None, Field(default=None, description="For models that read texts.")]
    image: Annotated[
        str | None, Field(default=None, description="For models that read pictures: base64 of a PNG or JPEG file.")
    ]
    target: Annotated[
        str | None, Field(default=None, description="Of a translator: this output is read instead of one it writes.")
    ]
    model: ModelName
    kinds: Annotated[
        list[Literal["cross", "encoder", "decoder", "pooling"]] | None,
        Field(default=None, description="Which attentions; else the one that reads the source."),
    ]
    layers: Annotated[list[int] | None, Field(default=None, description="Only these, from 0.", max_length=64)]
    heads: Annotated[list[int] | None, Field(default=None, description="Only these, from 0.", max_length=64)]
    norms: Annotated[bool, Field(default=False, description="Also the lengths of what was weighed (Kobayashi 2020).")]
    views: Annotated[list[Literal["rollout", "flow"]], Field(default=[], description="Derived views.")]


class Side(BaseModel):
    """A text as the model reads or writes it."""

    text: str
    pieces: list[str]
    words: list[str]
    word_of_piece: list[int]


class Attention(BaseModel):
    """Weights [layer][head][query piece][key piece] between two sides; of a picture, keys are its cells, row by row."""

    queries: str
    keys: str
    weights: list[list[list[list[float]]]]
    norms: list[list[list[list[float]]]] | None = None
    shape: list[int] | None = None
    layers: list[int] | None = None
    heads: list[int] | None = None


class View(BaseModel):
    """A derived view: weights [query piece][key piece]."""

    queries: str
    keys: str
    weights: list[list[float]]


class Aligning(BaseModel):
    """The head that aligns words best."""

    layer: int
    head: int | None
    shift: int


class LookResponse(BaseModel):
    """What a model saw."""

    task: str
    line: Annotated[str, Field(description="The answer, for people.")]
    answer: dict[str, Any]
    sides: dict[str, Side]
    attention: dict[str, Attention]
    aligning: Aligning | None
    views: dict[str, View] | None = None
    others: list[Output] | None = None


class Language(BaseModel):
    """A language."""

    code: str
    name: str


class Languages(BaseModel):
    """What is translated into what."""

    source: Language
    target: Language


class ModelDescription(BaseModel):
    """A model that this server holds."""

    name: str
    task: str
    title: Annotated[str, Field(description="What its task does, for people.")]
    reads: Annotated[str, Field(description="What it reads: text, or picture.")]
    answers: Annotated[str, Field(description="What an answer is: text, label, spans, path; or line: any other.")]
    languages: Languages | None = None
    labels: list[str] | None = None
    beam: Annotated[int | None, Field(default=None, description="The run's own, where it writes.")]
    kinds: Annotated[list[str], Field(description="The kinds of attention that /v1/look shows.")]
    layers: Annotated[dict[str, int], Field(description="Of each kind, how many.")]
    heads: Annotated[dict[str, int], Field(description="Of each kind, how many.")]
    views: Annotated[list[str], Field(description="The views through all layers that /v1/look shows.")]
    picture: Annotated[
        dict[str, int] | None,
        Field(
            default=None,
            description="Of one that reads pictures: channels, rows, columns; the side of a glimpse (patch).",
        ),
    ]
    examples: Annotated[list[str], Field(default=[], description="Texts to try: examples.txt in the run's folder.")]


class ModelsResponse(BaseModel):
    """All models, in the order in which the server was given them."""

    version: str
    models: list[ModelDescription]


class TextsRequest(Request):
    """Texts to answer."""

    q: Texts
    model: ModelName


class Answers(BaseModel):
    """An answer for each input, as `saccade predict --json` writes them."""

    model: str
    answers: list[dict[str, Any]]


class PictureRequest(Request):
    """A picture, PNG or JPEG: base64 in JSON, or a file in a form."""

    image: Annotated[str | bytes, Field(description="Base64 (or a data: address), or the file.")]
    model: ModelName


class Problem(BaseModel):
    """What went wrong, in one line."""

    error: str


class LibreDetection(BaseModel):
    """A language, and how sure that is, in percent."""

    confidence: float
    language: str


class LibreTranslation(BaseModel):
    """Each of them is a list where q was one; `alternatives` and `detectedLanguage` only where they were asked for."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: LibreDetection | list[LibreDetection] | None = None


class LibreLanguage(BaseModel):
    """A language and what it is translated into."""

    code: str
    name: str
    targets: list[str]


class LibreSuccess(BaseModel):
    """It went well."""

    success: bool


class LibreSettings(BaseModel):
    """For front ends."""

    apiKeys: bool
    charLimit: int
    filesTranslation: bool
    frontendTimeout: int
    keyRequired: bool
    language: dict[str, Language]
    suggestions: bool
    supportedFilesFormat: list[str]


class Status(BaseModel):
    """How the server is."""

    status: str
