"""The servers that are measured against each other, one file each."""
