"""Labelled examples: control sets, labelled samples, selection (Algorithm 2), theory, and the folder on disk."""
