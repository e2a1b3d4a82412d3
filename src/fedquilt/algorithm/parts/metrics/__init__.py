"""Metrics for a run's `metrics`: one file each, registered by name. All but perplexity are shares of predictions."""
