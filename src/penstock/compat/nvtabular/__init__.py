"""NVTabular's names over Penstock: `import nvtabular as nvt` after `penstock.compat.activate()`."""

__version__ = "23.8.0"  # the last release whose names are here; code that looks at it takes the newest branch
