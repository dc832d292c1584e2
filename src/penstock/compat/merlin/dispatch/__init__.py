"""Functions chosen by the type of their first argument."""
