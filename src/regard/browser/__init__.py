"""Runs models in a browser without a server: the tokenizer, the engine in WebAssembly, and the page of a translator."""
