"""Serve trained runs over HTTP: batched requests, LibreTranslate's interface, /v1, and a page."""
