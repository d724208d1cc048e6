"""Pictures to labels through glimpses: a network that looks at pictures, and how well it does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from saccade.data.pictures.canvases import Canvases
from saccade.data.pictures.images import Images, Pixels, read_images, read_pictures
from saccade.errors import UserError
from saccade.inspection.draw import half_blocks
from saccade.inspection.draw import path as glimpses
from saccade.inspection.insight import Insight
from saccade.models.glimpse_network import GlimpseNetwork
from saccade.tasks.base import Evaluation, PictureSize, Predictor, Traits, Watch, pass_on, several
from saccade.tasks.glimpse.loss import with_first
from saccade.tasks.glimpse.pictures import FIXED_SEED, number_classes


class Picture(NamedTuple):
    """A picture to look at: its name and its pixels [C, Y, X], uint8."""

    name: str
    pixel_CYX: Pixels


class GlimpseScores(NamedTuple):
    """Percent right in the end, the loss, percent wrong after each glimpse; what was said of pictures, how surely."""

    accuracy: float
    loss: float
    error_by_glimpse: list[float]
    said_N: Tensor
    sure_N: Tensor

    @property
    def error(self) -> float:
        return self.error_by_glimpse[-1]

    def figures(self) -> dict[str, Any]:
        shown = {"error": self.error, "accuracy": self.accuracy, "loss": self.loss}
        return {**shown, "error_by_glimpse": self.error_by_glimpse}


class GlimpsePrediction(NamedTuple):
    """The class that a picture was given, and the path of glimpses that led there."""

    name: str
    label: str
    probabilities: dict[str, float]
    path: glimpses.Scanpath

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]

    def line(self) -> str:
        """Write name, label and probability with tabs between."""
        return f"{self.name}\t{self.label}\t{self.probability:.4f}"

    def plain(self) -> dict[str, Any]:
        """Prepare it for JSON; the path in pixels from the left and top, and what was believed after each glimpse."""
        places = [[round(x, 2), round(y, 2)] for x, y in self.path.pixels()]
        shares = {name: round(share, 6) for name, share in self.probabilities.items()}
        beliefs = [
            {name: round(share, 4) for name, share in zip(self.path.names, row, strict=True)}
            for row in self.path.share_TV.tolist()
        ]
        return {"name": self.name, "label": self.label, "probabilities": shares, "path": places, "beliefs": beliefs}

    def draw(self, path: Path) -> None:
        """Draw the path over the picture: a PNG, or a GIF that moves."""
        glimpses.draw(self.path, Path(path), title=f"{self.label} ({self.probability:.1%})")

    def show(self, console: Console) -> None:
        """Draw the path over the picture, in the terminal."""
        console.print(half_blocks.in_terminal(self.path, console))


@final
@dataclass(frozen=True)
class Glimpser(Predictor):
    """A trained model of glimpses, as `saccade.load` returns it.

    Probabilities are the mean over `samples` paths: the first follows the means of the locations, the others add
    noise that depends on the seed alone. A picture smaller than those of training is put in the middle of that size.
    """

    network: GlimpseNetwork
    names: list[str]
    canvases: Canvases
    shape: tuple[int, int]
    std: float
    samples: int = 8
    channels: int = 1
    resize: int | None = None
    is_first_random: bool = False
    batch_size: int = 256

    @property
    def traits(self) -> Traits:
        return Traits(
            "glimpse",
            reads="picture",
            predict_options=("samples", "seed"),
            evaluate_options=("samples",),
            look_options=("samples", "seed"),
            labels=self.names,
            picture=PictureSize(self.channels, *self.shape, self.resize, self.network.sensor.size),
            answers="path",
        )

    def predict(self, inputs: Iterable[Any], *, samples: int | None = None, seed: int = 0) -> list[GlimpsePrediction]:
        """Classify pictures: uint8 arrays [Y, X] or [C, Y, X], or files."""
        return list(self.stream(inputs, samples=samples, seed=seed))

    def stream(
        self, inputs: Iterable[Any], *, samples: int | None = None, seed: int = 0
    ) -> Iterator[GlimpsePrediction]:
        """Yield the classes of pictures one by one, in memory that doesn't grow with their number."""
        noise_TBM2 = self.draw_noise(samples or self.samples, seed)
        pictures = (self._grown(picture) for given in several(inputs) for picture in self._pictures(given))
        for _, same in groupby(pictures, key=lambda picture: picture.pixel_CYX.shape):
            while batch := list(islice(same, self.batch_size)):
                yield from self._predict_batch(batch, noise_TBM2)

    def look(self, inputs: Iterable[Any], *, samples: int | None = None, seed: int = 0) -> list[Insight]:
        """Return where it looked: the path is the answer's own; there are no weights."""
        found = self.stream(inputs, samples=samples, seed=seed)
        return [Insight(self.traits.task, seen, {}, {}, draws_itself=True) for seen in found]

    def read(self, source: Path | None) -> Iterator[Picture]:
        """Read the pictures of a file or folder."""
        if source is None:
            raise UserError("--input: missing; allowed: a picture, a folder of pictures, an .npz or an idx file")
        return (Picture(*found) for found in read_pictures(source, channels=self.channels, resize=self.resize))

    @torch.no_grad()
    def probabilities(self, image_NCYX: Tensor, noise_TBM2: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of all paths after each glimpse, [T, N, V], and the first path, [T, N, 2], of bytes."""
        device = next(self.network.parameters()).device
        found, paths = [], []
        for part_BCYX in image_NCYX.split(self.batch_size):
            path = self.network(part_BCYX.to(device).float() / 255, noise_TBM2)
            share_TBMV = path.logits_TNV.softmax(-1).unflatten(1, (len(part_BCYX), -1))
            found.append(share_TBMV.mean(2))
            paths.append(path.location_TN2.unflatten(1, (len(part_BCYX), -1))[:, :, 0].clamp(-1, 1))
        return torch.cat(found, 1), torch.cat(paths, 1)

    def draw_noise(self, samples: int, seed: int = 0) -> Tensor:
        """Draw the noise of M paths, [T, 1, M, 2]: the same for every picture, 0 for the first path."""
        generator = torch.Generator().manual_seed(seed)
        noise_TBM2 = torch.randn(self.network.num_glimpses, 1, samples, 2, generator=generator) * self.std
        noise_TBM2[:, :, 0] = 0
        device = next(self.network.parameters()).device
        return with_first(noise_TBM2, self.is_first_random, generator).to(device)

    def fixed(self, images: Images) -> Tensor:
        """Draw the canvases that pictures are measured on."""
        return self.canvases.draw_fixed(torch.tensor(images.pixel_NCYX), FIXED_SEED)

    def scores(self, canvas_NCYX: Tensor, label_N: Tensor, *, samples: int | None = None) -> GlimpseScores:
        """Score how well canvases are read."""
        share_TNV, _ = self.probabilities(canvas_NCYX, self.draw_noise(samples or self.samples))
        label_N = label_N.to(share_TNV.device)
        wrong_T = (share_TNV.argmax(-1) != label_N).double().mean(1).tolist()
        loss = float(F.nll_loss(share_TNV[-1].clamp(min=1e-12).log(), label_N))
        sure_N, said_N = share_TNV[-1].max(-1)
        return GlimpseScores(100 * (1 - wrong_T[-1]), loss, [100 * wrong for wrong in wrong_T], said_N, sure_N)

    def evaluate(self, paths: Sequence[Path], *, watch: Watch = pass_on, samples: int | None = None) -> Evaluation:
        """Compute the error on labelled pictures, on canvases like those of training that are the same every time."""
        del watch  # all are looked at together
        images = self.images(paths)
        found = self.scores(self.fixed(images), torch.tensor(images.label_N), samples=samples)
        wrong = round(found.error / 100 * len(images))
        lines = [
            f"error {found.error:.2f}%  ({wrong:,} of {len(images):,} pictures, {samples or self.samples} paths each)",
            f"after each glimpse: {' '.join(f'{error:.2f}' for error in found.error_by_glimpse)}",
        ]
        return Evaluation({**found.figures(), "num_pictures": len(images)}, lines)

    def images(self, paths: Sequence[Path]) -> Images:
        """Read labelled pictures from files: two idx files, an .npz or a folder."""
        if not 1 <= len(paths) <= 2:
            raise UserError(f"{len(paths)} files given; allowed: images and labels (idx), one .npz, or one folder")
        labels = str(paths[1]) if len(paths) > 1 else None
        found = read_images(str(paths[0]), labels, field="images", channels=self.channels, resize=self.resize)
        return number_classes(found, self.names, str(paths[0]))

    def _pictures(self, given: Any) -> Iterator[Picture]:
        if isinstance(given, Picture):
            yield given
        elif isinstance(given, str | Path):
            yield from self.read(Path(given))
        else:
            pixels = np.asarray(given)
            if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
                what = f"{pixels.dtype} of shape {pixels.shape}"
                raise UserError(f"a picture: {what} given; allowed: uint8 [rows, columns] or [channels, rows, columns]")
            yield Picture("", pixels if pixels.ndim == 3 else pixels[None])

    def _grown(self, picture: Picture) -> Picture:
        """Put a picture in the middle of a canvas of the size it learned from, if it is smaller."""
        channels, rows, columns = picture.pixel_CYX.shape
        if channels != self.channels:
            raise UserError(
                f"{picture.name or 'a picture'}: {channels} channels; the model has learned {self.channels}"
            )
        missing = [max(0, want - have) for want, have in zip(self.shape, (rows, columns), strict=True)]
        around = [(0, 0), *((gap // 2, gap - gap // 2) for gap in missing)]
        return Picture(picture.name, np.pad(picture.pixel_CYX, around))

    def _predict_batch(self, batch: list[Picture], noise_TBM2: Tensor) -> Iterator[GlimpsePrediction]:
        pixel_NCYX = torch.from_numpy(np.stack([picture.pixel_CYX for picture in batch]))
        share_TNV, path_TN2 = (found.float().cpu() for found in self.probabilities(pixel_NCYX, noise_TBM2))
        for row, picture in enumerate(batch):
            shares = dict(zip(self.names, share_TNV[-1, row].tolist(), strict=True))
            path = glimpses.Scanpath(
                picture.pixel_CYX, path_TN2[:, row], self.network.sensor, share_TNV[:, row], self.names
            )
            yield GlimpsePrediction(picture.name, max(shares, key=lambda name: shares[name]), shares, path)
