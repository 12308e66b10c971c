"""What a selector may ask for where prompts of two sides are contrasted: steps 1 to 3 of the paper's Algorithm 1."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.data.prompts import EncodedPrompts, encode_prompts
from engine.models.loading import LoadedModel, input_device
from engine.models.row_index import RowIndex
from engine.records.errors import InputError
from engine.records.progress import Progress
from engine.records.registry import plug_in_code
from engine.selectors.base import PromptSelector, check_contrasts, new_scorer
from engine.selectors.gradients import Method, per_prompt_relevance
from engine.selectors.passes import check_finite, real_tensor

BatchSums = Callable[[EncodedPrompts], Tensor]
Means = dict[tuple[str, tuple[str, ...]], Tensor]  # (stage, prompts) -> means over the prompts, float64


class Side(NamedTuple):
    """One number per row of each prompt of a side: its mean and its variance (divided by the number of prompts).
    [N] float64."""

    mean: Tensor
    variance: Tensor


@dataclass(eq=False)
class PromptRun:
    """The risk and the base prompts of one domain, for selectors that say how they contrast them. margin: logits at the
    last prompt position [batch, vocabulary] -> m(x) [batch], differentiable. seed: for a selector that draws. means:
    shared by the runs of several domains, so that no pass runs twice."""

    loaded: LoadedModel
    domain: str
    risk: Sequence[str]
    base: Sequence[str]
    margin: Callable[[Tensor], Tensor]
    _: KW_ONLY
    batch_size: int = 16
    seed: int = 42
    progress: Progress | None = None
    means: Means = field(default_factory=dict)

    @property
    def rows(self) -> RowIndex:
        return self.loaded.rows

    def contrast(self, selector: str) -> Tensor:
        """C_comply of a selector, float64 [N] on the CPU. Errors: InputError where it has none, or not one per row."""
        check_contrasts(selector)
        scorer = cast(PromptSelector, new_scorer(selector))
        with torch.no_grad(), plug_in_code("selector", selector):
            values = real_tensor(selector, scorer.contrast(self)).detach().cpu().double()
        if list(values.shape) != [self.rows.n_rows]:
            raise InputError(
                f"selector {selector!r} gave a contrast of shape {list(values.shape)}; expected [{self.rows.n_rows}]"
            )
        check_finite(selector, values, self.rows, self.loaded.dtype)
        return values

    def rank_difference(self, stage: str, sums: BatchSums) -> Tensor:
        """r(mean over the risk prompts) - r(mean over the base prompts), r in [0, 1] within each layer. [N] float64.
        sums: the sum over a batch of prompts, [N] on the CPU. stage: the name of the pass, the same for equal work."""
        return self._rank_difference(*(self._mean(stage, prompts, sums) for prompts in (self.risk, self.base)))

    def relevance_contrast(self, method: Method) -> Tensor:
        """`rank_difference` of E max(-R_i, 0), R_i the signed relevance of row i to m(x), summed over positions."""
        risk, base = self.compliance(method)
        return self._rank_difference(risk.mean, base.mean)

    def compliance(self, method: Method) -> tuple[Side, Side]:
        """max(-R_i(x), 0), how far row i promotes complying with prompt x, over the risk and over the base prompts."""

        def sums(batch: EncodedPrompts) -> Tensor:
            ids, mask = batch.input_ids, batch.attention_mask
            relevance = per_prompt_relevance(self.loaded, method, ids, mask, self.margin)  # [batch, N]
            complying = (-relevance).clamp(min=0).double()
            return torch.stack([complying.sum(0), complying.square().sum(0)])

        of_risk, of_base = (self._mean(method, prompts, sums) for prompts in (self.risk, self.base))
        # means [2, N]: of the number and of its square
        risk, base = (Side(mean, (square - mean.square()).clamp(min=0)) for mean, square in (of_risk, of_base))
        return risk, base

    def _rank_difference(self, risk: Tensor, base: Tensor) -> Tensor:
        ranks = [percentile_ranks(mean.numpy(), self.rows) for mean in (risk, base)]
        return torch.from_numpy(ranks[0] - ranks[1])

    def _mean(self, stage: str, prompts: Sequence[str], sums: BatchSums) -> Tensor:
        """Mean over the prompts of what `sums` gives for batches of them, in one pass for all who ask for `stage`."""
        known = (stage, tuple(prompts))
        if known not in self.means:
            device = input_device(self.loaded.model)
            total = torch.zeros((), dtype=torch.float64)
            for start in range(0, len(prompts), self.batch_size):
                batch = prompts[start : start + self.batch_size]
                total = total + sums(encode_prompts(self.loaded.tokenizer, batch).to(device))
                if self.progress:
                    self.progress(stage, start + len(batch), len(prompts))
            self.means[known] = total / len(prompts)
        return self.means[known]


def percentile_ranks(values: npt.ArrayLike, rows: RowIndex) -> npt.NDArray[np.float64]:
    """r(v): rank within the row's layer (Linear), divided by its rows - 1: 0 lowest, 1 highest. [N] -> [N].

    Equal values share the mean of their ranks (**choice**): rows that never promote complying are many and exactly 0,
    and ranked by row id they would seem to differ. A layer of one row has rank 1/2, as has any layer of equal values.
    """
    scores = np.asarray(values, dtype=np.float64)
    if scores.shape != (rows.n_rows,):
        raise InputError(f"scores have shape {list(scores.shape)}, the model has {rows.n_rows} rows")
    if not np.isfinite(scores).all():
        layer = rows.layers[int(rows.layer_of(int(np.argmin(np.isfinite(scores)))))]
        raise InputError(
            f"non-finite scores in block {layer.block} {layer.projection}; run again with --dtype bfloat16 or float32"
        )
    ranks = np.empty(rows.n_rows)
    for layer in rows.layers:
        of_layer = slice(layer.start, layer.start + layer.rows)
        _, group, counts = np.unique(scores[of_layer], return_inverse=True, return_counts=True)
        mean_rank = np.cumsum(counts) - (counts + 1) / 2  # of each group of equal values, from 0
        ranks[of_layer] = mean_rank[group] / (layer.rows - 1) if layer.rows > 1 else 0.5
    return ranks
