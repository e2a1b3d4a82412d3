"""From a spec to a run folder, and from run folders to reports."""
