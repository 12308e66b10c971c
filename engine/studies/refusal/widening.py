"""Where an operating point lies at the edge of its grid, and the grid that goes on beyond."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.edits.masks import removed_count

SMALLEST_LAMBDA, LARGEST_LAMBDA, SMALLEST_K, LARGEST_K = (
    "smallest lambda", "largest lambda", "smallest k", "largest k",
)  # fmt: skip


@dataclass(frozen=True)
class Axes:
    """The lambdas and ks of one contrast's grid. n_rows: of the model, which says how fine k can be."""

    lambdas: tuple[float, ...]
    ks: tuple[float, ...]
    n_rows: int

    def edges(self, lam: float, k: float) -> tuple[str, ...]:
        """The sides at which this cell lies and beyond which the grid could go on. An axis of one value has none."""
        at = {
            SMALLEST_LAMBDA: lam == min(self.lambdas),
            LARGEST_LAMBDA: lam == max(self.lambdas),
            SMALLEST_K: k == min(self.ks),
            LARGEST_K: k == max(self.ks),
        }
        return tuple(side for side, there in at.items() if there and self._beyond(side) is not None)

    def widened(self, sides: tuple[str, ...]) -> Axes:
        """One step further at each of these sides."""
        found = self
        for side in sides:
            value = self._beyond(side)
            if value is not None and side in (SMALLEST_LAMBDA, LARGEST_LAMBDA):
                found = replace(found, lambdas=tuple(sorted((*found.lambdas, value))))
            elif value is not None:
                found = replace(found, ks=tuple(sorted((*found.ks, value))))
        return found

    def _beyond(self, side: str) -> float | None:
        """The next value: lambda by the last step, cut to [0, 1]; k by the last ratio, below 1 and never without a row.

        None where there is none, or where k would give the same number of rows.
        """
        values = sorted(set(self.lambdas if side in (SMALLEST_LAMBDA, LARGEST_LAMBDA) else self.ks))
        if len(values) < 2:
            return None
        last, before = values[:2] if side in (SMALLEST_LAMBDA, SMALLEST_K) else values[:-3:-1]
        if side in (SMALLEST_LAMBDA, LARGEST_LAMBDA):
            value = round(min(1.0, max(0.0, 2 * last - before)), 10)
            return value if value != last else None
        value = float(f"{last * last / before:.6g}")
        if not 0 < value < 1 or removed_count(value, self.n_rows) in (0, removed_count(last, self.n_rows)):
            return None
        return value
