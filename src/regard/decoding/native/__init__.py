"""The CPU engine in C++, faster than PyTorch with the same results; built if a compiler is available at installation.

kernels.h kernels.cpp   the arithmetic, compiled once for each instruction set
model.h                 the weights, mapped into memory from the file that weight_packing.py writes
network.h               the forward pass, on several threads
search.h job.h          greedy search, beam search and sampling; sentences join when others leave
core.cpp                the functions that Python calls
compiled_library.py     calls them
"""
