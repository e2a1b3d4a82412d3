"""From a spec to a run folder, and from run folders to reports.

Specs and how they are checked, built and executed; run folders, their records and checkpoints; resuming, evaluating and
exporting a run; `design/` (experiments of many runs), `sweeping/` (running them), `results/` (their tables), `page/`
(reports in HTML) and `tracking/` (trackers).

May import every other folder but `cli`.
"""
