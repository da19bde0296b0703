"""The embedded bilingual grammar, English to French, on which the demonstration model is trained."""
