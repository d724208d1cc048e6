"""HTML through a translator."""
