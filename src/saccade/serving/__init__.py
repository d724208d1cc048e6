"""Trained runs behind HTTP: requests batched together, LibreTranslate's interface, and /v1 for what goes beyond it."""
