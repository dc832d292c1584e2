"""Merlin's names (`merlin.io`, `merlin.schema`, `merlin.dag`, `merlin.dataloader`, …) over Penstock."""

from penstock.compat.missing import module_getattr

__all__: list[str] = []

__getattr__ = module_getattr(__name__)
