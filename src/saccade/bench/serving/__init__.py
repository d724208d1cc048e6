"""A served model under load."""
