"""Merlin's names (`merlin.io`, `merlin.schema`, `merlin.dag`, `merlin.dataloader`, …) over Penstock."""
