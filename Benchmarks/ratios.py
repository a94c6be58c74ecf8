"""Ratios of times that were measured in turns, with their spread."""
import statistics


def spread(values):
    """The middle half: `0.97 to 1.04`."""
    if len(values) < 2:
        return "one run"
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:.2f} to {high:.2f}"


def text(values):
    """The median, and the middle half."""
    return f"ratio {statistics.median(values):.2f} ({spread(values)})"


def of_times(own, peer):
    """The ratio of the medians, and the middle half of the turns' ratios."""
    turns = [mine / other for mine, other in zip(own, peer)]
    return f"ratio {statistics.median(own) / statistics.median(peer):.2f} ({spread(turns)})"
