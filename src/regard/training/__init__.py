"""From text to a trained model folder."""
