"""Models served over HTTP, in the interfaces that clients already speak."""
