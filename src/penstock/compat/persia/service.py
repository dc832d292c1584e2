"""Where services of 2021 were to be found, as the environment says. Nothing here asks them: there are no servers."""

from __future__ import annotations

import os

__all__ = [
    "get_client_services",
    "get_embedding_worker_services",
    "get_middleware_services",
    "get_trainer_services",
]


def get_embedding_worker_services() -> list[str]:
    """The addresses of embedding workers, which `InferCtx` takes.

    >>> get_embedding_worker_services()
    ['embedding_worker:8887']
    """
    return _services("EMBEDDING_WORKER_SERVICE", "embedding_worker:8887")


def get_middleware_services() -> list[str]:
    """What embedding workers were called before.

    >>> get_middleware_services()
    ['middleware:8000']
    """
    return _services("MIDDLEWARE_SERVICE", "middleware:8000")


def get_trainer_services() -> list[str]:
    """The addresses of trainers.

    >>> get_trainer_services()
    ['trainer:8000']
    """
    return _services("TRAINER_SERVICE", "trainer:8000")


def get_client_services() -> list[str]:
    """What trainers were called before.

    >>> get_client_services()
    ['trainer:8000']
    """
    return get_trainer_services()


def _services(variable: str, default: str) -> list[str]:
    return [os.environ.get(variable) or default]
