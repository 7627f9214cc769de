"""One file a paper: its runs, its published numbers, its tables and figures."""
