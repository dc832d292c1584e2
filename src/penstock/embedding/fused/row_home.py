"""Where the rows of fused tables are in the weight on the device: each at its place, or wherever a home puts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.embedding.fused.ids import Ids

if TYPE_CHECKING:
    from penstock.embedding.fused.table_group import TableGroup


class RowHome:
    """Every row of a group of tables on the device, table behind table: what `FusedEmbeddings` have.

    Other homes (`CachedRows`, `RowsAndZeros`) say where rows are for each batch. The group asks in this order:
    `locate` before its kernel looks a batch up, `looked_up` behind it, `before_step` before the update.
    """

    joint = False  # whether located ids are rows of the weight, which the kernels then read as one table

    def rows_on_device(self, total: int) -> int:
        """Rows of the weight, for tables with `total` rows."""
        return total

    def locate(self, tables: TableGroup, ids: Ids, given: Any, training: bool) -> tuple[Ids, Any]:
        """The ids as the kernels read them, and what the calls that follow need. `given` is the caller's own object."""
        return ids, None

    def looked_up(self, tables: TableGroup, token: Any, training: bool) -> None:
        """The look-up of located ids is done."""

    def before_step(self, token: Any) -> None:
        """The update of a look-up comes next."""
