"""Tasks: data, model, loss and metric, one file each."""
