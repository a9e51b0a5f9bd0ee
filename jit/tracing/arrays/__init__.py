"""What arrays in a traced function are: storages, views of them, their layout in memory, and indexing."""
