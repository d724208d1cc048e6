"""Experiments on small translators of the phrasebook, which is English and French with one right translation each."""
