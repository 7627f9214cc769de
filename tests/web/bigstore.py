"""A store far larger than usual, written by SQLite itself: 200 runs of 10,000 rows in a few seconds."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from fedskew.run import Run
from fedskew.store import Store, database

# A curve that rises and shakes, with one peak that must not be lost.
PEAK = 6_543
_ACCURACY = f"CASE WHEN t = {PEAK} THEN 0.99 ELSE 0.9 * t / (t + 500.0) - 0.03 * (t % 7 = 0) END"
_RECORD = """json_object('round', t, 'lr', 0.1, 'loss', 2.3 / (1 + t / 900.0), 'accuracy', a,
    'test_loss', 2.3 / (1 + t / 999.0), 'per_class', NULL, 'divergence', NULL, 'emd', 1.8, 'clients', 10,
    'examples', 1437, 'bytes_up', 100, 'bytes_down', 100, 'seconds', 0.1, 'prepared', NULL)"""
_RUN = "INSERT INTO runs VALUES (?, ?, ?, 'digits', 'classes:1', 'fedavg', ?, ?, '{}', '{}', 'finished', '', NULL)"


def fill(folder: Path, runs: int = 200, rows: int = 10_000) -> list[str]:
    """Write the store and give its ids, the newest first; two seeds of each setting."""
    store, ids = Store(folder), [f"{i:08x}" for i in range(runs)]
    with database.writing(store.path):
        pass
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("PRAGMA journal_mode = OFF")  # nobody reads it yet, and a log would be written twice
        db.execute("PRAGMA synchronous = OFF")
        for i, id in enumerate(ids):
            run = Run(name=f"run {i // 2}", partition="classes:1", seed=i % 2, rounds=rows, lr=0.01 * (i // 2 + 1))
            created = f"2026-01-01T{i // 60:02d}:{i % 60:02d}:00+00:00"
            db.execute(_RUN, (id, run.name, created, rows, json.dumps(run.spec())))
        db.execute(
            f"""WITH RECURSIVE step(t) AS (SELECT 1 UNION ALL SELECT t + 1 FROM step WHERE t < {rows}),
                curve AS (SELECT t, {_ACCURACY} AS a FROM step),
                written AS MATERIALIZED (SELECT t, a, {_RECORD} AS record FROM curve)
            INSERT INTO rows SELECT id, t, a, record FROM runs CROSS JOIN written"""
        )
        db.commit()
        db.execute("PRAGMA journal_mode = WAL")
    return ids[::-1]
