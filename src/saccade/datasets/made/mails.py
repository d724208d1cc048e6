"""Short e-mails and their subject lines, for summaries: names and numbers of a subject have to be copied from the mail.

Words and marks stand apart, so that a vocabulary of words can be learned; few of the names are in it.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

from saccade.datasets.made.names import draw_name
from saccade.files import replace_file

SIZES = {"train": 8000, "valid": 300, "test": 1000}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
THINGS = ("printers", "chairs", "tables", "lamps", "screens", "books", "shelves", "phones", "cables", "tents")
TOPICS = ("budget", "new office", "contract", "website", "summer party", "training", "report", "survey")
GREETINGS = ("Hi {} ,", "Dear {} ,", "Hello {} ,", "{} ,")
FILLERS = (
    "I hope you are well .",
    "Thank you for your last mail .",
    "It was good to talk to {} yesterday .",
    "Sorry that this comes so late .",
    "{} has asked me to write to you .",
    "Please tell {} as well .",
    "Let me know if you have any questions .",
    "I am out of the office until {} .",
)
CLOSINGS = ("Best , {}", "Thanks , {}", "Kind regards , {}", "Yours , {}")


class MailTopic(NamedTuple):
    """A topic of mails: sentences about it, and its subject line."""

    sentences: tuple[str, ...]
    subject: str


EVENTS = (
    MailTopic(
        (
            "the meeting with {name} about the {topic} is now on {day} at {hour} .",
            "we have to move the meeting about the {topic} : {name} can only come on {day} , at {hour} .",
            "{name} and I would like to meet you on {day} at {hour} to talk about the {topic} .",
        ),
        "Meeting with {name} about the {topic} : {day} , {hour}",
    ),
    MailTopic(
        (
            "order {number} of {count} {thing} for {place} leaves the warehouse on {day} .",
            "the {count} {thing} that {place} has ordered ( {number} ) will be sent on {day} .",
            "on {day} we send {count} {thing} to {place} , the number of the order is {number} .",
        ),
        "Order {number} : {count} {thing} to {place} on {day}",
    ),
    MailTopic(
        (
            "invoice {number} from {name} has not been paid yet , it is {amount} euros .",
            "{name} is still waiting for {amount} euros , the invoice is {number} .",
            "could you please pay the {amount} euros to {name} ? It is invoice {number} .",
        ),
        "Invoice {number} from {name} : {amount} euros open",
    ),
    MailTopic(
        (
            "I travel to {place} on {day} and come back with {name} .",
            "on {day} {name} and I take the train to {place} .",
            "{name} has booked us a room in {place} from {day} on .",
        ),
        "Trip to {place} with {name} on {day}",
    ),
)


def make_mails(folder: Path) -> None:
    """Write train.jsonl, valid.jsonl and test.jsonl; no mail is in two of them."""
    dice, seen = random.Random(1), set[str]()
    for name, size in SIZES.items():
        lines = list[str]()
        while len(lines) < size:
            mail, subject = draw_mail(dice)
            if mail not in seen:
                seen.add(mail)
                lines.append(json.dumps({"mail": mail, "subject": subject}) + "\n")
        with replace_file(folder / f"{name}.jsonl") as draft:
            draft.write_text("".join(lines), "utf-8")


def draw_mail(dice: random.Random) -> tuple[str, str]:
    """Draw a mail about one event, among sentences that matter less, and its subject."""
    event = dice.choice(EVENTS)
    parts = {
        "name": draw_name(dice),
        "place": draw_name(dice),
        "day": dice.choice(DAYS),
        "topic": dice.choice(TOPICS),
        "thing": dice.choice(THINGS),
        "hour": f"{dice.randint(8, 18)}:{dice.choice(('00', '15', '30', '45'))}",
        "number": str(dice.randint(10_000, 99_999)),
        "count": str(dice.randint(2, 30)),
        "amount": str(dice.randint(101, 9_999)),
    }
    fillers = [_fill(dice, one) for one in dice.sample(FILLERS, dice.randint(2, 4))]
    told = dice.choice(event.sentences).format(**parts)
    fillers.insert(dice.randint(0, len(fillers)), f"{told[0].upper()}{told[1:]}")
    greeting, closing = (dice.choice(some).format(draw_name(dice)) for some in (GREETINGS, CLOSINGS))
    return " ".join([greeting, *fillers, closing]), event.subject.format(**parts)


def _fill(dice: random.Random, filler: str) -> str:
    return filler.format(dice.choice(DAYS) if filler.startswith("I am out") else draw_name(dice))
