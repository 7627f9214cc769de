"""Small runs in a store, and what their rows should be."""

import json
from contextlib import closing

from fedskew.experiment import train
from fedskew.run import Run

SMALL = {"data": "digits", "examples": 200, "model": "softmax", "partition": "classes:2", "clients": 5, "lr": 0.5}


def small(**fields):
    return Run(**(SMALL | {"rounds": 6} | fields))


def plain(record):
    """All of a row but the time it took."""
    return {key: value for key, value in record.items() if key != "seconds"}


def rows(store, id):
    return [plain(r) for r in store.records(id)]


def expected(run, **options):
    return [json.loads(json.dumps(plain(row.record()))) for row in train(run, **options)]


def stop_after(store, id, round, **options):
    """Train until a round, then leave."""
    with closing(store.advance(id, **options)) as given:
        for row in given:
            if row.round == round:
                break


def listing(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
