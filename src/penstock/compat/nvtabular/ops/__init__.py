"""`nvtabular.ops`: Penstock's operators under NVTabular's names and arguments."""
