"""`fedskew reproduce`: a paper's cells trained into the store, read back, and shown beside the published numbers."""
