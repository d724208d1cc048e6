"""Sound: log-mel frames of sound files."""
