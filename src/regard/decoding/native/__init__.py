"""The CPU engine in C++, faster than PyTorch with the same results; built if a compiler is available at installation.

arithmetic_kernels.h, .cpp   the arithmetic, compiled once for each instruction set
packed_model.h               the weights, read from the file that weight_packing.py writes
forward_pass.h               the forward pass, on several threads
sentence_queues.h            the sentences that wait and those that are finished
hypothesis_search.h          greedy search, beam search and sampling; sentences join when others leave
python_interface.cpp         the functions that Python calls
compiled_library.py          calls them
"""
