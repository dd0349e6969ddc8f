"""The pages, and the module that makes two of them from the code."""
