"""Sketches to estimates: one file a method, intervals, and the checks that travel with them."""
