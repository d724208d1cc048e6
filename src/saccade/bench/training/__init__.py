"""Training beside other toolkits."""
