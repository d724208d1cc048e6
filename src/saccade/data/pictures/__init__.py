"""Pictures, captions, and pictures that the package paints."""
