"""Pictures to labels through glimpses: the hybrid loss, the batches, and a network that looks at pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data.canvases import Canvases
from saccade.data.images import Images, Pixels, read_images, read_pictures
from saccade.data.mistakes import Mistake
from saccade.inspection import glimpses
from saccade.models.glimpse_network import Gaze, GlimpseNetwork

FIXED_SEED = 1406  # of the canvases that are measured on: the same for every run


class Batch(NamedTuple):
    """Rows of the pictures, which lie on the device already, and how far locations are drawn from their means."""

    row_B: Tensor
    std: Tensor

    @property
    def num_items(self) -> int:
        """Pictures."""
        return len(self.row_B)

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


class RowPlan(Protocol):
    """Which rows go together in each epoch; as many batches in every one."""

    def epoch(self, number: int) -> Sequence[Any]:
        """The batches of an epoch, as rows."""


@final
@dataclass(frozen=True)
class Annealed:
    """A plan whose batches know how far to wander: from the first standard deviation to the last, then no less.

    What a batch is told depends on its number alone, so a run that was killed goes on exactly.
    """

    plan: RowPlan
    first_std: float
    last_std: float
    num_batches: int

    def epoch(self, number: int) -> list[tuple[float, Any]]:
        """Standard deviations and rows."""
        batches = self.plan.epoch(number)
        start = number * len(batches)
        return [(self.std(start + index), rows) for index, rows in enumerate(batches)]

    def load(self, rows: tuple[float, Any]) -> Batch:
        """As tensors."""
        return Batch(torch.as_tensor(np.asarray(rows[1]), dtype=torch.long), torch.tensor(rows[0]))

    def std(self, batch: int) -> float:
        """That of a batch: the logarithm falls in a straight line."""
        share = min(1.0, batch / max(1, self.num_batches))
        return float(self.first_std ** (1 - share) * self.last_std**share)


@final
@dataclass(frozen=True)
class HybridLoss:
    """Cross-entropy for what is said, REINFORCE for where to look (Mnih 2014, section 3.2).

    -log p(y | h_T) - weight * sum_t log pi(l_t | h_t-1) (R - b_t) + sum_t (R - b_t)², where R = 1 if the answer at the
    end is right, or its expectation p(y | h_T) under an answer that is drawn (reward: probability), which varies less.
    `early_weight` times the mean cross-entropy after the earlier glimpses is added; of M copies the mean counts.
    """

    network: GlimpseNetwork
    pixel_NCYX: Tensor
    label_N: Tensor
    canvases: Canvases
    copies: int = 1
    reward: str = "right"
    policy_weight: float = 1.0
    early_weight: float = 0.0
    is_first_random: bool = False

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss summed over the pictures, and its part that is the last answer's cross-entropy."""
        image_BCYX = self.canvases.draw(self.pixel_NCYX, batch.row_B)
        noise_TBM2 = torch.randn(self.network.num_glimpses, len(batch.row_B), self.copies, 2, device=batch.row_B.device)
        wander_TBM2 = _with_first(noise_TBM2 * batch.std, self.is_first_random)
        gaze = self.network(image_BCYX, wander_TBM2)
        return self.of(gaze, self.label_N[batch.row_B].repeat_interleave(self.copies), batch.std)

    def of(self, gaze: Gaze, label_N: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The same from what was seen."""
        num_steps = len(gaze.logits_TNV)
        label_TN = label_N.expand(num_steps, -1)
        entropy_TN = F.cross_entropy(gaze.logits_TNV.movedim(-1, 1), label_TN, reduction="none")
        early = self.early_weight * entropy_TN[:-1].sum(0) / max(1, num_steps - 1)
        reward_N = _reward(gaze.logits_TNV[-1].detach(), label_N, self.reward)
        surprise_TN = reward_N - gaze.baseline_TN[1:]
        distance_TN2 = (gaze.location_TN2 - gaze.mean_TN2)[1:] / std
        log_policy_TN = -distance_TN2.square().sum(-1) / 2
        policy = -(log_policy_TN * surprise_TN.detach()).sum(0)
        total_N = entropy_TN[-1] + early + self.policy_weight * policy + surprise_TN.square().sum(0)
        return total_N.sum() / self.copies, entropy_TN[-1].detach().sum() / self.copies


def _reward(logits_NV: Tensor, label_N: Tensor, kind: str) -> Tensor:
    if kind == "probability":
        return logits_NV.softmax(-1).gather(1, label_N[:, None]).squeeze(1)
    return (logits_NV.argmax(-1) == label_N).float()


def _with_first(wander_TBM2: Tensor, is_random: bool, generator: torch.Generator | None = None) -> Tensor:
    """The first location is the middle, or anywhere."""
    first_BM2 = torch.zeros_like(wander_TBM2[0])
    if is_random:
        first_BM2.uniform_(-1, 1, generator=generator)
    return torch.cat([first_BM2[None], wander_TBM2[1:]])


class Picture(NamedTuple):
    """A picture to look at: its name and its pixels [C, Y, X], uint8."""

    name: str
    pixel_CYX: Pixels


class Seen(NamedTuple):
    """What a picture was taken for, and the path of glimpses that led there."""

    name: str
    label: str
    probabilities: dict[str, float]
    path: glimpses.Scanpath

    @property
    def probability(self) -> float:
        """Of the label."""
        return self.probabilities[self.label]

    def line(self) -> str:
        """Name, label and probability with tabs between."""
        return f"{self.name}\t{self.label}\t{self.probability:.4f}"

    def plain(self) -> dict[str, Any]:
        """For JSON; the path in pixels from the left and from the top."""
        places = [[round(x, 2), round(y, 2)] for x, y in self.path.pixels()]
        shares = {name: round(share, 6) for name, share in self.probabilities.items()}
        return {"name": self.name, "label": self.label, "probabilities": shares, "path": places}

    def draw(self, path: Path) -> None:
        """The path over the picture: a PNG, or a GIF that moves."""
        glimpses.draw(self.path, path, title=f"{self.label} ({self.probability:.1%})")


@final
@dataclass(frozen=True)
class Glimpser:
    """What `saccade.load` returns for a run of glimpses.

    Probabilities are the mean over `samples` paths: the first follows the means of the locations, the others wander by
    numbers that depend on the seed alone. A picture smaller than those of training is put in the middle of that size.
    """

    network: GlimpseNetwork
    names: list[str]
    canvases: Canvases
    side: int
    std: float
    samples: int = 8
    channels: int = 1
    resize: int | None = None
    is_first_random: bool = False
    batch_size: int = 256

    def predict(self, inputs: Iterable[Any], *, samples: int | None = None, seed: int = 0) -> list[Seen]:
        """What each picture is: uint8 arrays [Y, X] or [C, Y, X], or files."""
        return list(self.stream(inputs, samples=samples, seed=seed))

    def stream(self, inputs: Iterable[Any], *, samples: int | None = None, seed: int = 0) -> Iterator[Seen]:
        """The same one by one, in memory that doesn't grow with their number."""
        wander_TBM2 = self.wander(samples or self.samples, seed)
        pictures = (self._grown(picture) for given in inputs for picture in self._pictures(given))
        for _, same in groupby(pictures, key=lambda picture: picture.pixel_CYX.shape):
            while batch := list(islice(same, self.batch_size)):
                yield from self._seen(batch, wander_TBM2)

    def read(self, source: Path | None) -> Iterator[Picture]:
        """The pictures of a file or folder."""
        if source is None:
            raise Mistake("--input: missing; allowed: a picture, a folder of pictures, an .npz or an idx file")
        return (Picture(*found) for found in read_pictures(source, channels=self.channels, resize=self.resize))

    @torch.no_grad()
    def probabilities(self, image_NCYX: Tensor, wander_TBM2: Tensor) -> tuple[Tensor, Tensor]:
        """After each glimpse, [T, N, V], mean of all paths, and the first path [T, N, 2], of uint8 pictures."""
        device = next(self.network.parameters()).device
        found, paths = [], []
        for part_BCYX in image_NCYX.split(self.batch_size):
            gaze = self.network(part_BCYX.to(device).float() / 255, wander_TBM2)
            share_TBMV = gaze.logits_TNV.softmax(-1).unflatten(1, (len(part_BCYX), -1))
            found.append(share_TBMV.mean(2))
            paths.append(gaze.location_TN2.unflatten(1, (len(part_BCYX), -1))[:, :, 0].clamp(-1, 1))
        return torch.cat(found, 1), torch.cat(paths, 1)

    def wander(self, samples: int, seed: int = 0) -> Tensor:
        """How the paths [T, 1, M, 2] differ from their means: the same for every picture, the first not at all."""
        generator = torch.Generator().manual_seed(seed)
        noise_TBM2 = torch.randn(self.network.num_glimpses, 1, samples, 2, generator=generator) * self.std
        noise_TBM2[:, :, 0] = 0
        device = next(self.network.parameters()).device
        return _with_first(noise_TBM2, self.is_first_random, generator).to(device)

    def fixed(self, images: Images) -> Tensor:
        """The canvases that pictures are measured on."""
        return self.canvases.fixed(torch.tensor(images.pixel_NCYX), FIXED_SEED)

    def measure(self, canvas_NCYX: Tensor, label_N: Tensor, *, samples: int | None = None) -> dict[str, float]:
        """Accuracy and error in percent, and the loss, of canvases."""
        share_TNV, _ = self.probabilities(canvas_NCYX, self.wander(samples or self.samples))
        label_N = label_N.to(share_TNV.device)
        right = float((share_TNV[-1].argmax(-1) == label_N).double().mean())
        loss = float(F.nll_loss(share_TNV[-1].clamp(min=1e-12).log(), label_N))
        return {"accuracy": 100 * right, "error": 100 * (1 - right), "loss": loss}

    def images(self, paths: Sequence[Path]) -> Images:
        """Labelled pictures from files: two idx files, an .npz or a folder."""
        if not 1 <= len(paths) <= 2:
            raise Mistake(f"{len(paths)} files given; allowed: images and labels (idx), one .npz, or one folder")
        labels = str(paths[1]) if len(paths) > 1 else None
        found = read_images(str(paths[0]), labels, field="images", channels=self.channels, resize=self.resize)
        return same_names(found, self.names, str(paths[0]))

    def _pictures(self, given: Any) -> Iterator[Picture]:
        if isinstance(given, Picture):
            yield given
        elif isinstance(given, str | Path):
            yield from self.read(Path(given))
        else:
            pixels = np.asarray(given)
            if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
                what = f"{pixels.dtype} of shape {pixels.shape}"
                raise Mistake(f"a picture: {what} given; allowed: uint8 [rows, columns] or [channels, rows, columns]")
            yield Picture("", pixels if pixels.ndim == 3 else pixels[None])

    def _grown(self, picture: Picture) -> Picture:
        """In the middle of a canvas of the size it learned from, if it is smaller."""
        channels, rows, columns = picture.pixel_CYX.shape
        if channels != self.channels:
            raise Mistake(f"{picture.name or 'a picture'}: {channels} channels; the model has learned {self.channels}")
        missing = [max(0, self.side - have) for have in (rows, columns)]
        around = [(0, 0), *((gap // 2, gap - gap // 2) for gap in missing)]
        return Picture(picture.name, np.pad(picture.pixel_CYX, around))

    def _seen(self, batch: list[Picture], wander_TBM2: Tensor) -> Iterator[Seen]:
        pixel_NCYX = torch.from_numpy(np.stack([picture.pixel_CYX for picture in batch]))
        share_TNV, path_TN2 = (found.float().cpu() for found in self.probabilities(pixel_NCYX, wander_TBM2))
        for row, picture in enumerate(batch):
            shares = dict(zip(self.names, share_TNV[-1, row].tolist(), strict=True))
            path = glimpses.Scanpath(
                picture.pixel_CYX, path_TN2[:, row], self.network.sensor, share_TNV[:, row], self.names
            )
            yield Seen(picture.name, max(shares, key=lambda name: shares[name]), shares, path)


def same_names(images: Images, names: list[str], where: str) -> Images:
    """Pictures of classes that the model knows, numbered as it does."""
    if unknown := [name for name in images.names if name not in names]:
        used = {images.names[label] for label in np.unique(images.label_N)}
        if any(name in used for name in unknown):
            raise Mistake(f"{where}: class {unknown[0]!r} isn't among those of training: {', '.join(names)}")
    number = np.array([names.index(name) if name in names else -1 for name in images.names])
    return Images(images.pixel_NCYX, number[images.label_N], names)
