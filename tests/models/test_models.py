import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedquilt import models
from fedquilt.base.arguments import ArgumentError
from fedquilt.base.registry import models as registry
from fedquilt.models.local_response_norm import LocalResponseNorm


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# Counts printed in the papers, except where the derivation stands beside.
COUNTS = [
    (models.mnist_2nn(), 199_210),
    (models.mnist_cnn(), 1_663_370),
    (models.softmax_regression(), 7_850),
    # 5·5·3·64 + 64, 5·5·64·64 + 64, 8·8·64·384 + 384, 384·192 + 192, 192·10 + 10
    (models.cifar_cnn_hsu(), 4_864 + 102_464 + 1_573_248 + 73_920 + 1_930),
    # the same with 6·6·64 inputs to the first full layer
    (models.cifar_cnn_mcmahan(), 4_864 + 102_464 + 885_120 + 73_920 + 1_930),
    # 265·V + 1024·(8 + 256 + 2) + 1024·(512 + 2)
    (models.char_lstm(), 265 * 90 + 798_720),
    (models.char_lstm(vocabulary=258), 265 * 258 + 798_720),
    (models.char_lstm(vocabulary=258, peepholes=True, biases=1), 866_578),
    (models.char_lstm(vocabulary=258, peepholes=True), 866_578 + 2 * 1024),
    (models.word_lstm(peepholes=True, biases=1), 4_950_544),
    # 192·V + 1024·(192 + 256 + 2) + 257·V
    (models.word_lstm(), 449 * 10_000 + 460_800),
    # D·inputs + D, D·classes
    (models.random_fourier(), 78_500 + 1_000),
    (models.random_fourier(bias=True), 78_500 + 1_000 + 10),
    # 3×3 convolutions: 3→16; six of 16→16; 16→32 and five of 32→32; 32→64 and five of 64→64. The classifier.
    # Scalars: four biases and a multiplier for each of nine blocks, and two biases outside of them.
    (models.resnet20_fixup(), 432 + 6 * 2_304 + (4_608 + 5 * 9_216) + (18_432 + 5 * 36_864) + 650 + (9 * 5 + 2)),
]


@pytest.mark.parametrize(("model", "count"), COUNTS)
def test_parameter_counts(model: nn.Module, count: int) -> None:
    assert parameters(model) == count


def images(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


CASES = {
    "mnist_2nn": (images(6, 1, 28, 28), (6, 10)),
    "mnist_cnn": (images(6, 1, 28, 28), (6, 10)),
    "softmax_regression": (images(6, 1, 28, 28), (6, 10)),
    "cifar_cnn_hsu": (images(6, 3, 32, 32), (6, 10)),
    "cifar_cnn_mcmahan": (images(6, 3, 24, 24), (6, 10)),
    "char_lstm": (torch.arange(42).view(6, 7), (6, 7, 90)),
    "mobilenet_v2": (images(6, 3, 64, 64), (6, 1203)),
    "random_fourier": (images(6, 1, 28, 28), (6, 10)),
    "resnet20_fixup": (images(6, 3, 32, 32), (6, 10)),
    "word_lstm": (torch.arange(42).view(6, 7), (6, 7, 10_000)),
}


def test_every_model_has_a_case() -> None:
    assert sorted(CASES) == list(registry) == sorted(set(models.__all__) - {"load_weights"})


@pytest.mark.parametrize("name", CASES)
def test_output_shape(name: str) -> None:
    x, shape = CASES[name]
    model = registry[name]()
    assert isinstance(model, nn.Module)
    assert model(x).shape == shape


@pytest.mark.parametrize("name", CASES)
def test_gradient_steps_lower_the_loss_and_reach_every_parameter(name: str) -> None:
    """Three steps, since Fixup's zeros let the gradient through layer by layer."""
    x, shape = CASES[name]
    torch.manual_seed(3)
    model = registry[name]()
    assert isinstance(model, nn.Module)
    y = torch.arange(x.shape[0] if x.is_floating_point() else x.numel()) % shape[-1]

    def loss() -> torch.Tensor:
        return functional.cross_entropy(model(x).flatten(0, -2), y)

    reached = [False] * len(list(model.parameters()))
    for _ in range(3):
        before = loss()
        gradients = torch.autograd.grad(before, list(model.parameters()))
        reached = [seen or bool(g.abs().max() > 0) for seen, g in zip(reached, gradients, strict=True)]
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(0.01 * gradient)
        assert loss() < before
    assert all(reached)


@pytest.mark.parametrize("name", CASES)
def test_the_global_generator_decides_the_start(name: str) -> None:
    def start(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        model = registry[name]()
        assert isinstance(model, nn.Module)
        return nn.utils.parameters_to_vector(model.parameters())

    assert torch.equal(start(1), start(1))
    assert not torch.equal(start(1), start(2))


@pytest.mark.parametrize("name", CASES)
def test_every_model_names_its_classifier(name: str) -> None:
    """The named layer is linear, its output is the model's, and the name survives a copy."""
    x, shape = CASES[name]
    model = registry[name]()
    assert isinstance(model, nn.Module)
    twin = copy.deepcopy(model)
    assert twin.classifier_layer == model.classifier_layer
    layer = twin.get_submodule(str(twin.classifier_layer))
    assert isinstance(layer, nn.Linear)
    assert layer.out_features == shape[-1]
    seen = []
    layer.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    scores = twin(x)
    ((features, output),) = seen
    assert features.shape == (*shape[:-1], layer.in_features)
    assert output is scores


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("char_lstm", "word_lstm")])
def test_every_model_can_be_mapped_over_clients(name: str) -> None:
    """nn.LSTM aside, which is slower mapped than in a loop."""
    x, _ = CASES[name]
    model = registry[name]()
    assert isinstance(model, nn.Module)
    params = {
        key: p.detach() + 0.01 * torch.stack([-torch.ones_like(p), p.detach()]) for key, p in model.named_parameters()
    }

    def score(mine: dict[str, torch.Tensor]) -> torch.Tensor:
        output: torch.Tensor = torch.func.functional_call(model, mine, (x,))
        return output

    with torch.no_grad():
        mapped = torch.func.vmap(score)(params)
        one_by_one = torch.stack([score({key: p[k] for key, p in params.items()}) for k in range(2)])
    torch.testing.assert_close(mapped, one_by_one, rtol=1e-4, atol=1e-4)


def test_mnist_cnn_takes_flat_images() -> None:
    model, x = models.mnist_cnn(), images(2, 1, 28, 28)
    assert torch.equal(model(x), model(x.view(2, 28, 28)))
    assert torch.equal(model(x), model(x.view(2, 784)))


def test_relu_after_pooling_is_relu_before() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    for pool in (nn.MaxPool2d(2), nn.MaxPool2d(3, stride=2, ceil_mode=True)):
        after, before = torch.relu(pool(x)), pool(torch.relu(x))
        assert torch.equal(after, before)
        (g1,) = torch.autograd.grad(after.square().sum(), x)
        (g2,) = torch.autograd.grad(before.square().sum(), x)
        assert torch.equal(g1, g2)


def test_pooling_is_tensorflows_same() -> None:
    # TensorFlow's "SAME" with stride 2 on an even side pads nothing before and one after: windows 0–2, 2–4, …
    x = torch.arange(6.0).view(1, 1, 1, 6).expand(1, 1, 6, 6)
    pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
    assert pool(x)[0, 0, 0].tolist() == [2.0, 4.0, 5.0]


def test_local_response_norm_is_torchs() -> None:
    torch.manual_seed(0)
    x = (10 * torch.randn(3, 20, 4, 5, dtype=torch.float64)).requires_grad_()
    ours = LocalResponseNorm(size=9, alpha=0.5)(x)
    theirs = nn.LocalResponseNorm(9, alpha=0.5, beta=0.75, k=1.0)(x)
    torch.testing.assert_close(ours, theirs)
    (g1,) = torch.autograd.grad(ours.sin().sum(), x)
    (g2,) = torch.autograd.grad(theirs.sin().sum(), x)
    torch.testing.assert_close(g1, g2)


def test_local_response_norm_is_tensorflows() -> None:
    # tf.nn.lrn: x / (bias + alpha · Σ x² over channels d − radius … d + radius)^beta
    x = torch.arange(1.0, 13.0).view(1, 12, 1, 1)
    ours = LocalResponseNorm(size=9, alpha=0.001)(x).flatten()
    for d in range(12):
        total = sum((c + 1) ** 2 for c in range(max(0, d - 4), min(12, d + 5)))
        assert ours[d].item() == pytest.approx((d + 1) / (1.0 + 0.001 / 9 * total) ** 0.75, rel=1e-6)


def test_tutorial_start() -> None:
    torch.manual_seed(0)
    model = models.cifar_cnn_mcmahan()
    layers = [layer for layer in model.children() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer, std, bias in zip(layers, [0.05, 0.05, 0.04, 0.04, 1 / 192], [0.0, 0.1, 0.1, 0.1, 0.0], strict=True):
        # A normal distribution cut at two standard deviations keeps 0.87962 of its standard deviation.
        assert layer.weight.std().item() == pytest.approx(0.87962 * std, rel=0.05)
        assert layer.weight.abs().max() <= 2 * std
        assert layer.bias is not None
        assert (layer.bias == bias).all()


def test_torch_start() -> None:
    torch.manual_seed(0)
    model = models.cifar_cnn_mcmahan(init="torch")
    torch.manual_seed(0)
    first = nn.Conv2d(3, 64, 5, padding=2)
    assert torch.equal(next(model.parameters()), first.weight)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ArgumentError, match="mnist_2nn: hidden: must be at least 1, got 0"):
        models.mnist_2nn(hidden=0)
    with pytest.raises(ArgumentError, match="cifar_cnn_mcmahan: init: must be one of 'tutorial' or 'torch'"):
        models.cifar_cnn_mcmahan(init="he")  # type: ignore[arg-type]
