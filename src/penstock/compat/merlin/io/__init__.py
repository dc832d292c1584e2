"""`merlin.io`: data sets."""
