"""Models whose attention over the source is (a part of) what they write: copies, and pointer networks."""
