"""Names that nobody has: so many can be made that those of a test set are not in any training text."""

from __future__ import annotations

import random

BEGINNINGS = ("Ba", "Bre", "Da", "Fe", "Go", "Hi", "Ju", "Ka", "Kla", "Lo", "Me", "Ni", "Po", "Ru", "Se", "Ste", "Zu")
MIDDLES = ("la", "mi", "ne", "ro", "su", "ta", "ve", "ko", "di", "ba", "fu", "gi", "lu", "me", "no", "ri", "sa", "vo")
ENDINGS = ("nen", "mar", "lo", "ta", "vik", "ras", "del", "na", "ko", "sin", "bert", "lia", "dor", "mus", "rik", "ven")


def draw_name(dice: random.Random) -> str:
    """Draw one of 1.7 million names."""
    middle = "".join(dice.choice(MIDDLES) for _ in range(dice.randint(2, 3)))
    return f"{dice.choice(BEGINNINGS)}{middle}{dice.choice(ENDINGS)}"


def draw_names(dice: random.Random, count: int) -> list[str]:
    """Draw `count` names, no two the same."""
    found = dict[str, None]()
    while len(found) < count:
        found[draw_name(dice)] = None
    return list(found)
