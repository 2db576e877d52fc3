"""Certificate methods, one file for each theorem; `METHODS` lists them.

To add a method, write a subclass of `Method` in a file of its own and add it to the table.
"""

from varsmooth.errors import VarsmoothError, check
from varsmooth.methods.base import Kind, Method
from varsmooth.methods.cascade import Cascade
from varsmooth.methods.fixed import Fixed
from varsmooth.methods.median import Median
from varsmooth.methods.paper import Conditional, Paper
from varsmooth.smoothing import Selector

__all__ = ["METHODS", "Method", "method_for", "predicting_method"]

METHODS: dict[str, Method] = {
    method.name: method for method in (Fixed(), Cascade(), Median(), Conditional(), Paper())
}
"""By the name that records store."""


def method_for(
    selector: Selector, kind: Kind = "sound", instead: str = "leave out `method='paper'`"
) -> Method:
    """The method that certifies a selector; raises an error that says why there is none.

    Args:
        instead: What to do where the paper has no certificate, but there is a sound one.
    """
    if (method := _most_specific(selector, kind)) is not None:
        method.check(selector)
        return method
    own = predicting_method(selector)
    check(
        "sound" not in own.kinds,
        f"{own.subject} has a sound certificate and no {kind} one; {instead}",
    )
    raise VarsmoothError(
        "an attacker who perturbs the image also moves an unprotected selector's noise level, "
        f"so no {kind} certificate exists; wrap the selector in MedianSelector, or ask for "
        "`method='conditional'`, which assumes that the selector is not attacked"
    )


def predicting_method(selector: Selector) -> Method:
    """The method whose deployed prediction belongs to a selector: that of its best certificate."""
    method = _most_specific(selector, "sound") or _most_specific(selector, "conditional")
    assert method is not None  # any selector has a conditional certificate
    return method


def _most_specific(selector: Selector, kind: Kind) -> Method | None:
    """Of the methods with this kind of certificate, that of the selector's closest base class."""
    distance = type(selector).__mro__.index
    accepting = (
        one for one in METHODS.values() if kind in one.kinds and isinstance(selector, one.certifies)
    )
    return min(accepting, key=lambda one: distance(one.certifies), default=None)
