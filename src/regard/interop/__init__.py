"""Models in other programs' forms: foreign names live here and nowhere else."""
