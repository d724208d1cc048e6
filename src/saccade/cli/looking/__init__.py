"""What `saccade look` does: shows, aligns, tests."""
