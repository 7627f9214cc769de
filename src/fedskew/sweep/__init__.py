"""Many runs into one store: those of one shape train together, finished ones are not repeated, stopped ones go on.

ids, groups = plan(store, runs)
for id, row in train(store, groups):  # here; on processes or a Ray cluster: see conduct
    print(id, row.accuracy)
"""

from fedskew.experiment import SHAPE
from fedskew.sweep.groups import Group, Outline, outline, plan, train

__all__ = ["SHAPE", "Group", "Outline", "outline", "plan", "train"]
