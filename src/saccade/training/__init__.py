"""Training: losses, schedules, checkpoints, and one loop."""
