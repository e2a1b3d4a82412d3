"""What is shown of runs: figures, the page of a report, and the server that keeps the page up to date."""
