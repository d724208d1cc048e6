"""The codes and names of languages."""

from __future__ import annotations

import re

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
    """Return the English name of a language, or its code if the table lacks it."""
    return NAMES.get(code) or NAMES.get(code.partition("-")[0], code)
