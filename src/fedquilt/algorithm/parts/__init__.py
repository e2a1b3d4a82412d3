"""What fills the parts of an algorithm: selection, sampling, losses, descent, reductions.

May import `algorithm` and what that may import.
"""
