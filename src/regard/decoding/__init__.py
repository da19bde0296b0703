"""From a model to text: search over the next token, and the engine that feeds it."""
