"""Equal trainings: whether one config and one seed give one model file, alone and beside a busy process."""
