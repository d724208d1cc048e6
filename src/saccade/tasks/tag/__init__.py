"""The task of tagging: from a text to a tag for each word."""
