"""What every model shares: the columns it reads, one forward contract, and a description it can be rebuilt from."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from penstock.core.errors import ColumnNotFoundError, DataError, SchemaError
from penstock.core.params import Constraint, Int, ListOf, OneOf, PerColumn, Real, check_all
from penstock.core.schema import Role, Schema
from penstock.embedding.dims import DIM, dims_of
from penstock.nn.dense import Linear, Perceptron
from penstock.nn.linear import SHARE, LinearPart
from penstock.nn.projection import Projection

Embeddings = Mapping[str, Tensor] | Tensor
WIDTHS = ListOf(Int(min=1))
DROPOUT = Real(min=0, max=1)
FIRST = "first"  # of what `linear` may be: the network says nothing yet when training begins
LINEAR = OneOf((False, True, FIRST))


class Model(nn.Module):
    """A model over a schema: `forward(continuous, embeddings, masks=None) → logits (B,)`.

    `continuous` is `(B, n)`, the continuous columns in the schema's order. `embeddings` is `{name: (B, dim)}` or one
    `(B, columns, dim)` tensor in the schema's order of categorical columns; it does not matter where they come from. A
    sequence `(B, length, dim)`, as raw slots of a store give it, is summed over its length (padding is zeros).

    Columns can have embeddings of several dims (`dims`). They are then one tensor where they lie side by side, `(B, sum
    of dims)`; `embedding_dim` is the largest, and `of_one_dim` brings all to that.

    Args:
        schema: whose categorical and continuous columns the model reads.
        embedding_dim: the width of embeddings; or `{column: width}`.
        arguments: of the constructor, as `locals()` has them; what `config` gives back. With `linear` among them the
            model has a `LinearPart`.

    Raises:
        SchemaError: the schema has no such columns.
    """

    constraints: Mapping[str, Constraint] = {}
    before: Mapping[str, Any] = {}  # arguments that descriptions of older models lack, with what those models do
    # Whether embeddings may start well away from zero: all that is made of them is weighed before it is a logit.
    starts_apart: ClassVar[bool] = False

    def __init__(self, schema: Schema, embedding_dim: int | Mapping[str, int], arguments: Mapping[str, Any]) -> None:
        super().__init__()
        given = {k: v for k, v in arguments.items() if k not in ("self", "schema", "__class__")}
        check_all(given, {"embedding_dim": PerColumn(DIM), **self.constraints}, type(self).__name__)
        self.schema = schema.select(roles=[Role.CATEGORICAL, Role.CONTINUOUS])
        self.categorical = self.schema.select(roles=Role.CATEGORICAL).names
        self.continuous = self.schema.select(roles=Role.CONTINUOUS).names
        self.dims = dims_of(embedding_dim, self.categorical, f"{type(self).__name__}.embedding_dim", "columns")
        several = self.dims.values() if isinstance(embedding_dim, Mapping) else [embedding_dim]
        self.embedding_dim = max(several, default=1)
        self.is_one_dim = len(set(self.dims.values())) <= 1
        self.projection: Projection | None = None
        self._arguments = given
        self._last: list[nn.Module] = []  # layers that give the network's logit; in a list, as they have names already
        self.linear: LinearPart | None = None
        if given.get("linear") in (True, FIRST):
            share = SHARE if given["linear"] == FIRST else 1.0
            self.linear = LinearPart(len(self.continuous), list(self.dims.values()), share)
        if not self.categorical and not self.continuous:
            raise SchemaError(
                f"{type(self).__name__} needs columns with the role categorical or continuous, and the schema has "
                f"none; give them with schema.with_roles(categorical=[…], continuous=[…]). Columns: {schema.names}"
            )

    def config(self) -> dict[str, Any]:
        """Plain data from which `penstock.nn.from_config` builds the same model, without its weights.

        Returns:
            The class, the schema and the arguments.
        """
        arguments = {k: list(v) if isinstance(v, tuple) else v for k, v in self._arguments.items()}
        if isinstance(arguments.get("embedding_dim"), Mapping):
            arguments["embedding_dim"] = dict(self.dims)
        about = {"class": type(self).__name__, "schema": self.schema.to_dict(), "arguments": arguments}
        return about if (place := _place_of(type(self))) is None else {**about, "reference": place}

    @property
    def embedded_width(self) -> int:
        """Columns that all embeddings take side by side."""
        return sum(self.dims.values())

    def project(self) -> None:
        """Have what `of_one_dim` needs; for the constructors of models that multiply embeddings with one another."""
        if not self.is_one_dim:
            self.projection = Projection(list(self.dims.values()), self.embedding_dim)

    def of_one_dim(self, found: Tensor) -> Tensor:
        """Embeddings as `(B, columns, embedding_dim)`, those of other dims projected.

        Args:
            found: what `stacked` gave.

        Returns:
            The tensor; where dims differ, columns of a dim come together.
        """
        projected: Tensor = found if self.projection is None else self.projection(found)
        return projected

    def stacked(self, embeddings: Embeddings) -> Tensor:
        """The embeddings as `(B, columns, dim)`, or side by side where dims differ; checked.

        Args:
            embeddings: by name, or in one tensor.

        Returns:
            The tensor.

        Raises:
            ColumnNotFoundError: a column has none.
            DataError: they have another shape.
        """
        if isinstance(embeddings, Tensor):
            found = embeddings
        else:
            missing = [name for name in self.categorical if name not in embeddings]
            if missing:
                raise ColumnNotFoundError(missing[0], embeddings, "the embeddings given to the model")
            parts = [embeddings[name] for name in self.categorical]
            parts = [part.sum(1) if part.dim() == 3 else part for part in parts]
            for name, part in zip(self.categorical, parts, strict=True):
                if part.dim() != 2 or part.shape[1] != self.dims[name]:
                    raise DataError(
                        f"the embeddings of {name!r} must be (B, {self.dims[name]}), got {tuple(part.shape)}; "
                        f"the dim of the store's slot and embedding_dim of the model must agree"
                    )
            found = torch.stack(parts, 1) if self.is_one_dim else torch.cat(parts, 1)
        wanted = (len(self.categorical), self.embedding_dim) if self.is_one_dim else (self.embedded_width,)
        if found.shape[1:] != wanted:
            raise DataError(f"embeddings must be (B, {', '.join(map(str, wanted))}), got {tuple(found.shape)}")
        return found

    def joined(self, continuous: Tensor, embeddings: Embeddings) -> tuple[Tensor, Tensor | None]:
        """`continuous` checked, and the embeddings `stacked` (None where the schema has no categorical column).

        Args:
            continuous: the continuous columns.
            embeddings: by name, or in one tensor.

        Returns:
            Both.

        Raises:
            DataError: one has another shape.
        """
        if continuous.dim() != 2 or continuous.shape[1] != len(self.continuous):
            raise DataError(f"continuous must be (B, {len(self.continuous)}), got {tuple(continuous.shape)}")
        return continuous, self.stacked(embeddings) if self.categorical else None

    def begin_with_linear(self, last: nn.Module) -> None:
        """With `linear="first"`, let the network begin at zero; for the end of a constructor.

        Args:
            last: the layer that gives the network's logit.
        """
        self._last.append(last)
        if self._arguments.get("linear") == FIRST:
            for parameter in last.parameters():
                nn.init.zeros_(parameter)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """A block in which the network says nothing, and the linear part is alone; without one, nothing changes.

        Returns:
            A block.
        """
        parameters = [] if self.linear is None else [own for last in self._last for own in last.parameters()]
        kept = [own.detach().clone() for own in parameters]
        with torch.no_grad():
            for own in parameters:
                own.zero_()
        try:
            yield
        finally:
            with torch.no_grad():
                for own, before in zip(parameters, kept, strict=True):
                    own.copy_(before)

    def seen(self, stacked: Tensor | None) -> Tensor | None:
        """What the network sees of the embeddings: all but the weights of the linear part, where there is one.

        Args:
            stacked: the embeddings, as `joined` gave them; None where there are none.

        Returns:
            The same shape.
        """
        return stacked if self.linear is None or stacked is None else self.linear.rest(stacked)

    def plus_linear(self, logits: Tensor, continuous: Tensor, stacked: Tensor | None) -> Tensor:
        """The network's logits and those of the linear part, where there is one.

        Args:
            logits: of the network.
            continuous: the continuous columns.
            stacked: the embeddings, as `joined` gave them.

        Returns:
            Logits, `(B,)`.
        """
        if self.linear is None:
            return logits
        if stacked is not None and not self.is_one_dim:  # the first number of each column's
            stacked = torch.stack([part[:, :1] for part in stacked.split(list(self.dims.values()), 1)], 1)
        beside: Tensor = self.linear(continuous, stacked)
        return logits + beside


def _place_of(model: type[Model]) -> str | None:
    """Where a class of one's own is imported from; None where it is Penstock's, or cannot be."""
    module, name = model.__module__, model.__qualname__
    is_own = module.partition(".")[0] == __name__.partition(".")[0]
    return None if is_own or module == "__main__" or "<locals>" in name else f"{module}:{name}"


def flat(continuous: Tensor, stacked: Tensor | None) -> Tensor:
    """Everything side by side: `(B, n + sum of dims)`."""
    return continuous if stacked is None else torch.cat([continuous, stacked.flatten(1)], 1)


def perceptron(inputs: int, hidden: Sequence[int], dropout: float = 0.0, outputs: int | None = None) -> Perceptron:
    """Linear layers with ReLU between them; with `outputs` a last linear layer without.

    >>> perceptron(4, (8,), outputs=1)(torch.zeros(2, 4)).shape
    torch.Size([2, 1])
    """
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [Linear(inputs, width), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        inputs = width
    if outputs is not None:
        layers.append(Linear(inputs, outputs))
    return Perceptron(*layers)


def constructor_names(model: type[nn.Module]) -> list[str]:
    """The names a constructor takes, besides the schema."""
    return [name for name in inspect.signature(model.__init__).parameters if name not in ("self", "schema")]
