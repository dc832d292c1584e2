"""Workflows laid out for NVIDIA's Triton server; Penstock's own service is `penstock serve`."""
