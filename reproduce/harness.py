"""What an experiment is, and what experiments share: models, images, a store of runs, evidence."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal

from reproduce.figures import Figure
from reproduce.scales import Need, S, pair_needs
from varsmooth._util.fingerprints import fingerprint
from varsmooth._util.processes import choose_device
from varsmooth.data import load_dataset
from varsmooth.data.own import splits_in
from varsmooth.data.source import NAMES
from varsmooth.defaults import BATCH_SIZE
from varsmooth.errors import VarsmoothError, check
from varsmooth.evaluation.attack import attack_dataset
from varsmooth.evaluation.build import BuiltModel, build, described
from varsmooth.evaluation.certify import certify_dataset
from varsmooth.evaluation.options import (
    AttackOptions,
    CertifyOptions,
    DataOptions,
    ModelOptions,
    PredictOptions,
    RunOptions,
)
from varsmooth.evaluation.predict import predict_dataset
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.tables import Table
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.models.descriptions import CONFIG, Description, describe, released_names
from varsmooth.models.options import Precision
from varsmooth.training import preset_names

ScaleName = Literal["cpu", "paper"]


@dataclass(frozen=True)
class Result:
    """What an experiment found. notes: sentences that every caption needs besides the sizes."""

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

    def of(self, kind: dict[str, Any], name: str, make: Callable[[], Any]) -> Any:
        """What is known under a name; computed if it is not known yet."""
        if name not in kind:
            check(not self.complete, f"the records hold no {name!r}; run the experiment again")
            kind[name] = make()
        return kind[name]


@dataclass(frozen=True)
class Context:
    """Where models are found and where runs are kept.

    store: a folder for runs and votes, shared by all experiments. A run's folder is named by a
    digest of all that its rows depend on: asked again it is continued, asked differently it is
    another run.
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
        evidence, computed = self.evidence, False

        def found() -> Outcomes:
            nonlocal computed
            wanted = key()
            computed = not wanted or wanted not in evidence.earlier
            rows = make() if computed else evidence.earlier[wanted]
            return replace(rows, header=rows.header | {"name": name, "key": wanted})

        outcomes: Outcomes = evidence.of(evidence.runs, name, found)
        if computed:
            evidence.kept()
        return outcomes

    def majority(
        self, name: str, asked: Callable[[], tuple[ModelOptions, DataOptions, PredictOptions]]
    ) -> Outcomes:
        """The outcomes of a run of predictions under this name."""

        def make() -> Outcomes:
            return outcomes(self.predict(name, *asked()))

        return self.run(name, make, lambda: self.key("predict", *asked()))

    def fact(self, name: str, make: Callable[[], Any]) -> Any:
        """A plain value that no record holds: numbers, lists of numbers, or None."""
        evidence, known = self.evidence, name in self.evidence.facts
        found = evidence.of(evidence.facts, name, make)
        if not known:
            evidence.kept()
        return found

    def model(self, need: Need) -> str:
        """Name or folder of a model; trains it first if this context does that."""
        found = self.find(need)
        if found is None and self.train is not None:
            found = self._trained(need)
        if found is None:
            raise VarsmoothError(self.lack([need]))
        return found

    def about(self, need: Need) -> Description:
        """The description of a model."""
        return describe(self.model(need))

    def g_v_options(self, need: Need, lam: float) -> ModelOptions:
        """g_v: h evaluated once, on x + ε; its own h if there is one."""
        own = self._own(need) if self.has_own(need) else None
        told = self.about(need).sigma_of_selector
        return ModelOptions(own or self.model(need), lam=lam, sigma_a=told, selector="learned")

    def has_own(self, need: Need) -> bool:
        """Whether g_v has a selector of its own, trained for the same f."""

        def make() -> bool:
            own = self._own(need)
            if own is None:
                return False
            # The networks themselves: fingerprints in descriptions have an older and a newer form.
            networks = [load_checkpoint(place).classifier for place in (own, self.model(need))]
            return len({f and fingerprint(f) for f in networks}) == 1

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
        if self.models is not None:
            folder = self.models / f"hv-{need.level}"
            return str(folder) if (folder / CONFIG).is_file() else None
        name = f"{self._released(need)}-gv"
        return name if name in released_names() else None

    def find(self, need: Need) -> str | None:
        """Name or folder of a model that is there; the pair of g_v where g_v* has none."""
        if self.models is None:
            name = self._released(need)
            places = [each for each in (name, f"{name}-gv") if each in released_names()]
        else:
            names = (f"h-{need.level}", f"f-{need.level}", need.released, f"hv-{need.level}")
            places = [str(self.models / n) for n in names if (self.models / n / CONFIG).is_file()]
        for place in places:
            if not need.selector or describe(place).selector is not None:
                return place
        return None

    def lack(self, needs: Sequence[Need]) -> str:
        """One sentence: which models are missing and how to get them. Empty if none is."""
        missing = [need for need in needs if self.find(need) is None]
        if not missing:
            return ""
        names = [self._released(need) + " with its selector" * need.selector for need in missing]
        trained = self.variant is None and f"cpu/f-{missing[0].level}" in preset_names()
        commands = [f"varsmooth train {kind} cpu/{name}" for kind, name in missing[0].presets]
        return (
            f"{', '.join(dict.fromkeys(names))} missing {self._where()}; "
            + f"train it ({', then '.join(commands)}) and name its folder with --models, or "
            * trained
            + "leave out its σ_a with --sigmas"
        )

    def _released(self, need: Need) -> str:
        varied = need.selector and self.variant is not None
        return f"{need.released}-{self.variant}" if varied else need.released

    def _where(self) -> str:
        return "among the released models" if self.models is None else f"in {self.models}"

    def _trained(self, need: Need) -> str:
        from varsmooth.training import (
            ClassifierConfig,
            SelectorConfig,
            read_config,
            train_classifier,
            train_selector,
        )

        check(self.models is not None, "say where trained models go with --models")
        assert self.models is not None
        overrides: dict[str, Any] = {"root": None if self.root is None else str(self.root)}
        folder = self.models / f"f-{need.level}"
        if not (folder / CONFIG).is_file():
            preset = f"{self.train}/f-{need.level}"
            wishes = overrides | {"out": str(folder)}
            train_classifier(read_config(ClassifierConfig, preset, wishes))
        if need.selector:
            wishes = overrides | {"classifier": str(folder)}
            for name in (f"hv-{need.level}", f"h-{need.level}"):  # of g_v, if it has one; of g_v*
                if f"{self.train}/{name}" in preset_names():
                    folder = self.models / name
                    config = read_config(
                        SelectorConfig, f"{self.train}/{name}", wishes | {"out": str(folder)}
                    )
                    train_selector(config)
        return str(folder)

    def contents(self, data: str) -> dict[str, dict[str, str]]:
        """The same for test and, if there is one, val."""
        found: dict[str, dict[str, str]] = {}
        for split in ("test", "val"):
            with suppress(VarsmoothError):
                found |= {split: each} if (each := self.content(data, split)) else {}
        return found

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

    def folder(self, kind: str, settings: Mapping[str, Any]) -> Path:
        """The folder in the store of something that was trained with these settings."""
        content = self.content(settings["data"], settings["train_split"])
        return self.store / kind / _digest({**settings, **content})

    @property
    def places(self) -> dict[str, Any]:
        """Where training finds its images and where it computes: options of every training."""
        return {"root": self.root, "device": "cpu" if self.device == "cpu" else "auto"}

    @property
    def votes(self) -> Path:
        """The vote cache that all runs share."""
        return self.store / "votes"

    def build(self, model: ModelOptions) -> BuiltModel:
        """The smoothed classifier of a run, on the device of its runs."""
        return build(self._precise(model), choose_device(self.device))

    def certify(
        self, name: str, model: ModelOptions, data: DataOptions, settings: CertifyOptions
    ) -> Run:
        """An ordinary certification run; its votes are shared with all others."""
        options = self._options("certify", name, model, data, settings)
        settings = replace(settings, vote_cache=self.votes)
        return certify_dataset(self._precise(model), data, settings, options)

    def predict(
        self, name: str, model: ModelOptions, data: DataOptions, settings: PredictOptions
    ) -> Run:
        """An ordinary prediction run; give it a seed."""
        options = self._options("predict", name, model, data, settings)
        return predict_dataset(self._precise(model), data, settings, options)

    def attack(
        self, name: str, model: ModelOptions, data: DataOptions, settings: AttackOptions
    ) -> Run:
        """An ordinary attack run."""
        options = self._options("attack", name, model, data, settings)
        return attack_dataset(self._precise(model), data, settings, options)

    def key(self, verb: str, model: ModelOptions, data: DataOptions, settings: Any) -> str:
        """A digest of all that the rows of a run depend on."""
        assert model.model is not None
        about = describe(model.model)
        steered = model.sigma is None  # else no selector has a say, and none need be there yet
        values = {
            "verb": verb,
            "fingerprints": [
                part and part.fingerprint
                for part in (about.classifier, about.selector if steered else None)
            ],
            "recommended": _in_use(about.recommended, model) if steered else {},
            "model": _spelled(replace(self._precise(model), model=None, trust=model.trust or [])),
            "data": _spelled(replace(data, root=None)) | self.content(data.data, data.split),
            "settings": _spelled(settings),
        }
        return f"{verb}-{_digest(values)}"

    def _precise(self, model: ModelOptions) -> ModelOptions:
        return replace(model, precision=self.precision)

    def _options(
        self, verb: str, name: str, model: ModelOptions, data: DataOptions, settings: Any
    ) -> RunOptions:
        folder = self.store / "runs" / self.key(verb, model, data, settings)
        return RunOptions(folder, name, self.batch_size, self.device)


def variant_of(name: str) -> str:
    """Which selectors a released model has besides the paper's kind, as `--variant` names them.

    >>> variant_of("cifar10-0.25-wide-gv"), variant_of("cifar10-0.25-gv")
    ('wide', '')
    """
    found = re.fullmatch(r"cifar10-(?:universal-)?[\d.]+-(\w+?)(?:-gv)?", name)
    return found[1] if found and found[1] != "gv" else ""


def outcomes(run: Run) -> Outcomes:
    return Outcomes.of(run.header, run.rows())


def _spelled(options: Any) -> dict[str, Any]:
    """Options as the keys of committed records spell them; what came later counts if it is set."""
    values = asdict(options)
    if "selector" in values:
        values |= {"protect": values["selector"] != "learned", "gate": None}
    later = {
        "selector": (None, "learned"),
        "bound": ("cohen",),
        "vote_cache": (values.get("vote_cache"),),
    }
    later |= {"center_crop": (None,), "interpolation": (None,)}
    return {k: v for k, v in values.items() if k not in later or v not in later[k]}


def _digest(values: Any) -> str:
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
