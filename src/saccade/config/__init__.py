"""Configuration: a typed schema, and loading with overrides."""
