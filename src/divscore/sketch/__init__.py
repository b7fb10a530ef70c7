"""Vectors to sketches: scores, the one pass over the data, one or many collections, and the file on disk."""
