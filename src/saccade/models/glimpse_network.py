"""The Recurrent Attention Model (Mnih 2014): it reads an image by glimpses and chooses the place of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.glimpse_sensor import GlimpseSensor
from saccade.ops.dropout import dropout

HIDDEN = 128  # units between a glimpse, a location or a state and what is made of it (section 4)


class GlimpsePath(NamedTuple):
    """The glimpses of a batch; N = B * M, an image's M copies follow each other.

    Locations [T, N, 2] as they were drawn (the sensor clamps them to the image), the means of their distributions, the
    logits of the classes after each glimpse [T, N, V], and the baselines of the reward [T, N].
    """

    location_TN2: Tensor
    mean_TN2: Tensor
    logits_TNV: Tensor
    baseline_TN: Tensor


def linear_glimpse(depth: int, size: int, width: int, channels: int) -> nn.Module:
    """Build the paper's glimpse network: relu(W rho), then W (section 4)."""
    del channels
    return nn.Sequential(nn.Flatten(), nn.Linear(depth * size**2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, width))


def convolution_glimpse(depth: int, size: int, width: int, channels: int) -> nn.Module:
    """Build three small convolutions over the glimpse, its scales as channels, then W."""
    half = -(-size // 2)
    layers = nn.Sequential(
        nn.Conv2d(depth, channels, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(2 * channels, 4 * channels, 3, padding=1),
        nn.ReLU(),
        _Flat(),
        nn.Linear(4 * channels * half**2, width),
    )
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # keeps the variance from layer to layer
    return layers


GLIMPSES: dict[str, Callable[[int, int, int, int], nn.Module]] = {
    "linear": linear_glimpse,
    "convolution": convolution_glimpse,
}
CELLS: dict[str, Callable[[int, int], nn.Module]] = {
    "rnn": lambda given, width: nn.RNNCell(given, width, nonlinearity="relu"),
    "gru": nn.GRUCell,
    "lstm": nn.LSTMCell,
}


@final
class GlimpseNetwork(nn.Module):
    """Sensor, glimpse network g, core h, location network, action network and baseline (Mnih 2014, figure 1).

    g_t = relu(what(rho(x, l_t)) + where(l_t)), h_t = core(h_t-1, g_t), l_t+1 ~ N(tanh f(h_t), s²), a_t = softmax(W h_t)
    """

    def __init__(
        self,
        num_classes: int,
        *,
        channels: int = 1,
        size: int = 8,
        num_scales: int = 1,
        num_glimpses: int = 6,
        glimpse: str = "linear",
        glimpse_channels: int = 32,
        glimpse_width: int = 256,
        cell: str = "rnn",
        width: int = 256,
        dropout: float = 0.0,
        policy_reaches_core: bool = False,
    ) -> None:
        super().__init__()
        self.num_glimpses, self.dropout, self.policy_reaches_core = num_glimpses, dropout, policy_reaches_core
        self.sensor = GlimpseSensor(size, num_scales)
        self.what = GLIMPSES[glimpse](num_scales * channels, size, glimpse_width, glimpse_channels)
        self.where = _two_layers(2, glimpse_width)
        self.core = CELLS[cell](glimpse_width, width)
        self.location = _two_layers(width, 2, std=0.01)  # the first locations are near the middle
        self.action = nn.Linear(width, num_classes)
        self.baseline = nn.Linear(width, 1)

    def forward(self, image_BCYX: Tensor, noise_TBM2: Tensor) -> GlimpsePath:
        """Read each image on M paths. The first location is noise_0; later ones are the mean plus noise_t."""
        num_rows, copies = len(image_BCYX), noise_TBM2.shape[2]
        noise_TN2 = noise_TBM2.expand(-1, num_rows, -1, -1).flatten(1, 2)
        mean_N2, state = torch.zeros_like(noise_TN2[0]), None
        means, locations, outputs = [], [], []
        for noise_N2 in noise_TN2:
            location_N2 = mean_N2.detach() + noise_N2
            state, output_ND = self._glimpse(image_BCYX, location_N2.clamp(-1, 1).view(num_rows, copies, 2), state)
            means.append(mean_N2)
            locations.append(location_N2)
            outputs.append(output_ND)
            mean_N2 = self._next_mean(output_ND)
        output_TND = torch.stack(outputs).float()
        return GlimpsePath(
            torch.stack(locations), torch.stack(means), self._logits(output_TND), self._baselines(output_TND)
        )

    def _glimpse(
        self, image_BCYX: Tensor, location_BM2: Tensor, state: Tensor | tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor | tuple[Tensor, Tensor], Tensor]:
        """Take one glimpse: return the state after it, and the part of the state that the other networks read."""
        glimpse_NCYX = self.sensor(image_BCYX, location_BM2)
        glimpse_ND = F.relu(self.what(glimpse_NCYX) + self.where(location_BM2.flatten(0, 1)))
        state = self.core(glimpse_ND, state)
        return state, state[0] if isinstance(state, tuple) else state

    def _next_mean(self, output_ND: Tensor) -> Tensor:
        """Return the mean of the next location. In the paper REINFORCE trains this network, not the core below it."""
        given_ND = output_ND if self.policy_reaches_core else output_ND.detach()
        return self.location(given_ND).float().tanh()

    def _logits(self, output_TND: Tensor) -> Tensor:
        return self.action(dropout(output_TND, self.dropout, self.training)).float()

    def _baselines(self, output_TND: Tensor) -> Tensor:
        """Return the reward expected before each location is drawn; 0 for the first, which isn't chosen."""
        expected_TN = self.baseline(output_TND[:-1].detach()).float().squeeze(-1)
        return F.pad(expected_TN, (0, 0, 1, 0))


@final
class _Flat(nn.Module):
    """Flattens [N, C, Y, X] to [N, Y X C], which needs no copy in channels-last memory."""

    def forward(self, x_NCYX: Tensor) -> Tensor:
        return x_NCYX.permute(0, 2, 3, 1).flatten(1)


def _two_layers(given: int, width: int, std: float | None = None) -> nn.Sequential:
    last = nn.Linear(HIDDEN, width)
    if std is not None:
        nn.init.normal_(last.weight, std=std)
    return nn.Sequential(nn.Linear(given, HIDDEN), nn.ReLU(), last)
