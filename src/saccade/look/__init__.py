"""`saccade look`: what people ask of a trained run beside its answers."""
