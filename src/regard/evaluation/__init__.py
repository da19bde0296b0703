"""How good translations are: scores with their signatures, and the comparison of two systems."""
