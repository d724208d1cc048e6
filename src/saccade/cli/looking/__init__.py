"""The parts of `saccade look`: showing, aligning, testing."""
