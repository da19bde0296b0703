"""The native engine: C++ for the CPU, with the same results as PyTorch but faster.

It is built during installation if a C++ compiler is available.

arithmetic_kernels.h, .cpp   arithmetic, compiled once for each instruction set
packed_model.h               weights, read from the file that weight_packing.py writes
forward_pass.h               forward pass, on several threads
sentence_queues.h            queues of waiting and finished sentences
hypothesis_search.h          greedy search, beam search and sampling; sentences join when others leave
loaded_model.h               check of a request, and results of a search as arrays
threads.h                    locks and waiting, which WebAssembly does without
javascript_interface.cpp     functions that JavaScript calls in WebAssembly; browser/ has the compiled engine
python_interface.cpp         functions that Python calls
compiled_library.py          calls these functions
"""
