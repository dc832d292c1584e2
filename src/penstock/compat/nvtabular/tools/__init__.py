"""`nvtabular.tools`: data by description, and the description of data."""
