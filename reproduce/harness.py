"""What an experiment is, and what experiments share: models, images, a store of runs, evidence."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from reproduce.figures import Figure
from reproduce.scales import Need, S, pair_needs
from reproduce.statistics import Differences, pooled
from varsmooth._util.processes import choose_device
from varsmooth.data import load_dataset
from varsmooth.data.own import splits_in
from varsmooth.data.source import NAMES
from varsmooth.defaults import BATCH_SIZE
from varsmooth.errors import VarsmoothError, check
from varsmooth.evaluation.attack import attack_dataset
from varsmooth.evaluation.build import BuiltModel, build, described
from varsmooth.evaluation.certify import certify_dataset
from varsmooth.evaluation.options import DataOptions, ModelOptions, RunOptions
from varsmooth.evaluation.predict import predict_dataset
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.models.descriptions import CONFIG, Description, describe, released_names
from varsmooth.models.options import Precision
from varsmooth.training import (
    ClassifierConfig,
    SelectorConfig,
    preset_names,
    read_config,
    train_classifier,
    train_selector,
)

T = TypeVar("T")
ScaleName = Literal["cpu", "paper"]
Verb = Literal["certify", "predict", "attack"]
VERBS: dict[Verb, Callable[..., Run]] = {
    "certify": certify_dataset,
    "predict": predict_dataset,
    "attack": attack_dataset,
}
EARLIER = json.loads(Path(__file__).with_name("fingerprints.json").read_text(encoding="utf-8"))
"""By name of a released model: its fingerprints, and how they were written when the keys of
committed records were made. A network that is trained again has none."""


@dataclass(frozen=True)
class Result:
    """Figures and tables of an experiment. notes: sentences for every caption besides the sizes."""

    figures: Sequence[Figure]
    tables: Sequence[Table]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Experiment(Generic[S]):
    """One figure or table of the paper.

    time: how long it takes at each scale, in words.
    median: whether a selector must have been trained with the median, for g_v*.
    """

    name: str
    paper: str
    title: str
    scales: Mapping[ScaleName, S]
    time: Mapping[ScaleName, str]
    run: Callable[["Context", S], Result]
    needs: Callable[[S], Sequence[Need]] = pair_needs
    median: bool = True


@dataclass
class Evidence:
    """What a result is judged from, by name: outcomes of runs, and facts, which are plain values.

    Filled while an experiment runs, and written beside its result. Read back, it is complete, and
    stands for the runs.

    earlier: runs of committed results, complete or not, by key; they are not repeated.
    kept: called after each run or fact that was computed.
    """

    runs: dict[str, Outcomes] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    earlier: Mapping[str, Outcomes] = field(default_factory=dict)
    kept: Callable[[], None] = lambda: None

    def of(self, kind: dict[str, T], name: str, make: Callable[[], T]) -> T:
        """What is known under a name; computed if it is not known yet."""
        if name not in kind:
            check(not self.complete, f"the records hold no {name!r}; run the experiment again")
            kind[name] = make()
            self.kept()
        return kind[name]


@dataclass(frozen=True)
class Context:
    """Where models are looked up and where runs are kept.

    store: a folder for runs and votes, shared by all experiments. A run's folder is named by a
    digest of all that its rows depend on: the same request continues it, another makes another
    run.
    models: a folder with trained models, named as released (`cifar10-0.25`) or as the presets
    name them (`f-0.25`, `h-0.25`); by default the released models.
    variant: which released selectors: `confidence` for `cifar10-0.25-confidence`, which read f; by
    default the paper's.
    train: train what is missing, by the presets of this scale ("paper"), into `models`.
    precision: of f in every run.
    """

    store: Path
    models: Path | None = None
    variant: str | None = None
    train: str | None = None
    root: Path | None = None
    batch_size: int = BATCH_SIZE
    device: str = "auto"
    precision: Precision = "float32"
    evidence: Evidence = field(default_factory=Evidence)

    def run(
        self, name: str, make: Callable[[], Outcomes], key: Callable[[], str] = str
    ) -> Outcomes:
        """The outcomes of a run under the name that records, tables and legends know it by.

        key: a digest of all that its rows depend on. If a committed result has a run with this key,
        under whatever name, its records stand for it.
        """
        evidence = self.evidence
        if name in evidence.runs or evidence.complete:
            return evidence.of(evidence.runs, name, make)
        wanted = key()

        def named(rows: Outcomes) -> Outcomes:
            return replace(rows, header=rows.header | {"name": name, "key": wanted})

        if wanted in evidence.earlier:
            evidence.runs[name] = named(evidence.earlier[wanted])
        return evidence.of(evidence.runs, name, lambda: named(make()))

    def voted(
        self, verb: Verb, name: str, options: Callable[[], tuple[ModelOptions, DataOptions, Any]]
    ) -> Outcomes:
        """The outcomes of an ordinary run under this name. options: of `execute`."""
        return self.run(
            name,
            lambda: outcomes(self.execute(verb, name, *options())),
            lambda: self.key(verb, *options()),
        )

    def fact(self, name: str, make: Callable[[], Any]) -> Any:
        """A plain value that no record holds: numbers, lists of numbers, or None."""
        return self.evidence.of(self.evidence.facts, name, make)

    def model(self, need: Need) -> str:
        """Name or folder of a model; trains it first if this context does that."""
        model = self.find(need)
        if model is None and self.train is not None:
            model = self._trained(need)
        if model is None:
            raise VarsmoothError(self.lack([need]))
        return model

    def about(self, need: Need) -> Description:
        """The description of a model."""
        return describe(self.model(need))

    def g_v_options(self, need: Need, lam: float) -> ModelOptions:
        """g_v: h evaluated once, on x + ε; its own h if there is one."""
        own = self._own(need) if self.has_own(need) else None
        sigma = self.about(need).sigma_of_selector
        return ModelOptions(own or self.model(need), lam=lam, sigma_a=sigma, selector="learned")

    def has_own(self, need: Need) -> bool:
        """Whether g_v has a selector of its own, trained for the same f."""

        def make() -> bool:
            own = self._own(need)
            if own is None:
                return False
            parts = [describe(place).classifier for place in (own, self.model(need))]
            return len({part and part.fingerprint for part in parts}) == 1

        return bool(self.fact(f"g_v has its own h, {need.title}", make))

    def selectors_of_g_v(self, needs: Sequence[Need]) -> str:
        """Which h serves g_v, in words."""
        own = [need.title for need in needs if self.has_own(need)]
        if len(own) == len(needs):
            return "the h of g_v is its own, trained without the median"
        also = f" ({', '.join(own)}: its own)" if own else ""
        return f"one h, trained in the scheme of g_v*, serves g_v too{also}"

    def _own(self, need: Need) -> str | None:
        """`hv-0.25` in a folder of models, or `cifar10-0.25-gv` released, or of the variant."""
        name = f"{self._released(need)}-gv" if self.models is None else f"hv-{need.level}"
        return next(iter(self._existing([name])), None)

    def find(self, need: Need) -> str | None:
        """Name or folder of a model that is there; the pair of g_v where g_v* has none."""
        name, level = self._released(need), need.level
        names = [name, f"{name}-gv"]
        if self.models is not None:
            names = [f"h-{level}", f"f-{level}", name, f"hv-{level}"]
        for place in self._existing(names):
            if not need.selector or describe(place).selector is not None:
                return place
        return None

    def _existing(self, names: Iterable[str]) -> list[str]:
        if self.models is None:
            return [name for name in names if name in released_names()]
        return [str(self.models / n) for n in names if (self.models / n / CONFIG).is_file()]

    def lack(self, needs: Sequence[Need]) -> str:
        """One sentence: which models are missing and how to get them. Empty if none is."""
        missing = [need for need in needs if self.find(need) is None]
        if not missing:
            return ""
        names = [self._released(need) + " with its selector" * need.selector for need in missing]
        trained = self.variant is None and f"cpu/f-{missing[0].level}" in preset_names()
        where = "among the released models" if self.models is None else f"in {self.models}"
        commands = [f"varsmooth train {kind} cpu/{name}" for kind, name in missing[0].presets]
        return (
            f"{', '.join(dict.fromkeys(names))} missing {where}; "
            + f"train it ({', then '.join(commands)}) and name its folder with --models, or "
            * trained
            + "leave out its σ_a with --sigmas"
        )

    def _released(self, need: Need) -> str:
        varied = need.selector and self.variant is not None
        return f"{need.released}-{self.variant}" if varied else need.released

    def _trained(self, need: Need) -> str:
        assert self.models is not None
        where = {"root": None if self.root is None else str(self.root)}
        folder = classifier = self.models / f"f-{need.level}"
        if not (folder / CONFIG).is_file():
            wishes = where | {"out": str(folder)}
            train_classifier(read_config(ClassifierConfig, f"{self.train}/{folder.name}", wishes))
        of_g_v = f"hv-{need.level}"  # of g_v, if it has one
        for name in (of_g_v, f"h-{need.level}") if need.selector else ():
            if (preset := f"{self.train}/{name}") in preset_names():
                folder = self.models / name
                wishes = where | {"classifier": str(classifier), "out": str(folder)}
                train_selector(read_config(SelectorConfig, preset, wishes))
        return str(folder)

    def contents(self, data: str) -> dict[str, dict[str, str]]:
        """The same for test and, if there is one, val."""
        contents: dict[str, dict[str, str]] = {}
        for split in ("test", "val"):
            with suppress(VarsmoothError):
                contents |= {split: each} if (each := self.content(data, split)) else {}
        return contents

    def require_val(self, data: str) -> None:
        """Refuse data without a val, which may be a part of train, but not of test."""
        check(
            data in NAMES or bool({"train", "val"} & {*splits_in(Path(data))}),
            f"{data} has no val of its own, whose images choose λ and σ_s; name a folder with test "
            "and val, or leave the choice out with --choice 0",
        )

    def content(self, data: str | None, split: str) -> dict[str, str]:
        """A digest of images and labels that may change under their name; {} if they cannot."""
        if data is None or data in NAMES:
            return {}
        return {"digest": described(load_dataset(data, split, self.root), DataOptions())["digest"]}

    def images(self, data: str, split: str, count: int) -> DataOptions:
        """`count` images of a split, evenly spaced."""
        images = load_dataset(data, split, self.root)
        have = len(images)
        check(images.labels is not None, f"{data} {split} has no labels; experiments need them")
        check(count <= have, f"{data} {split} has {have} images, not {count}")
        step = have // count
        subset = None if count == have else f"0:{step * count}:{step}"
        return DataOptions(data=data, split=split, subset=subset, root=self.root)

    def build(self, model: ModelOptions) -> BuiltModel:
        """The smoothed classifier of a run, on the device of its runs."""
        return build(self._precise(model), choose_device(self.device))

    def execute(
        self, verb: Verb, name: str, model: ModelOptions, data: DataOptions, settings: Any
    ) -> Run:
        """An ordinary run over a data set; certificates share their votes. Seeds are fixed."""
        folder = self.store / "runs" / self.key(verb, model, data, settings)
        if verb == "certify":
            settings = replace(settings, vote_cache=self.store / "votes")
        where = RunOptions(folder, name, self.batch_size, self.device)
        return VERBS[verb](self._precise(model), data, settings, where)

    def key(self, verb: Verb, model: ModelOptions, data: DataOptions, settings: Any) -> str:
        """A digest of all that the rows of a run depend on."""
        assert model.model is not None
        about, earlier = describe(model.model), EARLIER.get(model.model, {})
        steered = model.sigma is None  # else no selector has a say, and none need be there yet
        values = {
            "verb": verb,
            "fingerprints": [
                part and earlier.get(part.fingerprint, part.fingerprint)
                for part in (about.classifier, about.selector if steered else None)
            ],
            "recommended": _in_use(about.recommended, model) if steered else {},
            "model": _spelled(replace(self._precise(model), model=None, trust=model.trust or [])),
            "data": _spelled(replace(data, root=None)) | self.content(data.data, data.split),
            "settings": _spelled(settings),
        }
        return f"{verb}-{digest(values)}"

    def _precise(self, model: ModelOptions) -> ModelOptions:
        return replace(model, precision=self.precision)


def variant_of(name: str) -> str:
    """Which selectors a released model has besides the paper's kind, as `--variant` names them.

    >>> variant_of("cifar10-0.25-wide-gv"), variant_of("cifar10-0.25-gv")
    ('wide', '')
    """
    match = re.fullmatch(r"cifar10-(?:universal-)?[\d.]+-(\w+?)(?:-gv)?", name)
    return match[1] if match and match[1] != "gv" else ""


def number(value: float, form: str = "g") -> Cell:
    return Cell(f"{value:{form}}", value)


def gap_cell(gap: Differences) -> Cell:
    estimate = pooled([gap])
    return Cell(estimate.text(), estimate.value, estimate.interval())


def outcomes(run: Run) -> Outcomes:
    return Outcomes.of(run.header, run.rows())


SPELLED: dict[str, tuple[Any, ...]] = {
    "selector": (None, "learned"),
    "bound": ("cohen",),
    "center_crop": (None,),
    "interpolation": (None,),
}
"""Options that came after the first committed records, and values that no key has."""


def _spelled(options: Any) -> dict[str, Any]:
    """Options as the keys of committed records spell them."""
    values = asdict(options)
    if "selector" in values:
        values |= {"protect": values["selector"] != "learned", "gate": None}
    values.pop("vote_cache", None)
    return {name: value for name, value in values.items() if value not in SPELLED.get(name, ())}


def digest(values: Any) -> str:
    """A name for plain values."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _in_use(recommended: dict[str, Any], model: ModelOptions) -> dict[str, Any]:
    """The recommended settings that the options leave as they are."""
    spelled = {"n": "n_median"}
    return {
        name: value
        for name, value in recommended.items()
        if getattr(model, spelled.get(name, name), None) is None
    }
