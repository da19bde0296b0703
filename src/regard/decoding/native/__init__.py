"""The CPU engine in C++: the same results as PyTorch's, faster; there where a compiler was when Regard was installed.

kernels.h kernels.cpp   the arithmetic, compiled once for each set of instructions
model.h                 weights, mapped into memory from the file that packing.py writes
network.h               the forward pass, by several threads
search.h                greedy, beam and drawn; sentences join when others leave
core.cpp                what Python calls
library.py              calls it
"""
