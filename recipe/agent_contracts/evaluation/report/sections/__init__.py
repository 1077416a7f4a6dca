"""The sections of a report, one module an area. Each takes the runs (one, or two side by side) and gives its blocks."""
