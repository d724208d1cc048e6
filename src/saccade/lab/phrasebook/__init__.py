"""An endless phrasebook, English and French, generated from a small grammar."""
