"""HTML by chance through the server's translation, compared before and after by browsers' parsers."""
