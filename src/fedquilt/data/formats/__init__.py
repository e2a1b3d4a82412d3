"""One file a format: how bytes on disk become arrays, none of which is trusted.

May import the modules of `data` itself, such as `files`, and `base`; not `fetch`: a reader is told which file.
"""
