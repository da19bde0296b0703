"""Scores models: translations by BLEU, chrF and TER, labels by accuracy and F1; compares two systems."""
