"""The selectors once more, slow and literal: Python loops over elements, one window at a time.

`skip`: positions at the start of each window that no mean over tokens counts.

Nothing here is shared with the engine but the row index and, for lrp, the rules themselves (which have
their own reference values). The next-token loss is the one that transformers computes from `labels`.
"""

import contextlib
import copy
import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from engine.models.attnlrp import attn_lrp
from engine.models.row_index import RowIndex

Outputs = dict[str, Tensor]
Target = Callable[[Any], Tensor]  # the model's output -> scalar


def magnitude(model: Any, rows: RowIndex) -> list[float]:
    """mean_j |W_ij| of every row."""
    scores = []
    for layer in rows.layers:
        for row in model.get_submodule(layer.name).weight.tolist():
            scores.append(sum(abs(weight) for weight in row) / len(row))
    return scores


def wanda(model: Any, rows: RowIndex, input_ids: Tensor, skip: int = 0) -> list[float]:
    """sum_j |W_ij| * RMS(X_j), X over all tokens of all windows."""
    scores = []
    for layer in rows.layers:
        linear = model.get_submodule(layer.name)
        tokens = [token for window in input_ids for token in _seen(model, layer.name, window)[0][skip:].tolist()]
        rms = [(sum(token[j] ** 2 for token in tokens) / len(tokens)) ** 0.5 for j in range(linear.in_features)]
        for row in linear.weight.tolist():
            scores.append(sum(abs(weight) * size for weight, size in zip(row, rms, strict=True)))
    return scores


def mean_activation(model: Any, rows: RowIndex, input_ids: Tensor, skip: int = 0) -> list[float]:
    """E |h_i| over the positions that predict a token."""
    scores = []
    for layer in rows.layers:
        tokens = [token for window in input_ids for token in _seen(model, layer.name, window)[1][skip:-1].tolist()]
        scores += [sum(abs(token[i]) for token in tokens) / len(tokens) for i in range(layer.rows)]
    return scores


def lrp(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss", skip: int = 0) -> list[float]:
    """E |h * dF/dh| over predicted tokens, one window at a time, under AttnLRP's rules."""
    relevance = []
    for window in input_ids:
        with attn_lrp(model):
            outputs, gradients = outputs_and_gradients(model, rows, window, 1.0, target(window, objective))
        relevance.append({name: outputs[name] * gradients[name] for name in outputs})
    return _mean_abs(rows, relevance, skip)


def ig(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss", skip: int = 0) -> list[float]:
    """E |(h(1) - h(0)) * mean over k of dF/dh(k/16)| over predicted tokens, one window at a time."""
    relevance = []
    for window in input_ids:
        goal = target(window, objective)
        at_zero, _ = outputs_and_gradients(model, rows, window, 0.0, goal)
        points = [outputs_and_gradients(model, rows, window, k / 16, goal) for k in range(1, 17)]
        at_one = points[-1][0]
        relevance.append(
            {
                name: (at_one[name] - at_zero[name]) * (sum(gradients[name] for _, gradients in points) / 16)
                for name in at_one
            }
        )
    return _mean_abs(rows, relevance, skip)


def grad_x_input(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss", skip: int = 0) -> list[float]:
    """E |h * dF/dh| over predicted tokens, one window at a time, plain gradients."""
    relevance = []
    for window in input_ids:
        outputs, gradients = outputs_and_gradients(model, rows, window, 1.0, target(window, objective))
        relevance.append({name: outputs[name] * gradients[name] for name in outputs})
    return _mean_abs(rows, relevance, skip)


def ig_conductance(
    model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss", skip: int = 0
) -> list[float]:
    """E |sum over k of dF/dh(k/16) * (h(k/16) - h((k-1)/16))| over predicted tokens, one window at a time."""
    relevance = []
    for window in input_ids:
        goal = target(window, objective)
        points = [outputs_and_gradients(model, rows, window, k / 16, goal) for k in range(17)]
        total: Outputs = {}
        for name in points[0][0]:
            total[name] = torch.zeros_like(points[0][0][name])
            for k in range(1, 17):
                total[name] += points[k][1][name] * (points[k][0][name] - points[k - 1][0][name])
        relevance.append(total)
    return _mean_abs(rows, relevance, skip)


def fisher(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss", skip: int = 0) -> list[float]:
    """sqrt(E (h * dF/dh)^2) over predicted tokens, one window at a time, plain gradients."""
    points = [outputs_and_gradients(model, rows, window, 1.0, target(window, objective)) for window in input_ids]
    return _root_mean_square(rows, [{name: h[name] * g[name] for name in h} for h, g in points], skip)


def gradient_norm(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss", skip: int = 0) -> list[float]:
    """sqrt(E (dF/dh)^2) over predicted tokens, one window at a time, plain gradients."""
    points = [outputs_and_gradients(model, rows, window, 1.0, target(window, objective)) for window in input_ids]
    return _root_mean_square(rows, [gradients for _, gradients in points], skip)


def weight_times_gradient(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss") -> list[float]:
    """(sum_j W_ij * dF/dW_ij + b_i * dF/db_i) per predicted token, from the gradients of the parameters."""
    model = copy.deepcopy(model).requires_grad_(True)
    for window in input_ids:
        target(window, objective)(model(input_ids=window[None], labels=window[None], use_cache=False)).backward()
    count = input_ids.shape[0] * (input_ids.shape[1] - 1)
    scores = []
    for layer in rows.layers:
        linear = model.get_submodule(layer.name)
        for i in range(layer.rows):
            total = sum(w * g for w, g in zip(linear.weight[i].tolist(), linear.weight.grad[i].tolist(), strict=True))
            if linear.bias is not None:
                total += linear.bias[i].item() * linear.bias.grad[i].item()
            scores.append(total / count)
    return scores


def taylor(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss") -> list[float]:
    """Its absolute value."""
    return [abs(value) for value in weight_times_gradient(model, rows, input_ids, objective)]


def atp_signed(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss") -> list[float]:
    """What taking the row away does to first order: added loss, or logits lost."""
    return [
        value if objective == "logit" else -value for value in weight_times_gradient(model, rows, input_ids, objective)
    ]


def signed(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss", skip: int = 0) -> list[float]:
    """E h * dF/dh over predicted tokens, one window at a time, plain gradients."""
    points = [outputs_and_gradients(model, rows, window, 1.0, target(window, objective)) for window in input_ids]
    scores = []
    for layer in rows.layers:
        tokens = [
            (h, g)
            for outputs, gradients in points
            for h, g in zip(outputs[layer.name][skip:-1], gradients[layer.name][skip:-1], strict=True)
        ]
        scores += [sum(float(h[i]) * float(g[i]) for h, g in tokens) / len(tokens) for i in range(layer.rows)]
    return scores


def relp(model: Any, rows: RowIndex, input_ids: Tensor, objective: str = "loss", skip: int = 0) -> list[float]:
    """E |(h - mean h) * dF/dh| over predicted tokens, one window at a time, under AttnLRP's rules."""
    means = {
        layer.name: [statistics.fmean(values) for values in _outputs(model, layer.name, input_ids, skip)]
        for layer in rows.layers
    }
    relevance = []
    for window in input_ids:
        with attn_lrp(model):
            outputs, gradients = outputs_and_gradients(model, rows, window, 1.0, target(window, objective))
        relevance.append({name: (outputs[name] - outputs[name].new(means[name])) * gradients[name] for name in outputs})
    return _mean_abs(rows, relevance, skip)


def activation_std(model: Any, rows: RowIndex, input_ids: Tensor, skip: int = 0) -> list[float]:
    """Standard deviation of h over the positions that predict a token."""
    return [
        statistics.pstdev(values) for layer in rows.layers for values in _outputs(model, layer.name, input_ids, skip)
    ]


def flap(model: Any, rows: RowIndex, input_ids: Tensor, skip: int = 0) -> list[float]:
    """Variance of h times the squared norm of the row's weights."""
    scores = []
    for layer in rows.layers:
        weights = model.get_submodule(layer.name).weight.tolist()
        for values, row in zip(_outputs(model, layer.name, input_ids, skip), weights, strict=True):
            scores.append(statistics.pvariance(values) * sum(weight**2 for weight in row))
    return scores


def ria(model: Any, rows: RowIndex, input_ids: Tensor, skip: int = 0) -> list[float]:
    """sum_j (|W_ij| / sum of column j + |W_ij| / sum of row i) * sqrt(RMS(X_j)), sums of absolute values."""
    scores = []
    for layer in rows.layers:
        weights = [[abs(weight) for weight in row] for row in model.get_submodule(layer.name).weight.tolist()]
        tokens = [token for window in input_ids for token in _seen(model, layer.name, window)[0][skip:].tolist()]
        width = len(weights[0])
        rms = [(sum(token[j] ** 2 for token in tokens) / len(tokens)) ** 0.5 for j in range(width)]
        columns = [sum(row[j] for row in weights) for j in range(width)]
        for row in weights:
            scores.append(sum((row[j] / columns[j] + row[j] / sum(row)) * math.sqrt(rms[j]) for j in range(width)))
    return scores


def weight_norm(model: Any, rows: RowIndex) -> list[float]:
    """Euclidean norm of every row."""
    return [math.hypot(*row) for layer in rows.layers for row in model.get_submodule(layer.name).weight.tolist()]


def target(window: Tensor, objective: str) -> Target:
    """F of one window: summed next-token loss, or summed logits of the next tokens."""
    if objective == "loss":
        return lambda output: output.loss * (len(window) - 1)  # transformers returns the mean
    return lambda output: sum(output.logits[0, t, window[t + 1]] for t in range(len(window) - 1))


def outputs_and_gradients(
    model: Any, rows: RowIndex, window: Tensor, scale: float, goal: Target
) -> tuple[Outputs, Outputs]:
    """h and dF/dh of every Linear, [T, d_out] each, with the input embeddings scaled."""
    outputs: Outputs = {}
    embeddings = (model.get_input_embeddings()(window[None]) * scale).detach().requires_grad_()
    with _hooks(model, [layer.name for layer in rows.layers], _retaining(outputs)):
        goal(model(inputs_embeds=embeddings, labels=window[None], use_cache=False)).backward()
    gradients = {name: output.grad[0] for name, output in outputs.items() if output.grad is not None}
    assert len(gradients) == len(rows.layers)
    return {name: output.detach()[0] for name, output in outputs.items()}, gradients


def _seen(model: Any, name: str, window: Tensor) -> tuple[Tensor, Tensor]:
    """Input [T, d_in] and output [T, d_out] of one Linear on one window."""
    seen: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad(), _hooks(model, [name], lambda _, given, output: seen.append((given[0], output[0]))):
        model(input_ids=window[None])
    return seen[0]


def _outputs(model: Any, name: str, input_ids: Tensor, skip: int) -> list[list[float]]:
    """Of every row of one Linear its outputs at the positions that predict a token."""
    tokens = [token for window in input_ids for token in _seen(model, name, window)[1][skip:-1].tolist()]
    return [list(values) for values in zip(*tokens, strict=True)]


def _retaining(outputs: Outputs) -> Callable[[str, Tensor, Tensor], None]:
    def keep(name: str, _: Tensor, output: Tensor) -> None:
        output.retain_grad()
        outputs[name] = output

    return keep


@contextlib.contextmanager
def _hooks(model: Any, names: list[str], action: Callable[[str, Tensor, Tensor], None]) -> Iterator[None]:
    handles = []
    for name in names:

        def hook(_: Any, given: Any, output: Tensor, name: str = name) -> None:
            action(name, given[0], output)

        handles.append(model.get_submodule(name).register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _mean_abs(rows: RowIndex, windows: list[Outputs], skip: int) -> list[float]:
    scores = []
    for layer in rows.layers:
        tokens = [token for window in windows for token in window[layer.name][skip:-1].tolist()]
        scores += [sum(abs(token[i]) for token in tokens) / len(tokens) for i in range(layer.rows)]
    return scores


def _root_mean_square(rows: RowIndex, windows: list[Outputs], skip: int) -> list[float]:
    scores = []
    for layer in rows.layers:
        tokens = [token for window in windows for token in window[layer.name][skip:-1].tolist()]
        scores += [math.sqrt(sum(token[i] ** 2 for token in tokens) / len(tokens)) for i in range(layer.rows)]
    return scores


def close(scores: Any, expected: list[float]) -> None:
    """float32 scores against Python floats: 1e-5 is a hundred roundings."""
    torch.testing.assert_close(scores.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-7)
