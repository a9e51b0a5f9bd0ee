"""What a back end is: what it answers about programs, fusions and layouts, and what its answers must be."""
