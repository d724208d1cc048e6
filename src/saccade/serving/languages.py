"""Languages: their names, and which of some a text is written in."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Collection
from typing import Any, NamedTuple, final

CODE = re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})?")

NAMES = dict(
    row.split(" ", 1)
    for row in """\
af Afrikaans|am Amharic|ar Arabic|az Azerbaijani|be Belarusian|bg Bulgarian|bn Bengali|bs Bosnian|ca Catalan|cs Czech
cy Welsh|da Danish|de German|el Greek|en English|eo Esperanto|es Spanish|et Estonian|eu Basque|fa Persian|fi Finnish
fo Faroese|fr French|fy Western Frisian|ga Irish|gd Scottish Gaelic|gl Galician|gu Gujarati|ha Hausa|he Hebrew|hi Hindi
hr Croatian|ht Haitian Creole|hu Hungarian|hy Armenian|id Indonesian|ig Igbo|is Icelandic|it Italian|ja Japanese
jv Javanese|ka Georgian|kk Kazakh|km Khmer|kn Kannada|ko Korean|ku Kurdish|ky Kyrgyz|la Latin|lb Luxembourgish|lo Lao
lt Lithuanian|lv Latvian|mg Malagasy|mi Maori|mk Macedonian|ml Malayalam|mn Mongolian|mr Marathi|ms Malay|mt Maltese
my Burmese|nb Norwegian Bokmål|ne Nepali|nl Dutch|nn Norwegian Nynorsk|no Norwegian|oc Occitan|or Odia|pa Punjabi
pl Polish|ps Pashto|pt Portuguese|qu Quechua|ro Romanian|ru Russian|rw Kinyarwanda|sa Sanskrit|sd Sindhi|si Sinhala
sk Slovak|sl Slovenian|sm Samoan|sn Shona|so Somali|sq Albanian|sr Serbian|su Sundanese|sv Swedish|sw Swahili|ta Tamil
te Telugu|tg Tajik|th Thai|tk Turkmen|tl Tagalog|tr Turkish|tt Tatar|ug Uyghur|uk Ukrainian|ur Urdu|uz Uzbek
vi Vietnamese|wa Walloon|xh Xhosa|yi Yiddish|yo Yoruba|zh Chinese|zu Zulu""".replace("\n", "|").split("|")
)


def name_of(code: str) -> str:
    """A language's English name; of one that isn't in the table, its code."""
    return NAMES.get(code) or NAMES.get(code.partition("-")[0], code)


class Detected(NamedTuple):
    """A language, and how sure that is, in percent."""

    language: str
    confidence: float


@final
class Detector:
    """Says which of some languages a text is written in (py3langid: naive Bayes over byte n-grams, no pickle)."""

    def __init__(self, codes: Collection[str]) -> None:
        self._whole = copy.copy(_identifier())
        self.codes = list(codes)
        known = set(self._whole.labels)
        self._label = {code: label for code in codes if (label := code.partition("-")[0]) in known}
        self._whole.set_languages(set(self._label.values()) or None)

    def detect(self, text: str, among: Collection[str] | None = None) -> list[Detected]:
        """The languages by how likely they are, the first the likeliest; those nobody can tell come last."""
        codes = [code for code in self.codes if among is None or code in among]
        known = [code for code in codes if code in self._label]
        share = dict(self._whole.rank(text)) if known else {}
        total = sum(share[self._label[code]] for code in known) or 1.0
        found = [Detected(code, round(100 * share[self._label[code]] / total, 1)) for code in known]
        unknown = [Detected(code, 0.0) for code in codes if code not in self._label]
        return sorted(found, key=lambda one: -one.confidence) + unknown


@functools.cache
def _identifier() -> Any:
    """All languages; reading it takes a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
