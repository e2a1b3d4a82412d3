"""Layers that are faster in C++ of our own than in PyTorch: used where a run is compiled (`compute = "compiled"`)."""
