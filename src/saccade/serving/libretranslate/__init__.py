"""LibreTranslate's interface."""
