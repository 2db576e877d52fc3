"""A torch `Dataset` or `DataLoader` wherever a tensor of images goes, batch by batch."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from inspect import signature
from typing import Any, Protocol, TypeVar, cast

from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler

from varsmooth.defaults import Options
from varsmooth.errors import check, check_ids
from varsmooth.smoothing import check_smoothed


class Batched(Protocol):
    """What `load_dataset` returns: batches with `images` and `ids`."""

    def batches(self, size: int) -> Iterable[Any]: ...


Images = Tensor | Dataset[Any] | DataLoader[Any] | Batched
"""Images (B,C,H,W) in [0,1], or a source of such: `load_dataset(…)`, a Dataset, a DataLoader.

Items of a Dataset and batches of a DataLoader are images, or tuples that begin with them.
"""

BATCH = 32
"""Images of a Dataset that are in memory together."""

OPTIONS = tuple(field.name for field in fields(Options))

F = TypeVar("F", bound=Callable[..., Any])


def over_batches(function: F) -> F:
    """Let a function of (g, images (B,C,H,W), …) take a source of images, too.

    The results of all batches are joined. Images of a data set of ours keep their ids; those of
    others are numbered in the order they come, so that results do not depend on the batches.
    """

    own_names = signature(function).parameters

    @wraps(function)
    def call(g: Any, x: Images, *arguments: Any, **options: Any) -> Any:
        for name, value in options.items():
            check(
                name in own_names or name not in OPTIONS,
                f"{name} is a field of the options; write options=Options({name}={value!r})",
            )
        if not (hasattr(x, "batches") or isinstance(x, Dataset | DataLoader)):
            return function(g, x, *arguments, **options)
        check_smoothed(g)
        if options.get("seed") is None:  # all images of one call share it
            options["seed"] = secrets.randbits(63)
        ids, items, joined = options.pop("ids", None), list[Any](), None
        if ids is not None:
            check_ids(ids, len(ids))  # also across batches
        names = None if ids is None else [int(name) for name in ids]
        for images, own in _batches(x):
            place = slice(len(items), len(items) + len(images))
            chosen = own or list(range(place.start, place.stop)) if names is None else names[place]
            results = function(g, images.to(g.device), *arguments, ids=chosen, **options)
            items, joined = [*items, *results.items], type(results)
        check(joined is not None, "the data set is empty; give at least one image")
        check(
            names is None or len(names) == len(items),
            f"ids has {len(names or ())} entries for {len(items)} images; give one for each",
        )
        return cast(Any, joined)(tuple(items))

    return cast(F, call)


def _batches(source: Any) -> Iterable[tuple[Tensor, list[int] | None]]:
    """Images of each batch, and their ids if the source knows them."""
    if hasattr(source, "batches"):
        for batch in source.batches(BATCH):
            yield batch.images, batch.ids.tolist()
        return
    for batch in _in_order(source):
        images = batch[0] if isinstance(batch, tuple | list) else batch
        check(
            isinstance(images, Tensor),
            "a batch of the data must be images, or begin with them, not "
            f"{type(images).__name__}; let its collate_fn return (images, labels)",
        )
        yield images, None


def labels_of(source: Dataset[Any] | DataLoader[Any]) -> list[Any]:
    """The labels of a source whose batches are (images, labels, …)."""
    labels: list[Any] = []
    for batch in _in_order(source):
        labelled = isinstance(batch, tuple | list) and len(batch) > 1
        check(labelled, "the batches of the data have no labels; give labels=[...] instead")
        labels += batch[1].tolist() if isinstance(batch[1], Tensor) else list(batch[1])
    return labels


def _in_order(source: Dataset[Any] | DataLoader[Any]) -> DataLoader[Any]:
    """A loader that gives the items one after the other."""
    loader = source if isinstance(source, DataLoader) else DataLoader(source, batch_size=BATCH)
    in_order = isinstance(loader.dataset, IterableDataset) or (
        isinstance(loader.sampler, SequentialSampler)
        and (loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler)
    )
    check(
        in_order,
        "the DataLoader shuffles or has a sampler of its own, so results cannot be matched to "
        "images; make it with shuffle=False and without sampler",
    )
    return loader
