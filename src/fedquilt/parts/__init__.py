"""What fills an algorithm's parts: selection, sampling, losses, descent, weights, reductions."""
