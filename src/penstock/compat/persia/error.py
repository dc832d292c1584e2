"""The 2021 error classes; what goes wrong in Penstock is a `PenstockError`, and these are such."""

from penstock.core.errors import PenstockError

__all__ = ["FileNotFoundException", "PersiaRuntimeException"]


class FileNotFoundException(PenstockError):
    """A file that was named is not there.

    >>> issubclass(FileNotFoundException, PenstockError)
    True
    """


class PersiaRuntimeException(PenstockError):
    """Something was used before it was set up.

    >>> issubclass(PersiaRuntimeException, PenstockError)
    True
    """
