"""Commands of the command line, one file each; `fedquilt.cli` mounts them."""
