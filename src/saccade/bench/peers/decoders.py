"""The peers of the decoding benchmark: functions from source ids and a beam width to the number of tokens written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from saccade.bench.peers.models import build_marian, import_optional
from saccade.bench.peers.shortlists import draw_shortlist
from saccade.bench.training.flops import ModelSizes
from saccade.data.text.tokenizer import END, SPECIAL, START, UNKNOWN

Write = Callable[[Tensor, int], list[int]]  # of sources [B, S] that end in </s>, and a beam: tokens of each output


class DecoderSetting(NamedTuple):
    """The model's sizes, its device, and the number of tokens in every output."""

    sizes: ModelSizes
    device: torch.device
    output_length: int


class Decoder(NamedTuple):
    """A peer that decodes: its title, how it is built, and the devices it runs on."""

    title: str
    build: Callable[[DecoderSetting], Write]
    devices: tuple[str, ...] = ("cpu", "cuda")


def generate(setting: DecoderSetting) -> Write:
    """Build Hugging Face's `generate` with a growing cache; in bfloat16 on an accelerator."""
    return _generate(setting)


def generate_static(setting: DecoderSetting) -> Write:
    """Build `generate` with a static cache, for which it compiles its steps."""
    return _generate(setting, cache_implementation="static")


def _generate(setting: DecoderSetting, **options: Any) -> Write:
    dtype = torch.bfloat16 if setting.device.type == "cuda" else torch.float32
    model = build_marian(setting.sizes).to(setting.device, dtype).eval()
    length = setting.output_length
    options |= {"do_sample": False, "use_cache": True, "min_new_tokens": length, "max_new_tokens": length}

    @torch.inference_mode()
    def write(source_BS: Tensor, beam: int) -> list[int]:
        ids_BT = model.generate(
            input_ids=source_BS, attention_mask=torch.ones_like(source_BS), num_beams=beam, **options
        )
        return [len(row) - 1 for row in ids_BT.tolist()]  # it reads <s> and doesn't write it

    return write


def ctranslate(setting: DecoderSetting, kind: str = "float32", *, with_shortlist: bool = False) -> Write:
    """Build CTranslate2 with the weights of a Marian model, through its own converter."""
    ctranslate2 = import_optional("ctranslate2")
    sizes = setting.sizes._replace(vocabulary=setting.sizes.vocabulary + 1)  # the converter takes the last for <pad>
    loader = ctranslate2.converters.transformers.MarianMTLoader()
    spec = loader.get_model_spec(build_marian(sizes).eval())
    words = [*SPECIAL, *map(str, range(sizes.vocabulary))][: setting.sizes.vocabulary]
    loader.set_vocabulary(spec, words)
    spec.config.eos_token = spec.config.decoder_start_token = SPECIAL[END]
    spec.config.bos_token, spec.config.unk_token = SPECIAL[START], SPECIAL[UNKNOWN]
    spec.validate()
    spec.optimize(quantization=kind)
    with tempfile.TemporaryDirectory(prefix="saccade-bench-") as folder:
        spec.save(folder)
        if with_shortlist:
            (Path(folder) / "vmap.txt").write_text(_write_shortlist(words), encoding="utf-8")
        translator = ctranslate2.Translator(
            folder,
            device=setting.device.type,
            compute_type=kind,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
    length = setting.output_length

    def write(source_BS: Tensor, beam: int) -> list[int]:
        texts = [[words[index] for index in row] for row in source_BS.tolist()]
        found = translator.translate_batch(
            texts,
            beam_size=beam,
            min_decoding_length=length,
            max_decoding_length=length,
            use_vmap=with_shortlist,
        )
        return [len(one.hypotheses[0]) for one in found]

    return write


def ctranslate_int8(setting: DecoderSetting) -> Write:
    """Build CTranslate2 with its weights in 8 bits."""
    return ctranslate(setting, "int8")


def ctranslate_shortlist(setting: DecoderSetting) -> Write:
    """Build CTranslate2 with its weights in 8 bits and a shortlist (its vocabulary map)."""
    return ctranslate(setting, "int8", with_shortlist=True)


def _write_shortlist(words: list[str]) -> str:
    """Write a made shortlist as CTranslate2 reads it: a source word, a tab, its target words; first those for all."""
    listed, common = draw_shortlist(len(words))
    lines = [(words[number], ids) for number, ids in enumerate(listed) if ids]
    return "".join(f"{word}\t{' '.join(words[one] for one in ids)}\n" for word, ids in [("", common), *lines])


DECODERS = {
    "generate": Decoder("Hugging Face generate", generate),
    "generate-static": Decoder("generate, static cache, compiled", generate_static, ("cuda",)),
    "ctranslate2": Decoder("CTranslate2 float32", ctranslate, ("cpu",)),
    "ctranslate2-int8": Decoder("CTranslate2 int8", ctranslate_int8, ("cpu",)),
    "ctranslate2-int8-shortlist": Decoder("CTranslate2 int8, shortlist", ctranslate_shortlist, ("cpu",)),
}
