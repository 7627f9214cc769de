"""What a store knows of some runs, to be held against another's."""

from fedskew.store import checkpoints


def untimed(records):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def contents(store, runs):
    """Everything but the time it took; rows as text, since a loss may be NaN."""
    found = []
    for entry in store.alike(runs):
        round, state = store.state(entry.id)
        rows = str(untimed(store.records(entry.id)))
        found.append((entry.status, entry.message, rows, round, state and checkpoints.pack(state)))
    return found
