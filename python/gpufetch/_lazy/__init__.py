"""LazyArray, and a file for each thing that it does: indexing, NumPy functions, iteration, Dask."""
