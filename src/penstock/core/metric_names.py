"""How the name of a metric is written for a person: in a chart's title, a table, a line of the terminal."""

from __future__ import annotations

from collections.abc import Mapping

_ACRONYMS = ("auc", "gauc", "ndcg")


def metric_title(name: str) -> str:
    """A metric's name in words; where there are several outputs, the output stands before it.

    >>> metric_title("auc"), metric_title("log_loss"), metric_title("click/ndcg@10")
    ('AUC', 'log loss', 'click/NDCG@10')
    """
    output, slash, metric = name.rpartition("/")
    word, at, rest = metric.partition("@")
    return f"{output}{slash}{word.upper() if word in _ACRONYMS else word.replace('_', ' ')}{at}{rest}"


def metric_heading(name: str) -> str:
    """The same above a chart or a figure: with a capital, but where the name of an output stands first.

    >>> metric_heading("log_loss"), metric_heading("click/log_loss")
    ('Log loss', 'click/log loss')
    """
    title = metric_title(name)
    return title if "/" in name else title[:1].upper() + title[1:]


def metric_words(metrics: Mapping[str, float]) -> str:
    """All metrics of a record in one line.

    >>> metric_words({"auc": 0.75, "log_loss": 0.5})
    'AUC 0.7500, log loss 0.5000'
    """
    return ", ".join(f"{metric_title(name)} {value:.4f}" for name, value in metrics.items())
