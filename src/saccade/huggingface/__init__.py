"""Models that Hugging Face's library has loaded, looked into as runs are."""
