"""A model in a browser: the tokenizer in JavaScript, with the tokens of Python, for pages that need no server."""
