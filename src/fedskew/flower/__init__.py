"""The same run in a real federation, on Flower: apps, strategies and partitioners (the extra `flower`)."""
