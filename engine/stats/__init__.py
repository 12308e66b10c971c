"""Numbers about numbers: rankings, overlaps, intervals, verdicts. No torch here."""
