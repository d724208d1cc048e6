"""The claims of the lectures, an experiment each."""
