"""Works through very much in steps that a kill cannot undo: corpora, synthetic pairs, bulk translation."""
