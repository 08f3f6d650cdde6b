"""Golden values: read, compared, judged, summarized, collected and plotted."""
