"""Takes trained models to other engines, and proves that they answer the same there."""
