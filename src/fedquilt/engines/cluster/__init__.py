"""The transport of the `ray` engine: actors on a cluster, what is put into its object store, and the way to it.

Ray is imported when a cluster is first needed: it is an optional dependency.

May import what `engines` may.
"""
