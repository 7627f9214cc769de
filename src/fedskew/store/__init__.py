"""The only writer of results: SQLite (WAL) for runs and rows, safetensors for checkpoints.

store = Store()
id = store.create(Run(partition="classes:1", clients=10))
for row in store.advance(id):  # a killed run goes on with the same call, bit for bit
    print(row.round, row.accuracy)
"""

from fedskew.store.entry import Entry
from fedskew.store.store import Store

__all__ = ["Entry", "Store"]
