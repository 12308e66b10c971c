"""A measure that is made of another one's results, for tests of runners."""

from dataclasses import dataclass
from typing import Any

from engine.measures.base import Derived
from engine.models.loading import LoadedModel


@dataclass(frozen=True)
class Doubled(Derived[int]):
    """Twice the result of `base`."""

    base: Any
    kind = "doubled"

    def record(self, loaded: LoadedModel) -> dict[str, Any]:
        return self.base.record(loaded)

    def encode(self, result: int) -> dict[str, Any]:
        return {"doubled": result}

    def decode(self, stored: dict[str, Any]) -> int:
        return int(stored["doubled"])

    def derive(self, base: int) -> int:
        return 2 * base
