"""The training tasks, which share one interface: translation, writing, filling and classification."""
