"""Runs that a test stops. They have so many rounds that a test which a busy machine kept waiting is not too late."""

from contents import contents
from fedskew import sweep

ENDLESS = 100_000


def further(store, runs, others):
    """What two stores know of runs that were stopped in the first, once both have them a round further than that."""
    until = 1 + max(entry.round for entry in store.alike(runs))
    for each in (store, others):
        _, groups = sweep.plan(each, runs, until=until)
        for _ in sweep.train(each, groups):
            pass
    return contents(store, runs), contents(others, runs)
