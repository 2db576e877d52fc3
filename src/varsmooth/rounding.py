"""Numbers as a reader sees them: rounded in the direction that claims less."""

from decimal import ROUND_FLOOR, Decimal


def rounded(value: float | Decimal, digits: int = 3, direction: str = ROUND_FLOOR) -> str:
    """A number with `digits` decimals, rounded down by default.

    Examples:
        >>> rounded(0.49999), rounded(-0.0001, 2), rounded(float("inf"))
        ('0.499', '-0.01', '∞')
    """
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "−∞"
    exact = Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=direction)
    return str(abs(exact) if exact == 0 else exact)


def percent(k: int, n: int, up: bool = False) -> str:
    """100 k/n with one decimal, from the integers, so that 29 of 100 is 29.0 and not 28.9.

    Examples:
        >>> percent(2, 3), percent(2, 3, up=True)
        ('66.6', '66.7')
    """
    tenths = -(-1000 * k // n) if up else 1000 * k // n
    return f"{tenths // 10}.{tenths % 10}"


def counted(count: int, noun: str) -> str:
    """A number of things in words.

    Examples:
        >>> counted(1, "image"), counted(20_000, "image"), counted(2, "class")
        ('1 image', '20,000 images', '2 classes')
    """
    ending = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending * (count != 1)}"
