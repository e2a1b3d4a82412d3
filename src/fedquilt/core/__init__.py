"""The round and its parts: everything that does not know which method, model or engine is in use."""
