"""Are a model's weights what they were, bit by bit?"""

import torch


def bits(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def assert_same_bits(model, before):
    assert model.state_dict().keys() == before.keys()
    for name, value in model.state_dict().items():
        unsigned = {2: torch.int16, 4: torch.int32}[value.element_size()]
        assert torch.equal(value.view(unsigned), before[name].view(unsigned)), name
