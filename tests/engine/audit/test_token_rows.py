"""Rows behind each token, and one row at every token: against loops over prefixes, and against changing the outputs."""

from contextlib import nullcontext

import pytest
import reference
import torch
from torch.nn.functional import log_softmax

from engine.measures.row_values import row_outputs, row_relevance
from engine.measures.token_rows import AWAY, ROWS, TOKENS, TOWARDS, token_rows
from engine.models.attnlrp import attn_lrp
from engine.records.errors import InputError
from engine.selectors import compute_scores

TOP = 4


@pytest.fixture
def ids(tiny_windows):
    return tiny_windows.input_ids[0, :7].tolist()


def by_hand(loaded, ids, target, rules):
    """Relevance of every row to one token, from the tokens before it alone; and its log-probability."""
    said = []

    def goal(output):
        said.append(log_softmax(output.logits[0, -1], -1)[ids[target]])
        return said[0]

    with rules(loaded.model):
        outputs, gradients = reference.outputs_and_gradients(
            loaded.model, loaded.rows, torch.tensor(ids[:target]), 1.0, goal
        )
    whole = [outputs[layer.name] * gradients[layer.name] for layer in loaded.rows.layers]
    return torch.cat([values.sum(0) for values in whole]), float(said[0].detach())


@pytest.mark.parametrize(("method", "rules"), [("lrp", attn_lrp), ("grad_x_input", lambda _: nullcontext())])
@pytest.mark.parametrize("batch_size", [1, 4, "auto"])
def test_rows_behind_a_token_are_those_of_a_loop_over_prefixes(tiny_llama, ids, method, rules, batch_size):
    found = token_rows(tiny_llama, ids, method=method, top=TOP, batch_size=batch_size)
    assert dict(found.tokens.schema) == TOKENS
    assert dict(found.rows.schema) == ROWS
    assert found.tokens["token_id"].to_list() == ids
    assert found.tokens["log_probability"][0] is None
    assert found.rows["position"].unique().to_list() == list(range(1, len(ids)))
    for target in range(1, len(ids)):
        expected, likely = by_hand(tiny_llama, ids, target, rules)
        assert found.tokens["log_probability"][target] == pytest.approx(likely, rel=1e-5)
        for side, sign in ((TOWARDS, 1), (AWAY, -1)):
            mine = found.rows.filter(position=target, side=side)
            best = (sign * expected).sort(descending=True).values[:TOP].tolist()
            assert (sign * mine["relevance"]).to_list() == pytest.approx(best, rel=2e-4, abs=1e-6)
            at_rows = expected[mine["row_id"].to_list()].tolist()
            assert mine["relevance"].to_list() == pytest.approx(at_rows, rel=2e-4, abs=1e-6)
            assert mine["place"].to_list() == list(range(1, TOP + 1))


def scaled(loaded, row, factor):
    """A hook that multiplies one row's output by a factor."""
    layer = next(one for one in loaded.rows.layers if one.start <= row < one.start + one.rows)

    def hook(_module, _given, output):
        changed = output.clone()
        changed[..., row - layer.start] *= factor
        return changed

    return loaded.model.get_submodule(layer.name).register_forward_hook(hook)


def test_gradient_relevance_is_how_fast_the_token_gets_less_likely_as_the_row_is_scaled_down(tiny_llama, ids):
    """No gradient is taken here: the outputs are made smaller and larger by 1%."""
    found = token_rows(tiny_llama, ids, method="grad_x_input", top=TOP)
    strongest = found.rows.filter(place=1)
    assert strongest.height == 2 * (len(ids) - 1)
    for line in strongest.iter_rows(named=True):
        likely = []
        for factor in (1.01, 0.99):
            handle = scaled(tiny_llama, line["row_id"], factor)
            with torch.no_grad():
                logits = tiny_llama.model(input_ids=torch.tensor([ids])).logits[0, line["position"] - 1]
            handle.remove()
            likely.append(float(log_softmax(logits.double(), -1)[ids[line["position"]]]))
        # Float32 logits: about 1e-6 over the step of .02.
        assert (likely[0] - likely[1]) / 0.02 == pytest.approx(line["relevance"], rel=0.02, abs=3e-4)


def test_one_row_at_every_token(tiny_llama, tiny_windows):
    row = tiny_llama.rows.layers[5].start + 2
    layer = tiny_llama.rows.layers[5]
    for batch_size in (1, 4, "auto"):
        outputs = row_outputs(tiny_llama, tiny_windows, row, batch_size=batch_size)
        relevances = row_relevance(tiny_llama, tiny_windows, row, batch_size=batch_size)
        assert outputs.shape == relevances.shape == tiny_windows.input_ids.shape
        for number, window in enumerate(tiny_windows.input_ids):
            with attn_lrp(tiny_llama.model):
                h, gradient = reference.outputs_and_gradients(
                    tiny_llama.model, tiny_llama.rows, window, 1.0, reference.target(window, "loss")
                )
            expected = -(h[layer.name] * gradient[layer.name])[:, 2]
            assert outputs[number].tolist() == pytest.approx(h[layer.name][:, 2].tolist(), rel=1e-4, abs=1e-6)
            assert relevances[number].tolist() == pytest.approx(expected.tolist(), rel=5e-4, abs=1e-6)
            assert float(relevances[number, -1]) == 0.0


def test_the_mean_size_of_a_rows_relevance_is_its_score(tiny_llama, tiny_windows):
    scores = compute_scores(tiny_llama, ["lrp", "mean_activation"], tiny_windows)
    for row in (0, tiny_llama.rows.layers[-1].start + 1):
        found = row_relevance(tiny_llama, tiny_windows, row)[:, :-1].abs().mean()
        assert float(found) == pytest.approx(float(scores["lrp"][row]), rel=1e-4)
        active = row_outputs(tiny_llama, tiny_windows, row)[:, :-1].abs().mean()
        assert float(active) == pytest.approx(float(scores["mean_activation"][row]), rel=1e-4)


@pytest.mark.parametrize(
    ("given", "more", "said"),
    [([3], {}, "2 tokens"), ([3, 4], {"top": 0}, "top"), ([3, 4], {"method": "lpr"}, "did you mean 'lrp'")],
)
def test_wrong_input_is_one_clear_line(tiny_llama, given, more, said):
    with pytest.raises(InputError, match=said):
        token_rows(tiny_llama, given, **more)


def test_a_row_that_is_not_there_is_one_clear_line(tiny_llama, tiny_windows):
    for function in (row_outputs, row_relevance):
        with pytest.raises(InputError, match="1000000"):
            function(tiny_llama, tiny_windows, 10**6)
