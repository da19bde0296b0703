"""Search for outputs with a trained model, and the objects that turn text into text, labels or vectors."""
