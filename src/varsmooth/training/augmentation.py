"""Random crops and flips of a whole batch at once, from one explicit generator."""

import torch
from torch import Tensor
from torch.nn import functional


def crop_and_flip(images: Tensor, generator: torch.Generator, crop: int, flip: bool) -> Tensor:
    """Shift each image by up to `crop` pixels (zeros come in) and mirror half of them.

    images (B,H,W,C) of any dtype, on the generator's device → the same shape. Every output row
    and column is an index into the padded image, so that one gather serves the whole batch.
    """
    batch, height, width, _ = images.shape
    device = images.device
    padded = functional.pad(images, (0, 0, crop, crop, crop, crop))
    shift = torch.randint(0, 2 * crop + 1, (2, batch, 1), generator=generator, device=device)
    rows = shift[0] + torch.arange(height, device=device)  # (B, H)
    columns = shift[1] + torch.arange(width, device=device)  # (B, W)
    if flip:
        mirrored = torch.rand(batch, 1, generator=generator, device=device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    index = torch.arange(batch, device=device)[:, None, None]
    return padded[index, rows[:, :, None], columns[:, None, :]]
