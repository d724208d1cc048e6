"""HTML pages that open offline: reports and the viewer of insights."""
