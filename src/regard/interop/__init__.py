"""Imports models from other programs, and exports models to their formats."""
