"""A store far larger than usual, written by SQLite itself: 200 runs of 10,000 rows in a few seconds."""

from __future__ import annotations

import json
from pathlib import Path

from fedskew.run import Run
from fedskew.store import Store, database

# A curve that rises and shakes; every fourth row would do for a test of speed, but a real row has all its values.
_ROW = """json_object('round', t, 'lr', 0.1, 'loss', 2.3 / (1 + t / 900.0) + 0.05 * abs(sin(t * 0.7)), 'accuracy', a,
    'test_loss', 2.3 / (1 + t / 1000.0), 'per_class', json('[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]'),
    'divergence', json('{"relative": {"total": 0.3, "layers": {"fc1": 0.2, "fc2": 0.4}},
                         "rms": {"total": 0.01, "layers": {"fc1": 0.02, "fc2": 0.03}}}'),
    'emd', 1.8, 'clients', 10, 'examples', 1437, 'bytes_up', 100000, 'bytes_down', 100000, 'seconds', 0.1,
    'prepared', NULL)"""


def fill(folder: Path, runs: int = 200, rows: int = 10_000) -> list[str]:
    """Write the store and give its ids, the newest first."""
    store, ids = Store(folder), [f"{i:08x}" for i in range(runs)]
    with database.writing(store.path) as db, database.transaction(db):
        for i, id in enumerate(ids):
            run = Run(
                name=f"run {i // 2}",
                partition="classes:1",
                seed=i % 2,
                rounds=rows,
                divergence=True,
                lr=0.01 * (i // 2 + 1),
            )
            values = (
                id,
                run.name,
                f"2026-01-01T{i // 60:02d}:{i % 60:02d}:00+00:00",
                "digits",
                "classes:1",
                "fedavg",
                rows,
            )
            db.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{}', '{}', 'finished', '', NULL)",
                (*values, json.dumps(run.spec())),
            )
        db.execute(
            f"""WITH RECURSIVE step(t) AS (SELECT 1 UNION ALL SELECT t + 1 FROM step WHERE t < {rows}),
                curve AS (SELECT t, 0.9 * t / (t + 500.0) + 0.03 * sin(t * 1.3) * (t % 7 = 0) AS a FROM step),
                written AS MATERIALIZED (SELECT t, a, {_ROW} AS record FROM curve)
            INSERT INTO rows SELECT id, t, a, record FROM runs CROSS JOIN written"""
        )
    return ids[::-1]
