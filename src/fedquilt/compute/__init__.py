"""How values are computed.

The model as flat vectors with a layout, worker models, device and precision, pinned settings, kernels.

May import `base`. It knows nothing of algorithms.
"""
