"""Pictures from files with classes or captions, and painted ones."""
