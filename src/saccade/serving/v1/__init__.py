"""The routes of /v1: alignment, confidence, attention; labels, tags, captions, glimpses."""
