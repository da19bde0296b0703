"""The four tasks that a model can learn, each a module with the same interface."""
