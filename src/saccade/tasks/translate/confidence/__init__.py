"""How sure a translator may be of its words: fitted on the validation set, and judged on the test set."""
