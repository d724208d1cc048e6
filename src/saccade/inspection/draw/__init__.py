"""Pictures, in files and in the terminal."""
