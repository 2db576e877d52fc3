"""Certificate methods, one file for each theorem; `METHODS` lists them.

To add a method, write a subclass of `Method` in a file of its own and add it to the table.
"""

from varsmooth.errors import VarsmoothError, check
from varsmooth.methods.base import Kind, Method
from varsmooth.methods.cascade import Cascade
from varsmooth.methods.fixed import Conditional, Fixed
from varsmooth.methods.median import Median
from varsmooth.methods.paper import Paper
from varsmooth.smoothing import Selector

__all__ = ["METHODS", "Method", "method_for", "predicting_method"]

METHODS: dict[str, Method] = {
    method.name: method for method in (Fixed(), Cascade(), Median(), Conditional(), Paper())
}
"""By the name that records store. The first that accepts a selector makes its predictions."""


def method_for(selector: Selector, kind: Kind = "sound") -> Method:
    """The method that certifies a selector; raises an error that says why there is none."""
    for method in METHODS.values():
        if kind in method.kinds and isinstance(selector, method.certifies):
            method.check(selector)
            return method
    own = predicting_method(selector)
    check(
        isinstance(own, Conditional),
        f"{own.subject} has a sound certificate and no {kind} one; "
        "call certify, or leave out method='paper'",
    )
    raise VarsmoothError(
        "an attacker who perturbs the image also moves an unprotected selector's noise level, "
        f"so no {kind} certificate exists; wrap the selector in MedianSelector, or ask for "
        "method='conditional', which assumes that the selector is not attacked"
    )


def predicting_method(selector: Selector) -> Method:
    """The method whose deployed prediction belongs to a selector."""
    return next(one for one in METHODS.values() if isinstance(selector, one.certifies))
