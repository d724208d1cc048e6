"""Does the penalty on A A^T spread the hops of structured self-attention? Overlap and accuracy by its weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention.structured import StructuredSelfAttention
from saccade.lab.experiment import Check, Experiment, Measurements, Panel
from saccade.lab.fit import fit

KINDS, VARIANTS, NOISE = 4, 4, 32  # of words that matter, of each of these, and of words that don't
LENGTH, WIDTH, HIDDEN, HOPS = 20, 32, 32, 4
STEPS, FULL_STEPS, BATCH, RATE, TESTED = 400, 4000, 64, 0.005, 512
PENALTIES = (0.0, 0.01, 0.1, 1.0)


class HopReader(nn.Module):
    """Embeds words, sums them up in hops, and tells the variant of each kind of word that matters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(KINDS * VARIANTS + NOISE, WIDTH)
        self.attention = StructuredSelfAttention(WIDTH, hidden_width=HIDDEN, num_hops=HOPS)
        self.output = nn.Linear(HOPS * WIDTH, KINDS * VARIANTS)

    def forward(self, ids_BS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits [B, kinds, variants], the weights [B, r, S], and the penalty."""
        hops = self.attention(self.embedding(ids_BS))
        return self.output(hops.output.flatten(1)).unflatten(1, (KINDS, VARIANTS)), hops.weights, hops.penalty.mean()


def draw(num_rows: int) -> tuple[Tensor, Tensor]:
    """Draw sentences with one word of each kind at a random place, and the variants of these words."""
    ids_BS = torch.randint(KINDS * VARIANTS, KINDS * VARIANTS + NOISE, (num_rows, LENGTH))
    variant_BK = torch.randint(VARIANTS, (num_rows, KINDS))
    place_BK = torch.rand(num_rows, LENGTH).argsort(1)[:, :KINDS]
    return ids_BS.scatter(1, place_BK, torch.arange(KINDS) * VARIANTS + variant_BK), variant_BK


def overlap(weight_BRS: Tensor) -> float:
    """Return the mean cosine of two hops' weights."""
    unit_BRS = F.normalize(weight_BRS, dim=-1)
    pairs = HOPS * (HOPS - 1)
    return float(((unit_BRS @ unit_BRS.mT).sum((1, 2)) - HOPS).mean() / pairs)


def learn(penalty: float, seed: int, num_steps: int) -> HopReader:
    """Learn with a weight of the penalty."""
    torch.manual_seed(seed)
    reader = HopReader()

    def draw_loss() -> Tensor:
        ids_BS, variant_BK = draw(BATCH)
        logit_BKV, _, apart = reader(ids_BS)
        return F.cross_entropy(logit_BKV.flatten(0, 1), variant_BK.flatten()) + penalty * apart

    fit(reader.parameters(), draw_loss, num_steps=num_steps, rate=RATE, falls=True)
    return reader


@torch.no_grad()
def train(penalty: float, seed: int, num_steps: int) -> tuple[float, float]:
    """Learn; return how much the hops overlap, and the share of right variants."""
    with torch.enable_grad():
        reader = learn(penalty, seed, num_steps)
    ids_BS, variant_BK = draw(TESTED)
    logit_BKV, weight_BRS, _ = reader(ids_BS)
    return overlap(weight_BRS), float((logit_BKV.argmax(-1) == variant_BK).float().mean())


def measure(seed: int, is_full: bool) -> Measurements:
    """Measure overlap and accuracy for each weight of the penalty."""
    found = {penalty: train(penalty, seed, FULL_STEPS if is_full else STEPS) for penalty in PENALTIES}
    overlaps = [(number, found[penalty][0]) for number, penalty in enumerate(PENALTIES)]
    shares = [(number, found[penalty][1]) for number, penalty in enumerate(PENALTIES)]
    numbers = {
        "without": found[0.0][0],
        "spread": found[0.0][0] - found[0.1][0],
        "most": found[1.0][0],
        "cost": found[0.1][1] - found[0.0][1],
    }
    return Measurements({"overlap": {"4 hops": overlaps}, "right": {"4 hops": shares}}, numbers)


WEIGHTS = ", ".join(f"{penalty:g}" for penalty in PENALTIES)
PENALTY = Experiment(
    name="penalty",
    question="Does the penalty on A Aᵀ spread the hops of structured self-attention?",
    claim="Without a penalty the hops of structured self-attention look at the same words; ||A Aᵀ - I||² makes each "
    "look elsewhere, and the summary better.",
    source="Lin 2017, section 2.2 and figure 4",
    setup=f"Sentences of {LENGTH} words, with one word of each of {KINDS} kinds somewhere among noise; the variant of "
    f"each, of {VARIANTS}, is told from {HOPS} hops. {STEPS} steps (--full: {FULL_STEPS}). Overlap is the mean cosine "
    f"of two hops' weights. Weights of the penalty: {WEIGHTS} (places 0 to 3 of the picture).",
    prediction="Without the penalty hops overlap by at least 0.3; with a weight of 0.1 by at least 0.2 less, with 1 by "
    "at most 0.1; and at 0.1 no fewer variants are right than without.",
    checks=(
        Check("without", "without a penalty the hops overlap", least=0.3),
        Check("spread", "with a weight of 0.1 they overlap less, by", least=0.2),
        Check("most", "with a weight of 1 hardly", most=0.1),
        Check("cost", "the share of right variants changes, at 0.1, by", least=-0.01),
    ),
    panels={
        "overlap": Panel("Overlap of the hops", "weight of the penalty (0 to 3)", "mean cosine"),
        "right": Panel("Right variants", "weight of the penalty (0 to 3)", "share"),
    },
    measure=measure,
    minutes="half a minute",
)
