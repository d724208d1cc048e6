"""A tutorial: from made data to a trained model, its answers, its scores and its attention. It takes half a minute.

Run it (`python tutorial.py`), or cell by cell in an editor that knows `# %%`. It writes into data/ and runs/ here.
"""

# %% Data: reviews of hotels that praise, blame or do both. `saccade data reviews` makes the same in a terminal.
from pathlib import Path

import saccade
from saccade.datasets.made.reviews import make_reviews

make_reviews(Path("data/reviews"))
print(Path("data/reviews/train.tsv").read_text("utf-8")[:300])

# %% Training. A recipe is a config that comes with the package; a path, a mapping or a config object do as well.
# A callback sees every step and every validation, and may stop the training.
losses: list[float] = []


def watch(event: saccade.TrainingEvent) -> None:
    """Collect the losses; stop when 99 of 100 held-out reviews are judged rightly."""
    if event.kind == "step":
        losses.append(event.loss)
    else:
        print(f"step {event.step}: accuracy {event.figures['valid_accuracy']:.1f}")
        if event.figures["valid_accuracy"] >= 99:
            event.stop()


run = saccade.train(
    "reviews",
    {"training.validate_every": 50, "model.width": 32},
    folder="runs/tutorial",
    callbacks=[watch],
    quiet=True,
)
print(f"{run.step} steps; the loss fell from {losses[0]:.2f} to {losses[-1]:.2f}; the model is in {run.folder}")

# %% Answers. `load` gives a predictor; the options of `predict` have the names of the command's.
model = saccade.load(run)
reviews = [
    "the bed was clean . nobody could call the waiter rude .",
    "the soup was anything but fresh . the view is gloomy .",
    "the porter was friendly . the street seemed never quiet .",
]
results = model.predict(reviews, attention=True)
for review, result in zip(reviews, results, strict=True):
    answer = result.plain()  # what `saccade predict --json` prints
    print(f"{answer['label']:>8} {answer['probability']:.3f}  {review}")

# %% Scores, on the test set that the recipe names.
found = saccade.evaluate(run)
print("\n".join(found.lines))
assert found.scores["accuracy"] > 90

# %% Attention: which words did it read? A picture, and the weights themselves.
results[0].draw(Path("attention.png"))
(seen,) = model.look(reviews[:1])
words, weights = seen.sides["source"].words, seen.map("pooling").weight_LHTS[0, 0, 0]
for weight, word in sorted(zip(weights.tolist(), words, strict=True), reverse=True)[:4]:
    print(f"{weight:.2f} {word}")

# %% The same, as commands:
#
#   saccade data reviews
#   saccade train reviews --run runs/tutorial
#   saccade evaluate runs/tutorial
#   saccade look runs/tutorial "the soup was anything but fresh ." --draw look.html
#   saccade serve runs/tutorial
