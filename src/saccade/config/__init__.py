"""Configuration: a typed schema, loading with overrides, building objects."""
