"""PERSIA's loggers: the standard library's, with its colours on a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Any

__all__ = [
    "COLOR_FORMATTER",
    "DEFAULT_LOGGER_NAME",
    "FILE_LOG_FORMAT",
    "FORMATTER",
    "LOG_COLOR",
    "STREAM_LOG_FORMAT",
    "get_default_logger",
    "get_logger",
    "levelFilter",
    "setLogger",
    "set_default_logger",
]

FILE_LOG_FORMAT = "%(asctime)s %(levelname)-8s [%(filename)s:%(lineno)d] %(message)s"
STREAM_LOG_FORMAT = FILE_LOG_FORMAT
DEFAULT_LOGGER_NAME = "log"
LOG_COLOR = {"DEBUG": "cyan", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_CODES = {"cyan": 36, "green": 32, "yellow": 33, "red": 31}


class _Coloured(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        colour = _CODES.get(LOG_COLOR.get(record.levelname, ""))
        return f"\x1b[{colour}m{line}\x1b[0m" if colour and sys.stderr.isatty() else line


FORMATTER = logging.Formatter(FILE_LOG_FORMAT)
COLOR_FORMATTER = _Coloured(STREAM_LOG_FORMAT)
_default_logger: logging.Logger | None = None


class levelFilter(logging.Filter):
    """Lets records above a level through.

    >>> levelFilter(logging.INFO).filter(logging.LogRecord("a", logging.INFO, "", 1, "", (), None))
    False
    """

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > self.level


def setLogger(
    name: str | None,
    log_level: int = logging.DEBUG,
    log_filename: str = "train.log",
    enable_file_logger: bool = False,
    err_redirect_filepath: str = "error.log",
    enable_err_redirect: bool = False,
    err_redirect_level: int = logging.INFO,
) -> logging.Logger:
    """A logger that writes to standard error, and to files where asked to. Calling it again adds no second handler.

    >>> setLogger("doc").handlers == setLogger("doc").handlers
    True
    """
    logger = logging.getLogger(name)
    logger.setLevel(log_level)
    if not any(handler.formatter is COLOR_FORMATTER for handler in logger.handlers):
        stream = logging.StreamHandler()
        stream.setFormatter(COLOR_FORMATTER)
        logger.addHandler(stream)
    if enable_file_logger:
        _add_file(logger, log_filename)
    if enable_err_redirect:
        _add_file(logger, err_redirect_filepath).addFilter(levelFilter(err_redirect_level))
    return logger


def _add_file(logger: logging.Logger, path: str) -> logging.Handler:
    handler = logging.FileHandler(path, mode="a")
    handler.setFormatter(FORMATTER)
    logger.addHandler(handler)
    return handler


def get_logger(name: str) -> logging.Logger:
    """A logger by name, as it is.

    >>> get_logger("doc").name
    'doc'
    """
    return logging.getLogger(name)


def set_default_logger(name: str | None = None, **kwargs: Any) -> logging.Logger:
    """Make the default logger, unless there is one.

    >>> set_default_logger("log") is get_default_logger()
    True
    """
    global _default_logger
    if _default_logger is None:
        _default_logger = setLogger(name, **kwargs)
    return _default_logger


def get_default_logger(name: str | None = None, **kwargs: Any) -> logging.Logger:
    """The default logger, made at the first call under the name given there.

    >>> get_default_logger() is get_default_logger("later")
    True
    """
    return set_default_logger(name or DEFAULT_LOGGER_NAME, **kwargs)
