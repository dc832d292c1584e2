"""PERSIA's names over Penstock's own parts: the 2021 ones and those of its last release.

Data loader and trainer run in one process, in two (`penstock persia-launcher`), or with the embeddings on Ray; there
are no servers to start. See docs/migrate-persia.md.

>>> from penstock.compat.persia.embedding import Adagrad
>>> type(Adagrad(lr=0.1).to_native()).__name__
'DecayedAdagrad'
"""

__version__ = "0.1.0+penstock"  # the release whose names these are
