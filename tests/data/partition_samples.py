"""A partition of every kind."""

import math

from fedskew.data.partition import Classes, Dirichlet, DirichletByClass, Emd, Groups, Iid, Quantity, Shards

SAMPLES = [
    Iid(clients=20),
    Classes(clients=20, n=3),
    Classes(clients=20, n=3, keep=True),
    Shards(clients=20, n=2),
    Dirichlet(clients=20, alpha=0.1),
    Dirichlet(clients=20, alpha=math.inf, prior="uniform"),
    Dirichlet(clients=20, alpha=0.5, prior=(0.1, 0.2, 0.3, 0.1, 0.05, 0.05, 0.1, 0.1, 1e-7, 0.0)),
    DirichletByClass(clients=20, alpha=0.5, min_size=3),
    Quantity(clients=20, alpha=2.5, min_size=0),
    Groups(clients=20),
    Emd(clients=20, value=1.44),
]
