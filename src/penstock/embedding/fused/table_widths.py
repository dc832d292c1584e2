"""How wide tables on a device are, and what they give side by side."""

from __future__ import annotations

from penstock.embedding.dims import plain_dim


class TableWidths:
    """Tables of one dim, or of several."""

    _dims: dict[str, int]
    align: int

    @property
    def dims(self) -> dict[str, int]:
        """The width of each table's embeddings."""
        return dict(self._dims)

    @property
    def is_one_dim(self) -> bool:
        """Whether all tables are as wide."""
        return len(set(self._dims.values())) == 1

    @property
    def dim(self) -> int | dict[str, int]:
        """The width of embeddings: one number where it is the same for all tables, else by table."""
        return plain_dim(self._dims)

    @property
    def embedded_width(self) -> int:
        """Columns that all embeddings take side by side."""
        return sum(self._dims.values())

    def width(self, num_continuous: int = 0) -> int:
        """Columns of the output of "concat" with `num_continuous` numbers beside the embeddings.

        Args:
            num_continuous: how many.

        Returns:
            The width.
        """
        return -(-(self.embedded_width + num_continuous) // self.align) * self.align
