"""Sound: log-mel frames of WAV files."""
