"""One file a format: how bytes on disk become arrays, none of which is trusted.

May import `base`.
"""
