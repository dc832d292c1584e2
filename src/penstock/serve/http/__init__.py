"""Serving over HTTP: a saved model behind `POST /predict`.

>>> __all__
['HttpServer', 'Limits', 'Service']
"""

from penstock.serve.http.app import Service
from penstock.serve.http.limits import Limits
from penstock.serve.http.server import HttpServer

__all__ = ["HttpServer", "Limits", "Service"]
