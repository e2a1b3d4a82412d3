"""The vectorised preprocessing against the tutorial's steps, one image at a time."""

import numpy as np
import pytest
import torch

from fedquilt.data.preprocess import centre_whitened, random_crop_whitened

RAW = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (150, 3, 32, 32), dtype=np.uint8))


def whitened(image: np.ndarray) -> np.ndarray:
    result: np.ndarray = (image - image.mean()) / max(image.std(), 1 / np.sqrt(image.size))
    return result


def tutorial(image: np.ndarray, u: np.ndarray, brightness: float) -> np.ndarray:
    """Crop, mirror, brightness, contrast, whitening, as `distorted_inputs` has them."""
    top, left = int(u[0] * 9), int(u[1] * 9)
    x = image.astype(np.float64)[:, top : top + 24, left : left + 24]
    if u[2] < 0.5:
        x = x[:, :, ::-1]
    x = x + brightness
    means = x.mean(axis=(1, 2), keepdims=True)
    x = (x - means) * (0.2 + 1.6 * u[3]) + means
    return whitened(x)


@pytest.mark.parametrize("brightness", [-63.0, 0.0, 40.0])
def test_augment_is_the_tutorials(brightness: float) -> None:
    u = np.random.default_rng(7).random((len(RAW), 4))
    assert {int(9 * row) for row in u[:, 0]} == {int(9 * column) for column in u[:, 1]} == set(range(9))
    expected = np.stack([tutorial(image, row, brightness) for image, row in zip(RAW.numpy(), u, strict=True)])
    ours = random_crop_whitened(RAW, np.random.default_rng(7))
    np.testing.assert_allclose(ours.numpy(), expected, atol=2e-6)


def test_prepare_is_the_tutorials() -> None:
    expected = np.stack([whitened(image.astype(np.float64)[:, 4:28, 4:28]) for image in RAW.numpy()])
    np.testing.assert_allclose(centre_whitened(RAW).numpy(), expected, atol=2e-6)


def test_uniform_images_stay_finite() -> None:
    raw = torch.full((3, 3, 32, 32), 200, dtype=torch.uint8)
    assert (centre_whitened(raw) == 0).all()
    assert (random_crop_whitened(raw, np.random.default_rng(0)) == 0).all()


def test_nearly_uniform_images_keep_their_digits() -> None:
    raw = torch.full((1, 3, 32, 32), 250, dtype=torch.uint8)
    raw[0, 1, 10, 10] = 251
    np.testing.assert_allclose(
        centre_whitened(raw)[0].numpy(), whitened(raw[0, :, 4:28, 4:28].double().numpy()), atol=1e-3
    )


def test_only_the_generator_decides() -> None:
    a, b, c = (random_crop_whitened(RAW, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_later_images_do_not_matter() -> None:
    whole, part = (
        random_crop_whitened(RAW, np.random.default_rng(1)),
        random_crop_whitened(RAW[:10], np.random.default_rng(1)),
    )
    torch.testing.assert_close(whole[:10], part)


def test_the_input_is_left_alone() -> None:
    before = RAW.clone()
    random_crop_whitened(RAW, np.random.default_rng(1))
    centre_whitened(RAW)
    assert torch.equal(RAW, before)
