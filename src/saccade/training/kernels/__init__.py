"""The loss where it is made of logits."""
