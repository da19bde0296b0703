"""Works through very much text in steps that a kill cannot undo: corpora and bulk translation."""
